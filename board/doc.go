// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package board is a page about the fleet for people: workers and their nodes, who waits and why, jobs, and what a new
// job would do. It writes nothing.
//
// Use: New makes an http.Handler. Mount it below a path with a slash at the end, without that path (http.StripPrefix). Its
// callers come from Options.Caller. The plugin serves it on loopback behind a Door, with the rights of its user. The
// gateway mounts it, with the token that each request brings.
//
// # Who may what
//
// The index is filled by the watches of the process (Options.Watched), and is the same for all callers. What a caller
// gets out of it is a page with a scope: all namespaces, or one. Before it is computed, the caller's rights to list and
// watch what the page shows are asked of the hub (scope.go). The key of a page has its scope, so what two callers share is
// what both may list. A stream asks again every ten seconds. Everything about one job, its Events and logs, and what a
// simulation reads besides, is read with the caller's own rights, each time.
//
// # How it is kept up to date
//
// The index (index.go) has a row for each job, newest first, and a card for each worker. A page (page.go) is a list of
// items that are encoded once. A change of the index wakes the streams at most twice a second, and later if pages take
// long (pulse.go). The first stream that needs a page computes it, the others send the same bytes (stream.go).
//
// # Doors
//
// guard.go has what holds for each request: no other origin, only known paths and methods, and a policy that lets the
// browser load and run only what this handler serves. All text is set as text by the page. door.go is for loopback.
//
// # Locks
//
// index.mu guards what the index has, pages.mu the pages, page.mu one page while it is computed, pulse.mu the channel of
// the next beat, Door.mu the secrets. Code under them does no I/O.
package board
