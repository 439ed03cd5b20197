// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// entry is an object of a list as the client gets it.
type entry struct {
	// name is namespace and name, empty if the client does not want to know.
	name string
	raw  json.RawMessage
}

// chunk is a page of a list as the client gets it.
type chunk struct {
	head    fields
	entries []entry
	version string
	next    string
}

// setHead gives a list its version, and removes from a whole list what says that more pages follow.
func (c *chunk) setHead(version versions, whole bool) error {
	return c.head.edit("metadata", func(metadata fields) error {
		if whole {
			delete(metadata, "continue")
			delete(metadata, "remainingItemCount")
		}
		return metadata.set("resourceVersion", version.String())
	})
}

// part is what one worker shows of a list.
type part struct {
	worker *worker
	query  url.Values
	first  *chunk
	err    error
}

// list answers with what the hub lists, followed by what workers list. The hub's answer to the caller decides whether
// the caller may list at all.
func (g *Gateway) list(w http.ResponseWriter, q *question) {
	query, names := q.hubQuery(), g.targets(q)
	whole := query.Get("continue") == "" && (len(names) > 0 || isAll(query.Get("limit")))
	if whole {
		inPages(query)
	} else {
		names = nil // The pages are the hub's own. A list with more than these has one page.
	}
	first, ok := g.hubList(w, q, query)
	if !ok {
		return
	}
	if !whole {
		first.next = "" // The caller asks for it.
	}
	parts := g.ask(q, names)
	version := versions{ofHub: first.version}
	for _, p := range parts {
		if p.err == nil && p.first != nil && !sameColumns(first.head, p.first.head) {
			p.err = unusable("worker %q prints other columns than the hub: use -o json", p.worker.name)
		}
		if p.err != nil {
			warn(w, p.err.Error())
		} else if p.first != nil {
			version[p.worker.name] = p.first.version
		}
	}
	if words := g.waits(q); words != "" {
		warn(w, words)
	}
	if err := first.setHead(version, whole); err != nil {
		fail(w, unavailable("the hub's answer cannot be used: %v", err))
		return
	}
	g.write(w, q, first, query, parts)
}

// isAll says whether a limit is none.
func isAll(limit string) bool { return limit == "" || limit == "0" }

// inPages changes the query of a list so that the hub answers with pages, and not all of a large list is in memory at a
// time. A list at a version has one page: with a limit, an API server takes it for a list at exactly this version.
func inPages(query url.Values) {
	query.Del("limit")
	if match := query.Get("resourceVersionMatch"); query.Get("resourceVersion") == "0" && match != string(metav1.ResourceVersionMatchExact) {
		query.Del("resourceVersion") // Any version will do, and the cache of an API server has no pages.
		query.Del("resourceVersionMatch")
	}
	if query.Get("resourceVersion") == "" {
		query.Set("limit", strconv.Itoa(pageSize))
	}
}

// hubList asks the hub. If the hub refuses, the caller gets the hub's words, and ok is false.
func (g *Gateway) hubList(w http.ResponseWriter, q *question, query url.Values) (first *chunk, ok bool) {
	res, err := g.hub.as(q.caller).get(q.ctx, q.info.Path, query, q.form.accept, false)
	if err != nil {
		fail(w, unavailable("the hub does not answer: %v", err))
		return nil, false
	}
	if res.StatusCode != http.StatusOK {
		relay(w, res)
		return nil, false
	}
	if first, err = q.ofHub(res); err != nil {
		fail(w, unavailable("the hub's answer cannot be used: %v", err))
	}
	return first, err == nil
}

// ofHub reads a page of the hub.
func (q *question) ofHub(res *http.Response) (*chunk, error) {
	found, err := readPage(res)
	if err != nil {
		return nil, err
	}
	return q.encode(found)
}

// hubPage asks the hub for a page that follows another one.
func (g *Gateway) hubPage(q *question, query url.Values, next string) (*chunk, error) {
	query = maps.Clone(query)
	query.Set("continue", next)
	res, err := g.hub.as(q.caller).get(q.ctx, q.info.Path, query, q.form.accept, false)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		return nil, refusal(statusOf(res))
	}
	return q.ofHub(res)
}

// ask reads the first page of each worker.
func (g *Gateway) ask(q *question, names []v1alpha1.ClusterName) []*part {
	parts := make([]*part, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		parts[i] = &part{}
		all.Go(func() {
			ctx, cancel := context.WithTimeout(q.ctx, g.workers.timeout)
			defer cancel()
			if err := guarded(func() error { return g.begin(ctx, q, name, parts[i]) }); err != nil {
				parts[i].err = g.workers.explain(ctx, name, err)
			}
		})
	}
	all.Wait()
	return parts
}

// begin reads the first page of a worker, together with all who ask the same.
func (g *Gateway) begin(ctx context.Context, q *question, name v1alpha1.ClusterName, p *part) (err error) {
	if p.worker, err = g.workers.get(ctx, name); err != nil {
		return err
	}
	var wanted bool
	if p.query, wanted = q.workerQuery(ctx, p.worker); !wanted {
		return nil
	}
	key := fmt.Sprint(p.worker.clusterID, q.info.Path, p.query.Encode(), q.form, q.include)
	p.first, err = g.lists.get(ctx, key, func(ctx context.Context) (*chunk, error) {
		return g.page(ctx, q, p.worker, p.query, "")
	})
	return err
}

