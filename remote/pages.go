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
	// maxPages is how many pages a list may have. A page has 500 objects. Kubernetes supports 150,000 pods: 300 pages.
	maxPages = 2000
	// maxListTime is how long a list may take, all pages together. API servers forget the listed state after five minutes.
	maxListTime = 15 * time.Minute
)

// ErrEndlessList is in the error of a list that has too many pages or takes too long. A client that follows endless
// Continue tokens never finishes, and keeps all pages in memory.
var ErrEndlessList = errors.New("the worker's list does not end")

// pages counts the pages of the running lists, by path and selector. The zero value is ready.
type pages struct {
	mu sync.Mutex
	// lists are the running lists. mu guards them.
	lists map[string]progress
}

// progress is how far a list is.
type progress struct {
	pages int
	began time.Time
}

// admit counts a request for a page of a list. It returns an error if the list has no end.
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
