// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// maxStreamsOfUser and maxStreams are how many streams may be open at a time: watches, logs, exec, attach and
	// port-forward.
	maxStreamsOfUser, maxStreams = 50, 1000
	// maxListsOfCaller and maxLists are how many lists may be under way at a time.
	maxListsOfCaller, maxLists = 100, 500
)

// limits count what is under way.
type limits struct {
	ofOne, ofAll int
	gauge        prometheus.Gauge // or nil

	mu sync.Mutex
	// byName and all under mu.
	byName map[string]int
	all    int
}

func newLimits(ofOne, ofAll int, gauge prometheus.Gauge) *limits {
	return &limits{ofOne: ofOne, ofAll: ofAll, gauge: gauge, byName: map[string]int{}}
}

// enter counts something of somebody until leave is called. ok is false if there is too much.
func (l *limits) enter(name string) (leave func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all >= l.ofAll || l.byName[name] >= l.ofOne {
		return nil, false
	}
	l.add(name, 1)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.add(name, -1); l.byName[name] == 0 {
			delete(l.byName, name)
		}
	}, true
}

// add is called under mu.
func (l *limits) add(name string, by int) {
	l.all += by
	l.byName[name] += by
	if l.gauge != nil {
		l.gauge.Add(float64(by))
	}
}
