// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import "sync"

const (
	// maxStreamsOfUser and maxStreams are how many streams may be open at a time: watches, followed logs, exec, attach and
	// port-forward.
	maxStreamsOfUser, maxStreams = 50, 1000
)

// limits count the open streams.
type limits struct {
	mu sync.Mutex
	// byUser and all under mu.
	byUser map[string]int
	all    int
}

// enter counts a stream until leave is called. ok is false if there are too many.
func (l *limits) enter(user string) (leave func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all >= maxStreams || l.byUser[user] >= maxStreamsOfUser {
		return nil, false
	}
	l.all++
	openStreams.Inc()
	l.byUser[user]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all--
		openStreams.Dec()
		if l.byUser[user]--; l.byUser[user] == 0 {
			delete(l.byUser, user)
		}
	}, true
}
