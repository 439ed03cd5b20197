// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package perworker

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
)

// link is a connection whose state the test sets.
type link struct {
	mu     sync.Mutex
	status remote.Status
}

func (l *link) Cache() cache.Cache { return nil }

func (l *link) Status() remote.Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.status
}

func (l *link) set(state remote.State, since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.status = remote.Status{State: state, Since: since}
}

// TestSweptForOneTimeOfConnection checks that a sweep counts only for its own connection. A new connection needs
// another.
func TestSweptForOneTimeOfConnection(t *testing.T) {
	first, second := time.Unix(100, 0), time.Unix(200, 0)
	connection := &link{}
	connection.set(remote.Connected, first)
	finished := 0
	w := &sweeper[*link]{
		connection: connection, clock: clocktesting.NewFakeClock(first), log: logr.Discard(),
		sweep: func(context.Context) error { return nil }, finish: func(context.Context) error { finished++; return nil },
		refused: func() bool { return false },
	}
	if w.over() {
		t.Error("swept before any sweep")
	}
	w.untilDone(t.Context())
	if !w.over() || finished != 1 {
		t.Errorf("after the sweep: over %t, keys brought %d times", w.over(), finished)
	}
	connection.set(remote.Unreachable, second)
	if w.over() {
		t.Error("swept while the worker is unreachable")
	}
	w.untilDone(t.Context())
	if finished != 1 {
		t.Error("an unreachable worker was swept")
	}
	connection.set(remote.Connected, second)
	if w.over() {
		t.Error("swept in a time of connection that has just begun")
	}
	w.untilDone(t.Context())
	if !w.over() || finished != 2 {
		t.Errorf("after the second sweep: over %t, keys brought %d times", w.over(), finished)
	}
}

// TestSweepIsTriedAgain checks that a failed sweep is retried and logged once, and that keys are enqueued only after a
// sweep. A worker that refuses the sweep gets its keys once before, so that its jobs can run elsewhere.
func TestSweepIsTriedAgain(t *testing.T) {
	for name, test := range map[string]struct {
		refused bool
		want    []string
	}{
		"Fails":   {want: []string{"sweep", "sweep", "sweep", "sweep", "finish"}},
		"Refuses": {refused: true, want: []string{"sweep", "finish", "sweep", "sweep", "sweep", "finish"}},
	} {
		t.Run(name, func(t *testing.T) { testSweepIsTriedAgain(t, test.refused, test.want) })
	}
}

func testSweepIsTriedAgain(t *testing.T, refused bool, want []string) {
	t.Helper()
	began := time.Unix(100, 0)
	connection := &link{}
	connection.set(remote.Connected, began)
	clock := clocktesting.NewFakeClock(began)
	var lines []string
	var calls []string
	sweeps := 0
	w := &sweeper[*link]{
		connection: connection, clock: clock,
		log: funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{}),
	}
	w.sweep = func(context.Context) error {
		calls = append(calls, "sweep")
		sweeps++
		if w.over() {
			t.Error("swept before the sweep has worked")
		}
		if sweeps < 4 {
			return errors.New("refused")
		}
		return nil
	}
	w.finish = func(context.Context) error { calls = append(calls, "finish"); return nil }
	w.refused = func() bool { return refused }
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.untilDone(t.Context())
	}()
	for waiting := true; waiting; {
		select {
		case <-done:
			waiting = false
		case <-time.After(time.Millisecond):
			if clock.HasWaiters() {
				clock.Step(maxBackoff)
			}
		case <-time.After(60 * time.Second):
			t.Fatal("the sweep does not end")
		}
	}
	check.Diff(t, want, calls, "calls")
	if len(lines) != 1 {
		t.Errorf("%d lines in the log, want 1: %v", len(lines), lines)
	}
}

// objects is a cache with at most one object of each kind.
type objects struct {
	cache.Cache
	dispatch *v1alpha1.Dispatch
	copy     *unstructured.Unstructured
}

// Get implements client.Reader.
func (o objects) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	switch object := object.(type) {
	case *v1alpha1.Dispatch:
		if o.dispatch != nil {
			o.dispatch.DeepCopyInto(object)
			return nil
		}
	case *unstructured.Unstructured:
		if o.copy != nil {
			o.copy.DeepCopyInto(object)
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

// unswept is a connection to a worker that has not been swept.
type unswept struct {
	link
	copies objects
}

func (u *unswept) Cache() cache.Cache { return u.copies }

// TestKeysBeforeTheSweep checks which keys a controller gets before its worker is swept: those whose copy is there, so
// that nothing can be created. The UID on record counts more than labels and annotations, which somebody may have edited.
func TestKeysBeforeTheSweep(t *testing.T) {
	for name, test := range map[string]struct {
		reason          string
		recorded        types.UID
		origin, attempt string
		absent          bool
		want            bool
	}{
		"Current":  {reason: "the hub learns the status", origin: "origin", attempt: "2", want: true},
		"Edited":   {reason: "it is the copy on record", recorded: "copy", origin: "other", attempt: "9", want: true},
		"Second":   {reason: "the attempt has had a copy", recorded: "another", origin: "origin", attempt: "2", want: true},
		"Older":    {reason: "the sweep deletes it", origin: "origin", attempt: "1"},
		"OtherJob": {reason: "the record does not speak of it", origin: "other", attempt: "2"},
		"Absent":   {reason: "one could be created", absent: true},
	} {
		t.Run(name, func(t *testing.T) {
			d := &v1alpha1.Dispatch{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "job", UID: "dispatch"},
				Spec:       v1alpha1.DispatchSpec{TrainJob: v1alpha1.TrainJobReference{UID: "origin"}, Cluster: "here", Attempt: 2},
			}
			if test.recorded != "" {
				d.Status.Attempt, d.Status.CopyUID = 2, test.recorded
				d.Status.Conditions = []metav1.Condition{{Type: v1alpha1.DispatchMirrored, Status: metav1.ConditionTrue}}
			}
			connection := &unswept{}
			if !test.absent {
				copy := trainjobs.New()
				copy.SetUID("copy")
				copy.SetLabels(map[string]string{v1alpha1.LabelHub: "hub", v1alpha1.LabelOriginUID: test.origin})
				copy.SetAnnotations(map[string]string{v1alpha1.AnnotationAttempt: test.attempt})
				connection.copies.copy = copy
			}
			passed := false
			h := held[*unswept]{
				worker: "here", hub: objects{dispatch: d}, sweeper: &sweeper[*unswept]{connection: connection},
				Reconciler: reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
					passed = true
					return reconcile.Result{}, nil
				}),
			}
			request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(d)}
			if _, err := h.Reconcile(t.Context(), request); err != nil || passed != test.want {
				t.Errorf("passed: %t, %v; want %t: %s", passed, err, test.want, test.reason)
			}
		})
	}
}
