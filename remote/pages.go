// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// maxPages is how many pages a list may have. Pages have 500 objects. Kubernetes is made for 150,000 pods in a
	// cluster: 300 pages.
	maxPages = 2000
	// maxListTime is how long a list may take, all pages together. API servers forget the state that is listed after five
	// minutes.
	maxListTime = 15 * time.Minute
)

// ErrEndlessList is in the error of a list of which the worker goes on saying that there is more. Whoever follows its
// Continue tokens would never come to an end, and hold everything in memory until then.
var ErrEndlessList = errors.New("the worker goes on saying that there is more")

// pages counts the pages of the lists that are under way, by path and selector. The zero value is ready.
type pages struct {
	mu sync.Mutex
	// lists under way, under mu.
	lists map[string]progress
}

// progress of a list.
type progress struct {
	pages int
	began time.Time
}

// admit counts a request that goes on with a list. Its error says that the list has no end.
func (p *pages) admit(req *http.Request, c call, clock clock.PassiveClock) error {
	if c.verb != "list" {
		return nil
	}
	query := req.URL.Query()
	goesOn := query.Get("continue") != ""
	key := req.URL.Path + "?" + query.Get("labelSelector") + "&" + query.Get("fieldSelector")
	p.mu.Lock()
	defer p.mu.Unlock()
	if !goesOn {
		delete(p.lists, key)
		return nil
	}
	list, known := p.lists[key]
	if !known {
		list = progress{pages: 1, began: clock.Now()}
	}
	list.pages++
	if p.lists == nil {
		p.lists = map[string]progress{}
	}
	p.lists[key] = list
	switch {
	case list.pages > maxPages:
		return fmt.Errorf("list %s: %w after %d pages", c.resource, ErrEndlessList, maxPages)
	case clock.Since(list.began) > maxListTime:
		return fmt.Errorf("list %s: %w after %s", c.resource, ErrEndlessList, maxListTime)
	}
	return nil
}
