// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// connections counts the open connections of a server.
type connections struct {
	mu   sync.Mutex
	open map[net.Conn]bool // under mu
}

func (c *connections) changed(connection net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[connection] = true; state == http.StateClosed || state == http.StateHijacked {
		delete(c.open, connection)
	}
}

func (c *connections) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}

// TestIdleConnectionsAreClosed: the worker sees that the connection ends when nobody has asked about it for five minutes,
// and not before. What is under way then goes on.
func TestIdleConnectionsAreClosed(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP1": false, "HTTP2": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, &workerServer{})
			seen, proceed := &connections{open: map[net.Conn]bool{}}, make(chan struct{})
			one := &workerServer{evil: func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.HasSuffix(r.URL.Path, "/log") {
					return false
				}
				_, _ = io.WriteString(w, "before\n")
				_ = http.NewResponseController(w).Flush()
				<-proceed
				_, _ = io.WriteString(w, "after\n")
				return true
			}}
			one.setDefaults()
			server := httptest.NewUnstartedServer(http.HandlerFunc(one.serve))
			server.Config.ConnState, server.Config.ErrorLog, server.EnableHTTP2 = seen.changed, log.New(io.Discard, "", 0), http2
			server.StartTLS()
			t.Cleanup(server.Close)
			clock := clocktesting.NewFakeClock(time.Now())
			config := &rest.Config{Host: server.URL, BearerToken: workerToken, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
			all := newWorkers(w.records, loader{"/east": config}, clock, time.Minute)
			connected := func() *worker {
				found, err := all.get(t.Context(), "east")
				check.Must(t, err)
				return found
			}
			read := func(path string) *http.Response {
				res, err := connected().server().get(t.Context(), path, nil, typeJSON, false)
				check.Must(t, err)
				return res
			}
			text := func(res *http.Response) string {
				defer func() { _ = res.Body.Close() }()
				body, err := io.ReadAll(res.Body)
				check.Must(t, err)
				return string(body)
			}

			text(read(podURL))
			check.Equal(t, 1, seen.count(), "connections after two requests")
			clock.Step(idleFor - time.Second)
			all.sweep()
			text(read(podURL))
			check.Equal(t, 1, seen.count(), "connections shortly before the end")
			clock.Step(idleFor + time.Second)
			all.sweep()
			check.Eventually(t, "end of the idle connection", func(g gomega.Gomega) { g.Expect(seen.count()).To(gomega.Equal(0)) })

			following := read(logURL)
			clock.Step(idleFor + time.Second)
			all.sweep()
			check.Equal(t, 0, len(all.byName), "connections that are known after nobody has used them")
			check.Equal(t, 1, seen.count(), "connections while a log is read")
			close(proceed)
			check.Equal(t, "before\nafter\n", text(following), "log whose connection was swept")
		})
	}
}

// TestSilentWorkerIsNotAskedAgainAtOnce: retryAfter counts from the end of the check, which takes as long as
// --gateway-worker-timeout. Otherwise nobody would be spared with a long timeout.
func TestSilentWorkerIsNotAskedAgainAtOnce(t *testing.T) {
	w := newWorld(t, &workerServer{})
	clock := clocktesting.NewFakeClock(time.Now())
	var asked atomic.Int32
	release := make(chan struct{})
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if asked.Add(1) == 1 {
			clock.Step(3 * retryAfter)
		}
		<-release
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(release) })
	config := &rest.Config{Host: server.URL, BearerToken: workerToken, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	all := newWorkers(w.records, loader{"/east": config}, clock, 2*time.Second)
	for step, want := range []struct {
		passed time.Duration
		asked  int32
	}{{0, 1}, {retryAfter, 1}, {time.Second, 2}} {
		clock.Step(want.passed)
		if _, err := all.get(t.Context(), "east"); err == nil {
			t.Error("a worker that hangs is used")
		}
		check.Equal(t, want.asked, asked.Load(), "how often the worker was asked after step %d", step)
	}
}

