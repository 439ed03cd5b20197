// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package links is a network between the processes of a test and an API server, with faults: a Link listens on this machine and passes
// connections on.
//
//	client -> Link -> (requests that are intercepted) -> toxiproxy -> API server
//
// Latency, bandwidth, silence (Hang) and resets are toxiproxy's. What toxiproxy cannot do is done in front of it: Refuse stops
// listening, and Blackhole is a network that loses every packet. No connection can be made then, as the queue of the listening socket is
// full and the kernel drops what else arrives; and connections that exist carry nothing, not even their end, until Heal lets what was on
// its way arrive. So requests can be as late as they can on a real network. Intercept answers HTTP requests with what API servers and
// proxies answer in bad times.
package links
