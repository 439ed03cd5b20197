// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package board

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/lru"
)

// Pages that change by themselves.
const (
	fleetPage = "fleet"
	queuePage = "queue"
	jobsPage  = "jobs"
)

const (
	// usualRows is how many jobs a page has, and mostRows how many it may have.
	usualRows, mostRows = 200, 1000
	// mostPages is how many computed pages are kept beside those that are open. The largest has some hundred kilobytes.
	mostPages = 64
)

// query says what is on a page. Equal queries have equal pages.
type query struct {
	page      string
	namespace string
	// whole is true if the caller may list the jobs of all namespaces.
	whole bool
	// state, worker and text select jobs; name selects one.
	state, worker, text, name string
	rows                      int
}

func queryOf(page string, values url.Values) (query, error) {
	q := query{page: page}
	if page == fleetPage {
		return q, nil
	}
	q.namespace, q.rows = values.Get("namespace"), usualRows
	if page == queuePage {
		return q, nil
	}
	q.state, q.worker, q.text, q.name = values.Get("state"), values.Get("worker"), strings.ToLower(values.Get("text")), values.Get("name")
	if text := values.Get("rows"); text != "" {
		rows, err := strconv.Atoi(text)
		if err != nil || rows < 1 || rows > mostRows {
			return q, fmt.Errorf("rows is %q: must be a number from 1 to %d", text, mostRows)
		}
		q.rows = rows
	}
	return q, nil
}

// page is the last that was computed for a query.
type page struct {
	mu sync.Mutex
	// last under mu.
	last *content
}

// content is a page at one time. It does not change.
type content struct {
	version int64
	head    []byte
	items   []item
	// before is the content before, nil if there is none. It has no before itself.
	before *content

	wholeOnce, changeOnce sync.Once
	whole, change         []byte
}

// pages computes pages, and keeps them as long as nothing on them changes.
type pages struct {
	index *index
	// spent is told how long pages take.
	spent func(time.Duration)

	mu sync.Mutex
	// byQuery has each *page that was asked for lately. Under mu.
	byQuery *lru.Cache
}

// of returns the page of a query, which may have no content yet.
func (p *pages) of(q query) *page {
	p.mu.Lock()
	defer p.mu.Unlock()
	if found, ok := p.byQuery.Get(q); ok {
		return found.(*page)
	}
	made := &page{}
	p.byQuery.Add(q, made)
	return made
}

// get returns the present content of the page of a query.
func (p *pages) get(one *page, q query, now func() time.Time) *content {
	version := p.index.version(q)
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.last != nil && one.last.version >= version {
		return one.last
	}
	began := now()
	next := p.index.compute(q)
	p.spent(now().Sub(began))
	if one.last != nil {
		next.before = &content{version: one.last.version, head: one.last.head, items: one.last.items}
	}
	one.last = next
	return next
}

// encoded is the whole content as JSON.
func (c *content) encoded() []byte {
	c.wholeOnce.Do(func() { c.whole = document(c.head, c.items, nil) })
	return c.whole
}

// since is what has changed since an earlier content, as JSON. It is nil if nothing has.
func (c *content) since(last *content) []byte {
	if last == nil || c.before == nil || c.before.version != last.version {
		return c.encoded()
	}
	c.changeOnce.Do(func() { c.change = difference(c.before, c) })
	return c.change
}

// difference has the changed items, and the keys of all items if their order is another. Nil: nothing has changed.
func difference(before, after *content) []byte {
	known := make(map[string][]byte, len(before.items))
	for _, i := range before.items {
		known[i.key] = i.bytes
	}
	sameOrder := len(before.items) == len(after.items)
	keys, changed := make([]string, len(after.items)), []item(nil)
	for at, i := range after.items {
		keys[at] = i.key
		sameOrder = sameOrder && before.items[at].key == i.key
		if !bytes.Equal(known[i.key], i.bytes) {
			changed = append(changed, i)
		}
	}
	if sameOrder {
		if len(changed) == 0 && bytes.Equal(before.head, after.head) {
			return nil
		}
		keys = nil
	}
	return document(after.head, changed, &keys)
}

// document encodes a page. keys is nil if it has all items.
func document(head []byte, items []item, keys *[]string) []byte {
	size := len(head) + 64
	for _, i := range items {
		size += len(i.bytes) + 1
	}
	b := bytes.NewBuffer(make([]byte, 0, size))
	fmt.Fprintf(b, `{"whole":%t,"head":%s,"items":[`, keys == nil, head)
	for at, i := range items {
		if at > 0 {
			b.WriteByte(',')
		}
		b.Write(i.bytes)
	}
	b.WriteByte(']')
	if keys != nil && *keys != nil {
		order, _ := json.Marshal(*keys) // Texts can be encoded.
		fmt.Fprintf(b, `,"order":%s`, order)
	}
	b.WriteByte('}')
	return b.Bytes()
}

// servePage answers with the present content of a page.
func (b *Board) servePage(name string) func(http.ResponseWriter, *http.Request, Caller) {
	return func(w http.ResponseWriter, r *http.Request, c Caller) {
		q, ok := b.asked(w, r, c, name)
		if !ok {
			return
		}
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		//nolint:gosec // It is JSON, and its header says so.
		_, _ = w.Write(b.pages.get(b.pages.of(q), q, b.options.Clock.Now).encoded()) // The client may have gone.
	}
}

// asked returns the query of a request whose caller may have the page. Otherwise it answers the request.
func (b *Board) asked(w http.ResponseWriter, r *http.Request, c Caller, name string) (query, bool) {
	q, err := queryOf(name, r.URL.Query())
	if err != nil {
		refuse(w, http.StatusBadRequest, &problem{Error: err.Error()})
		return q, false
	}
	q, code, p := b.authorize(r.Context(), c, q)
	if p == nil {
		ctx, cancel := b.patience(r)
		defer cancel()
		if err := b.index.ready(ctx); err != nil {
			code, p = http.StatusServiceUnavailable, &problem{Error: err.Error(), Todo: "try again"}
		}
	}
	if p != nil {
		refuse(w, code, p)
		return q, false
	}
	return q, true
}
