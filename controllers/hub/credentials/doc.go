// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package credentials renews the tokens with which the hub reaches workers, and tells in time which credentials expire.
//
// It renews a token only in a Secret with the label trainyard.dev/renew=token, which "kubectl trainyard join" makes. It
// never writes another Secret, because other kubeconfigs are an admin's. A token is renewed when 40 to 50 % of its life
// are over (decide.go). So after each renewal the hub can be off for half of the life.
//
// A renewal asks the worker for a token of the same account, bound to the same Secret, with the token that is to be
// renewed. It tries the new token on the worker, and writes the Secret only if that works. Package workercluster sees
// the changed Secret, and the connection swaps the token under its caches: no job notices. The old token stays valid
// until its own end.
//
// The worker is not believed (renew.go). The life of a token counts from the hub's request, whose time is in the Secret.
// A token that could not be renewed in its turn, or would be due at once, is not taken.
//
// Requests to a worker are made only for a renewal. Everything else comes from the hub's caches.
//
// The condition CredentialsExpiring of a WorkerCluster is True while credentials that nobody renews expire soon, or
// after a renewal has failed.
package credentials
