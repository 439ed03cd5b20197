// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package crashes

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/trainyard/trainyard/test/faults/links"
)

// Point is a write of a job's life at which the manager is killed.
type Point struct {
	// Write is the request, and Nth which one of them it is, from 1.
	Write string
	Nth   int
	// After: the API server has carried out the write. Otherwise it never gets the write.
	After bool
}

// String names the point.
func (p Point) String() string { return fmt.Sprintf("%s (%d)", p.kind(), p.Nth) }

// kind is equal for points that differ only in Nth.
func (p Point) kind() string {
	if p.After {
		return "after " + p.Write
	}
	return "before " + p.Write
}

// trap counts the writes for jobs, and kills the manager at the requested writes.
type trap struct {
	// kill ends the manager.
	kill func()

	mu      sync.Mutex
	pattern *regexp.Regexp      // of the names of jobs; under mu
	points  map[string]Point    // by job; under mu
	writes  map[string][]string // of each job, in order; under mu
	sprung  map[string]bool     // whether the manager was killed for a job; under mu
}

func newTrap(kill func()) *trap {
	return &trap{kill: kill, points: map[string]Point{}, writes: map[string][]string{}, sprung: map[string]bool{}}
}

// set makes the trap count the writes for jobs whose names begin so.
func (t *trap) set(prefix string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pattern = regexp.MustCompile(regexp.QuoteMeta(prefix) + `-\d+`)
}

// at asks for a crash.
func (t *trap) at(job string, p Point) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.points[job] = p
}

// on is the handler for the link to a cluster.
func (t *trap) on(cluster string) links.Handler {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if !concerns(r) {
			next.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		point, ok := t.count(cluster, r, body)
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		if point.After {
			// The request goes on although its sender is dead.
			next.ServeHTTP(&deaf{header: http.Header{}}, r.WithContext(context.WithoutCancel(r.Context())))
		}
		t.kill()
		panic(http.ErrAbortHandler)
	}
}

// count notes the write, and returns the point if the manager is to be killed at it.
func (t *trap) count(cluster string, r *http.Request, body []byte) (Point, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pattern == nil {
		return Point{}, false
	}
	job := t.pattern.FindString(r.URL.Path)
	if job == "" {
		job = string(t.pattern.Find(body))
	}
	if job == "" {
		return Point{}, false
	}
	text := fmt.Sprintf("%s on %s: %s", r.Method, cluster, strings.ReplaceAll(r.URL.Path, job, "JOB"))
	t.writes[job] = append(t.writes[job], text)
	point, ok := t.points[job]
	if !ok || text != point.Write || occurrences(t.writes[job], text) != point.Nth {
		return Point{}, false
	}
	t.sprung[job] = true
	return point, true
}

func occurrences(writes []string, text string) (count int) {
	for _, write := range writes {
		if write == text {
			count++
		}
	}
	return count
}

// concerns says whether a request is a write for a job. Events come in any order, and leases belong to no job.
func concerns(r *http.Request) bool {
	writes := []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}
	return slices.Contains(writes, r.Method) && !strings.Contains(r.URL.Path, "/events") && !strings.Contains(r.URL.Path, "leases") &&
		!strings.Contains(r.URL.Path, "/workerclusters")
}

// deaf takes an answer that nobody gets.
type deaf struct{ header http.Header }

// Header implements http.ResponseWriter.
func (d *deaf) Header() http.Header { return d.header }

// Write implements http.ResponseWriter.
func (d *deaf) Write(data []byte) (int, error) { return len(data), nil }

// WriteHeader implements http.ResponseWriter.
func (d *deaf) WriteHeader(int) {}

// writesOf are the writes that a job has had.
func (t *trap) writesOf(job string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.writes[job])
}

// pointOf is where the manager was to be killed for a job, and whether it was.
func (t *trap) pointOf(job string) (p Point, sprung bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.points[job], t.sprung[job]
}