// TestSilentWorkerIsNamed: with the default of --gateway-worker-timeout, a list comes without the pods of a worker that
// hangs, and while it hangs. Its warning says in which time the worker has not answered.
func TestSilentWorkerIsNamed(t *testing.T) {
	check.Equal(t, 2*time.Second, DefaultAnswerTimeout, "time that docs/gateway.md promises")
	const list = "/api/v1/namespaces/team/pods"
	for name, tc := range map[string]struct {
		path string
		// begin is what comes before the worker hangs.
		begin string
		// again says whether the next list asks the worker again.
		again bool
	}{
		"AtOnce":          {path: "/api/v1/namespaces/kube-system"},
		"InTheList":       {path: list, again: true},
		"AfterSomeOfList": {path: list, begin: `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[`, again: true},
		"InTheJobSet":     {path: "/apis/jobset.x-k8s.io/v1alpha2/namespaces/team/jobsets/job", again: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var hangs, asked atomic.Int32
			release := make(chan struct{})
			s := &workerServer{change: func(o *Options) {
				o.AnswerTimeout, o.Clock = DefaultAnswerTimeout, clocktesting.NewFakeClock(time.Now())
			}}
			s.evil = func(w http.ResponseWriter, r *http.Request) bool {
				asked.Add(1)
				if r.URL.Path != tc.path {
					return false
				}
				hangs.Add(1)
				defer hangs.Add(-1)
				_, _ = io.WriteString(w, tc.begin)
				_ = http.NewResponseController(w).Flush()
				<-release
				return true
			}
			s.hub = func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != list {
					hubServer(w, r)
					return
				}
				answerJSON(w, map[string]any{"kind": "PodList", "apiVersion": "v1", "metadata": map[string]any{"resourceVersion": "7"}, "items": []any{
					map[string]any{"metadata": map[string]any{"namespace": "team", "name": "of-the-hub"}},
				}})
			}
			w := newWorld(t, s)
			t.Cleanup(func() { close(release) })
			for range 2 {
				before := asked.Load()
				begin := time.Now()
				a := w.send(t, http.MethodGet, list)
				if took := time.Since(begin); took > 20*time.Second {
					t.Errorf("the list has taken %s", took)
				}
				check.Equal(t, http.StatusOK, a.code, "code: %s", a.body)
				if hangs.Load() == 0 {
					t.Error("the worker does not hang")
				}
				warnings, errs := utilnet.ParseWarningHeaders(a.header.Values("Warning"))
				if len(errs) > 0 || len(warnings) != 1 || warnings[0].Text != `worker "east" does not answer in 2s` {
					t.Errorf("the warnings are %v, %v", warnings, errs)
				}
				if !strings.Contains(a.body, `"of-the-hub"`) || strings.Contains(a.body, pod) || !strings.HasSuffix(a.body, "]}\n") {
					t.Errorf("the list is %s", a.body)
				}
				if asksAgain := asked.Load() > before; before > 0 && asksAgain != tc.again {
					t.Errorf("the worker was asked again: %v, want %v", asksAgain, tc.again)
				}
			}
		})
	}
}

// TestAddressOfASilentWorker: users read that a worker does not answer and since when, and not its address.
func TestAddressOfASilentWorker(t *testing.T) {
	seen := metav1.NewTime(time.Date(2026, 11, 28, 20, 3, 11, 0, time.FixedZone("", 3600)))
	condition := func(reason string) []metav1.Condition {
		return []metav1.Condition{{Type: v1alpha1.WorkerClusterReady, Status: metav1.ConditionFalse, Reason: reason, Message: "https://192.0.2.1 says no"}}
	}
	for want, status := range map[string]v1alpha1.WorkerClusterStatus{
		`worker "east" does not answer in 2s`:                                     {},
		`worker "east" does not answer: https://192.0.2.1 says no`:                {Conditions: condition(v1alpha1.ReasonCredentialsNotFound)},
		`worker "east" does not answer, and never has`:                            {Conditions: condition(v1alpha1.ReasonUnreachable)},
		`worker "east" does not answer: it was last seen at 2026-11-28T19:03:11Z`: {Conditions: condition(v1alpha1.ReasonUnreachable), LastSeenTime: &seen},
	} {
		worker := &v1alpha1.WorkerCluster{ObjectMeta: metav1.ObjectMeta{Name: "east"}, Status: status}
		check.Equal(t, want, unanswered(worker, 2*time.Second).Error(), "what users read")
	}
}
