// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package links is a network with faults between the processes of a test and an API server. A Link listens on this
// machine and passes connections on:
//
//	client -> Link -> (requests that are intercepted) -> toxiproxy -> API server
//
// toxiproxy does latency, bandwidth, silence (Hang) and resets. The Link itself does what toxiproxy cannot. Refuse
// stops listening. Blackhole is a network that loses every packet. During Blackhole no new connection is possible: the
// queue of the listening socket is full, and the kernel drops all other packets. Existing connections carry nothing,
// not even their end, until Heal. Then the delayed data arrives. So requests can be as late as on a real network.
// Intercept answers HTTP requests with errors of API servers and proxies.
package links
