// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package perworker

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// TestErrorsAreLogged checks that the log names the error of a reconcile and its worker. Nothing else reports them.
func TestErrorsAreLogged(t *testing.T) {
	lines := make(chan string, 100)
	log := funcr.New(func(_, line string) {
		select {
		case lines <- line:
		default: // The test has ended.
		}
	}, funcr.Options{})
	fails := reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
		return reconcile.Result{}, errors.New("the worker's words")
	})
	set := NewSet[*link](nil, log, Kind[*link]{
		Name: "kind", Concurrency: 1, Apart: true, New: func(context.Context, v1alpha1.ClusterName, *link, func() bool) (reconcile.Reconciler, error) {
			return fails, nil
		},
	})
	w, err := set.start(t.Context(), "west", &link{})
	check.Must(t, err)
	t.Cleanup(func() { set.leave("west") })
	w.instances[0].inbox.Add(types.NamespacedName{Namespace: "default", Name: "job"})
	for deadline := time.After(20 * time.Second); ; {
		select {
		case line := <-lines:
			if strings.Contains(line, "the worker's words") && strings.Contains(line, `"workerCluster"="west"`) {
				return
			}
		case <-deadline:
			t.Fatal("the error of a reconcile is not in the log with its worker")
		}
	}
}

// TestLeaveDoesNotHang checks that Leave returns while keys wait. The worker's next connection waits for Leave.
func TestLeaveDoesNotHang(t *testing.T) {
	nothing := reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil })
	set := NewSet[*link](nil, logr.Discard(), Kind[*link]{
		Name: "kind", Concurrency: 2, Apart: true, New: func(context.Context, v1alpha1.ClusterName, *link, func() bool) (reconcile.Reconciler, error) {
			return nothing, nil
		},
	})
	over := make(chan struct{})
	go func() {
		defer close(over)
		for range 500 {
			w, err := set.start(t.Context(), "west", &link{})
			if err != nil {
				t.Error(err)
				return
			}
			var adding sync.WaitGroup
			adding.Go(func() {
				for i := range 20 {
					w.instances[0].inbox.Add(types.NamespacedName{Namespace: "default", Name: strconv.Itoa(i)})
				}
			})
			set.leave("west")
			adding.Wait()
		}
	}()
	select {
	case <-over:
	case <-time.After(time.Minute):
		t.Fatal("the controllers of a worker that leaves do not end")
	}
}

// TestBusy checks that a worker is busy while as many keys wait as it reconciles at once. Others do not count.
func TestBusy(t *testing.T) {
	taken, release := make(chan struct{}, 10), make(chan struct{})
	waits := reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
		taken <- struct{}{}
		select {
		case <-release:
		case <-ctx.Done():
		}
		return reconcile.Result{}, nil
	})
	const concurrency = 2
	set := NewSet[*link](nil, logr.Discard(), Kind[*link]{
		Name: "kind", Concurrency: concurrency, Apart: true,
		New: func(context.Context, v1alpha1.ClusterName, *link, func() bool) (reconcile.Reconciler, error) {
			return waits, nil
		},
	})
	for _, name := range []v1alpha1.ClusterName{"east", "west"} {
		if _, err := set.start(t.Context(), name, &link{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { set.leave(name) })
	}
	add := func(key string) { set.Enqueue("kind", "west", types.NamespacedName{Namespace: "default", Name: key}) }
	expect := func(want bool, when string) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); set.Busy("kind", "west") != want; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s the worker is busy: %t, want %t", when, !want, want)
			}
		}
	}
	expect(false, "without a key")
	for i := range concurrency {
		add(strconv.Itoa(i))
	}
	for range concurrency {
		<-taken
	}
	expect(false, "with all keys in hand")
	add("next")
	expect(false, "with one key that nobody has in hand")
	add("more")
	expect(true, "with as many keys that nobody has in hand as there are hands")
	for _, other := range []v1alpha1.ClusterName{"east", "unknown"} {
		if set.Busy("kind", other) {
			t.Errorf("worker %q has nothing to do, and is busy", other)
		}
	}
	if set.Busy("another kind", "west") {
		t.Error("a controller that is not there is busy")
	}
	close(release)
	expect(false, "when all is done")
}

