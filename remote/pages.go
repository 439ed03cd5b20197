// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/trainyard/trainyard/remote/bounded"
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
	// lists are the running lists, and sizes how many objects a page may have where that is less than what the client
	// asks for. mu guards both.
	lists map[string]progress
	sizes map[string]int
}

// progress is how far a list is.
type progress struct {
	pages int
	began time.Time
}

// listKey returns what stands for a list: all its pages have the same key.
func listKey(req *http.Request) string {
	query := req.URL.Query()
	return req.URL.Path + "?" + query.Get("labelSelector") + "&" + query.Get("fieldSelector")
}

// admit counts a request for a page of a list. It returns an error if the list has no end. The request that it returns
// asks for a smaller page if a page of this list was too large.
func (p *pages) admit(req *http.Request, c call, clock clock.PassiveClock) (*http.Request, error) {
	if c.verb != "list" {
		return req, nil
	}
	query := req.URL.Query()
	goesOn := query.Get("continue") != ""
	key := listKey(req)
	p.mu.Lock()
	defer p.mu.Unlock()
	if size := p.sizes[key]; size > 0 && pageSize(query) > size {
		query.Set("limit", strconv.Itoa(size))
		req = withQuery(req, query)
	}
	if !goesOn {
		delete(p.lists, key)
		return req, nil
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
		return req, fmt.Errorf("list %s: %w after %d pages", c.resource, ErrEndlessList, maxPages)
	case clock.Since(list.began) > maxListTime:
		return req, fmt.Errorf("list %s: %w after %s", c.resource, ErrEndlessList, maxListTime)
	}
	return req, nil
}

// shrink is called when a page was too large. From then on, a page of this list has a quarter of the objects. shrink
// returns false if the page was already so small that it always fits.
func (p *pages) shrink(req *http.Request) bool {
	size := pageSize(req.URL.Query())
	if size <= bounded.MinPageSize { // 0: the client has not asked for pages.
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sizes == nil {
		p.sizes = map[string]int{}
	}
	p.sizes[listKey(req)] = max(size/4, bounded.MinPageSize)
	return true
}

func pageSize(query url.Values) int {
	size, err := strconv.Atoi(query.Get("limit"))
	if err != nil {
		return 0
	}
	return size
}

func withQuery(req *http.Request, query url.Values) *http.Request {
	req = req.Clone(req.Context())
	req.URL.RawQuery = query.Encode()
	return req
}

// paged makes a reflector's list one that the worker answers in pages. With a resource version, API servers answer from
// their watch cache, and give everything in one page: of a large cluster that is more than an answer may have. Without
// one they answer with the latest state, which is at least as new.
func paged(req *http.Request) *http.Request {
	query := req.URL.Query()
	if query.Get("resourceVersion") == "" || query.Get("continue") != "" {
		return req
	}
	query.Del("resourceVersion")
	query.Del("resourceVersionMatch")
	return withQuery(req, query)
}

// expired is the answer to a reflector that asks for everything in one page: after a page whose Continue token has
// expired, or at a resource version. A reflector begins such a list again after this answer, with pages.
func expired(req *http.Request) *http.Response {
	const status = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,` +
		`"message":"a list without pages is not sent to workers"}`
	return &http.Response{
		Status: "410 Gone", StatusCode: http.StatusGone, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(status)),
	}
}