// page reads a page of a worker, and leaves out what the caller is not shown.
func (g *Gateway) page(ctx context.Context, q *question, w *worker, query url.Values, next string) (*chunk, error) {
	found, err := g.found(ctx, q, w, query, next)
	if err != nil {
		return nil, err
	}
	kept := found.items[:0]
	for _, o := range found.items {
		b, ours := q.kind.of(w, o.object)
		if !ours {
			continue
		}
		d := g.copies.shows(ctx, w.name, b)
		if d == nil {
			continue
		}
		if err := q.dress(d, o.object, versions{w.name: o.meta.ResourceVersion}); err != nil {
			return nil, err
		}
		kept = append(kept, o)
	}
	found.items = kept
	return q.encode(found)
}

// found reads a page of a worker, and learns whose the objects are.
func (g *Gateway) found(ctx context.Context, q *question, w *worker, query url.Values, next string) (*page, error) {
	query = maps.Clone(query)
	query.Set("limit", strconv.Itoa(pageSize))
	if next != "" {
		query.Set("continue", next)
	}
	res, err := w.server().get(ctx, q.info.Path, query, q.form.ofList(), false)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		return nil, refusal(statusOf(res))
	}
	found, err := readPage(res)
	if err != nil {
		return nil, err
	}
	return found, q.kind.learn(ctx, w, q.asked.namespace, found.items)
}

// dress changes an object of a worker so that it looks as if it were one of the hub.
func (q *question) dress(d *v1alpha1.Dispatch, o *object, version versions) error {
	if err := q.kind.edit(d, o); err != nil {
		return err
	}
	return o.mark(d.Spec.Cluster, version.String())
}

// encode makes what the client gets of a page.
func (q *question) encode(p *page) (*chunk, error) {
	c := &chunk{head: p.head, version: p.version, next: p.next, entries: make([]entry, 0, len(p.items))}
	for _, o := range p.items {
		if _, err := q.kind.fill(o.object); err != nil {
			return nil, err
		}
		e := entry{raw: o.encode(q.include)}
		if o.meta.Name != "" {
			e.name = o.meta.Namespace + "/" + o.meta.Name
		}
		c.entries = append(c.entries, e)
	}
	return c, nil
}

// write sends the list. After its beginning only a broken connection can say that something is missing.
func (g *Gateway) write(w http.ResponseWriter, q *question, first *chunk, query url.Values, parts []*part) {
	w.Header().Set("Content-Type", typeJSON)
	l := &listWriter{out: bufio.NewWriterSize(w, 64<<10), seen: map[string]bool{}}
	l.begin(first.head, q.form.items())
	l.pages(first, func(next string) (*chunk, error) { return g.hubPage(q, query, next) })
	for _, p := range parts {
		if p.err == nil && p.first != nil {
			l.pages(p.first, func(next string) (*chunk, error) {
				ctx, cancel := context.WithTimeout(q.ctx, g.workers.timeout)
				defer cancel()
				return g.page(ctx, q, p.worker, p.query, next)
			})
		}
	}
	if l.end() != nil {
		panic(http.ErrAbortHandler)
	}
}

// listWriter writes a list, each name once: a client keeps one of two.
type listWriter struct {
	out   *bufio.Writer
	seen  map[string]bool
	count int
	err   error
}

func (l *listWriter) text(format string, values ...any) {
	if l.err == nil {
		_, l.err = fmt.Fprintf(l.out, format, values...)
	}
}

func (l *listWriter) begin(head fields, items string) {
	l.text("{")
	for _, name := range slices.Sorted(maps.Keys(head)) {
		l.text("%q:%s,", name, head[name])
	}
	l.text("%q:[", items)
}

// pages adds a page and all that follow it.
func (l *listWriter) pages(page *chunk, more func(next string) (*chunk, error)) {
	for l.err == nil {
		if l.add(page.entries); page.next == "" {
			return
		}
		page, l.err = more(page.next)
	}
}

func (l *listWriter) add(entries []entry) {
	for _, e := range entries {
		if e.name != "" && l.seen[e.name] {
			continue
		}
		if l.count > 0 {
			l.text(",")
		}
		l.seen[e.name] = true
		l.count++
		l.text("%s", e.raw)
	}
}

func (l *listWriter) end() error {
	l.text("]}\n")
	if l.err == nil {
		l.err = l.out.Flush()
	}
	return l.err
}

// sameColumns says whether the rows of two tables fit into one. Lists have no columns.
func sameColumns(a, b fields) bool {
	var names [2][]struct {
		Name string `json:"name"`
	}
	for i, head := range []fields{a, b} {
		if raw := head["columnDefinitions"]; raw != nil && json.Unmarshal(raw, &names[i]) != nil {
			return false
		}
	}
	return slices.Equal(names[0], names[1])
}