// TestKeysComeAgain checks which keys come again: those that failed, and those that are due later. An error that no retry
// can help is counted as the others are.
func TestKeysComeAgain(t *testing.T) {
	tries := map[string]int{} // Of one goroutine at a time.
	done := make(chan struct{})
	reconciler := reconcile.Func(func(_ context.Context, request reconcile.Request) (reconcile.Result, error) {
		tries[request.Name]++
		switch again := tries[request.Name] < 3; {
		case request.Name == "end":
			if tries["panics"] < 3 || tries["fails"] < 3 || tries["waits"] < 3 {
				return reconcile.Result{RequeueAfter: time.Millisecond}, nil
			}
			close(done)
		case !again:
		case request.Name == "panics":
			panic("poison")
		case request.Name == "fails":
			return reconcile.Result{}, errors.New("try again")
		case request.Name == "waits":
			return reconcile.Result{RequeueAfter: time.Millisecond}, nil
		case request.Name == "hopeless":
			return reconcile.Result{}, reconcile.TerminalError(errors.New("never"))
		}
		return reconcile.Result{}, nil
	})
	const kind, failures = "again", "controller_runtime_reconcile_errors_total"
	set := NewSet[*link](nil, logr.Discard(), Kind[*link]{
		Name: kind, Concurrency: 1, Apart: true,
		New: func(context.Context, v1alpha1.ClusterName, *link, func() bool) (reconcile.Reconciler, error) {
			return reconciler, nil
		},
	})
	_, err := set.start(t.Context(), "west", &link{})
	check.Must(t, err)
	counted := served(t, failures, kind)
	for _, key := range []string{"hopeless", "panics", "fails", "waits", "end"} {
		set.Enqueue(kind, "west", types.NamespacedName{Name: key})
	}
	select {
	case <-done:
	case <-time.After(check.Patience):
		t.Error("not all keys have come again")
	}
	set.leave("west")
	delete(tries, "end")
	check.Diff(t, map[string]int{"hopeless": 1, "panics": 3, "fails": 3, "waits": 3}, tries, "how often each key was reconciled")
	check.Equal(t, 5, served(t, failures, kind)-counted, "errors in controller-runtime's metric")
}

// served returns what the process serves as a metric of a controller.
func served(t *testing.T, name, controller string) float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	check.Must(t, err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name && m.GetLabel()[0].GetValue() == controller {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	t.Errorf("the process serves no %s of controller %q", name, controller)
	return 0
}

// TestKeysOfEndedControllersDoNotWait checks that the keys that a controller leaves behind are gone from the metric of
// keys that wait.
func TestKeysOfEndedControllersDoNotWait(t *testing.T) {
	job := types.NamespacedName{Name: "job"}
	tests := map[string]struct {
		reason  string
		sources func(v1alpha1.ClusterName, cache.Cache) []source.Source
	}{
		"CameAgain": {reason: "A key that came while it was reconciled is in the queue again when the controller has ended."},
		"SourceFailed": {
			reason: "A controller whose source fails takes no key.",
			sources: func(v1alpha1.ClusterName, cache.Cache) []source.Source {
				return []source.Source{source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
					queue.Add(reconcile.Request{NamespacedName: job})
					return errors.New("the connection has ended")
				})}
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				hangs := reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
					<-release
					return reconcile.Result{}, nil
				})
				set := NewSet[*link](nil, logr.Discard(), Kind[*link]{
					Name: name, Concurrency: 2, Apart: true, Sources: test.sources,
					New: func(context.Context, v1alpha1.ClusterName, *link, func() bool) (reconcile.Reconciler, error) {
						return hangs, nil
					},
				})
				_, err := set.start(t.Context(), "west", &link{})
				check.Must(t, err)
				set.Enqueue(name, "west", job)
				synctest.Wait()
				set.Enqueue(name, "west", job)
				go set.leave("west")
				synctest.Wait() // Only the reconcile is left.
				close(release)
			})
			check.Equal(t, 0, served(t, "workqueue_depth", name), "%s keys", test.reason)
		})
	}
}

// TestIdleWorkerCostsFewGoroutines checks that a controller without keys does not keep goroutines for them.
func TestIdleWorkerCostsFewGoroutines(t *testing.T) {
	const workers, concurrency = 20, 50
	calls := make(chan struct{}, workers)
	nothing := reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
		calls <- struct{}{}
		return reconcile.Result{}, nil
	})
	set := NewSet[*link](nil, logr.Discard(), Kind[*link]{
		Name: "kind", Concurrency: concurrency, Apart: true,
		New: func(context.Context, v1alpha1.ClusterName, *link, func() bool) (reconcile.Reconciler, error) {
			return nothing, nil
		},
	})
	before := runtime.NumGoroutine()
	for n := range workers {
		name := v1alpha1.ClusterName(strconv.Itoa(n))
		_, err := set.start(t.Context(), name, &link{})
		check.Must(t, err)
		t.Cleanup(func() { set.leave(name) })
		set.Enqueue("kind", name, types.NamespacedName{Name: "job"})
	}
	for range workers { // All run.
		<-calls
	}
	check.Eventually(t, "the goroutines of keys have ended", func(g gomega.Gomega) {
		g.Expect((runtime.NumGoroutine() - before) / workers).To(gomega.BeNumerically("<", 10))
	})
}
