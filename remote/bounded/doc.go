// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bounded bounds what the answers of a worker may cost. client-go reads each answer to its end, and a worker
// that was taken over can make an answer endless: net/http unpacks gzip by itself, so 256 KiB can become 256 MiB. All
// clients of workers, in the manager and in the plugin, send their requests through this package. It follows no
// redirects, because a redirect would send the token to an address that the worker chooses.
//
// Kubernetes and Dynamic make clients of a worker:
//
//	client, err := bounded.Kubernetes(config, bounded.Limits{Timeout: time.Minute})
//
// Package remote has a transport of its own, with timeouts for each kind of request. It bounds answers with Answer.
//
// # The bounds
//
// They hold for the unpacked body. An API server takes requests of at most 3 MiB, and etcd takes values of at most 1.5
// MiB by default, so no object has more than MaxObject bytes, however large the cluster is. A watch is as long as it
// likes, and each event may have MaxObject bytes: client-go bounds an event in protobuf, and reads one in JSON to its
// end. A page may have MaxPage bytes: 500 objects of 64 KiB, where pods and nodes have 5 to 30 KiB. Pages of
// MinPageSize objects always fit, so package remote asks for smaller pages if a page is too large.
//
// # What to watch out for
//
// The bounds count bytes. Decoded objects can be larger than their bytes: an empty element of a list costs two or three
// bytes, and the Go value has hundreds.
package bounded
