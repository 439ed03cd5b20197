// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package drift

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
)

// onlyOnWorker is the version of a comparison with a runtime that the hub does not have.
const onlyOnWorker = "none"

// States are what is known of the runtimes of all workers. Its methods may be called concurrently.
type States struct {
	// HubID is in the labels of runtimes that the manager has made. It is required.
	HubID string

	mu sync.Mutex
	// workers and subscribers are under mu. The next subscriber gets the number subscriptions.
	workers       map[v1alpha1.ClusterName]*worker
	subscribers   map[int]func(v1alpha1.ClusterName)
	subscriptions int
}

// worker is what is known of one worker.
type worker struct {
	compared map[types.NamespacedName]dispatch.Comparison
	// asked says about each runtime which version the worker has, and when that was compared.
	asked map[types.NamespacedName]asked
	// listed: the worker has no other runtimes.
	listed bool
	// changed counts the changes. shown is what Of has returned last, nil if something has changed since.
	changed int
	shown   *dispatch.Runtimes
}

// asked is a question to a worker.
type asked struct {
	// version of the worker's runtime, "<UID>.<generation>".
	version string
	// at is when the worker has answered, zero if it has not.
	at time.Time
}

// set changes what is known of a runtime.
func (w *worker) set(name v1alpha1.ClusterName, key types.NamespacedName, comparison dispatch.Comparison, with asked) {
	count(name, w.compared[key], -1)
	count(name, comparison, 1)
	w.compared[key], w.asked[key] = comparison, with
	w.changed++
}

// drop forgets a runtime.
func (w *worker) drop(name v1alpha1.ClusterName, key types.NamespacedName) {
	if known, has := w.compared[key]; has {
		count(name, known, -1)
		delete(w.compared, key)
		delete(w.asked, key)
		w.changed++
	}
}

// setListed says whether the worker has no other runtimes.
func (w *worker) setListed(listed bool) {
	if w.listed != listed {
		w.listed = listed
		w.changed++
	}
}

// Of returns what is known of a worker, nil for nothing. It is the same pointer until something changes.
func (s *States) Of(name v1alpha1.ClusterName) *dispatch.Runtimes {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.workers[name]
	if w == nil {
		return nil
	}
	if w.shown == nil {
		w.shown = dispatch.NewRuntimes(maps.Clone(w.compared), w.listed)
	}
	return w.shown
}

// Subscribe calls notify, which must not block, when something else is known of a worker.
func (s *States) Subscribe(notify func(worker v1alpha1.ClusterName)) (cancel func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.subscribers == nil {
		s.subscribers = map[int]func(v1alpha1.ClusterName){}
	}
	number := s.subscriptions
	s.subscriptions++
	s.subscribers[number] = notify
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.subscribers, number)
	}
}

// Forget drops what is known of a worker that is not registered any more.
func (s *States) Forget(name v1alpha1.ClusterName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.workers, name)
	forgetMetrics(name)
}

// having returns the workers that have a runtime.
func (s *States) having(key types.NamespacedName) (names []v1alpha1.ClusterName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, w := range s.workers {
		if _, has := w.compared[key]; has {
			names = append(names, name)
		}
	}
	return names
}

// unanswered returns the runtimes of a worker that have to be asked about after it was away: those that are not compared,
// and those about which it refused to say anything.
func (s *States) unanswered(name v1alpha1.ClusterName) (keys []types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.workers[name]; w != nil {
		for key, known := range w.compared {
			if known.Version == "" || known.State == v1alpha1.RuntimeUnknown {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// of returns what is known of one runtime of a worker.
func (s *States) of(name v1alpha1.ClusterName, key types.NamespacedName) (dispatch.Comparison, asked) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.workers[name]
	if w == nil {
		return dispatch.Comparison{}, asked{}
	}
	return w.compared[key], w.asked[key]
}

// seen notes that a worker has a runtime in a version. If that version has not been compared, nothing else is known of it than
// whether it is foreign.
func (s *States) seen(name v1alpha1.ClusterName, key types.NamespacedName, version string, foreign bool) {
	s.change(name, func(w *worker) {
		if _, has := w.compared[key]; !has || w.asked[key].version != version {
			w.set(name, key, dispatch.Comparison{Foreign: foreign}, asked{version: version})
		}
	})
}

// gone notes that a worker does not have a runtime.
func (s *States) gone(name v1alpha1.ClusterName, key types.NamespacedName) {
	s.change(name, func(w *worker) { w.drop(name, key) })
}

// compared notes a comparison with a version of the worker's runtime. Of a version that the worker does not have any more
// it says nothing: the event of the change has brought the key again.
func (s *States) compared(name v1alpha1.ClusterName, key types.NamespacedName, comparison dispatch.Comparison, with asked) {
	s.change(name, func(w *worker) {
		if w.asked[key].version == with.version {
			w.set(name, key, comparison, with)
		}
	})
}

// begin notes that the runtimes of a worker are being listed.
func (s *States) begin(name v1alpha1.ClusterName) {
	s.change(name, func(w *worker) { w.setListed(false) })
}

// listed notes that a worker has no runtimes but these.
func (s *States) listed(name v1alpha1.ClusterName, has func(types.NamespacedName) bool) {
	s.change(name, func(w *worker) {
		for key := range w.compared {
			if !has(key) {
				w.drop(name, key)
			}
		}
		w.setListed(true)
	})
}

// change changes what is known of a worker, and tells the subscribers if something has changed.
func (s *States) change(name v1alpha1.ClusterName, change func(*worker)) {
	s.mu.Lock()
	w := s.workers[name]
	if w == nil {
		if s.workers == nil {
			s.workers = map[v1alpha1.ClusterName]*worker{}
		}
		w = &worker{compared: map[types.NamespacedName]dispatch.Comparison{}, asked: map[types.NamespacedName]asked{}}
		s.workers[name] = w
		showMetrics(name)
	}
	before := w.changed
	change(w)
	var notify []func(v1alpha1.ClusterName)
	if w.changed != before {
		w.shown = nil
		notify = slices.Collect(maps.Values(s.subscribers))
	}
	s.mu.Unlock()
	for _, f := range notify {
		f(name)
	}
}

// Status returns what a status says of a worker: its runtimes that are not known to be the hub's, sorted. before is what
// it said until now. That stays for a runtime which is being compared, as after a start of the manager, and it has since
// when a state is known.
func (s *States) Status(name v1alpha1.ClusterName, before []v1alpha1.WorkerRuntime, now time.Time) []v1alpha1.WorkerRuntime {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.workers[name]
	if w == nil {
		return before
	}
	earlier := map[types.NamespacedName]v1alpha1.WorkerRuntime{}
	for _, runtime := range before {
		earlier[types.NamespacedName{Namespace: runtime.Namespace, Name: runtime.Name}] = runtime
	}
	var all []v1alpha1.WorkerRuntime
	for key, known := range w.compared {
		was, is := earlier[key]
		switch {
		case known.Version == "" && is:
			all = append(all, was)
		case isShown(&known):
			all = append(all, shown(key, &known, was, now))
		}
	}
	for key, was := range earlier {
		if _, has := w.compared[key]; !has && !w.listed {
			all = append(all, was)
		}
	}
	slices.SortFunc(all, func(a, b v1alpha1.WorkerRuntime) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return slices.Clip(all[:min(len(all), v1alpha1.MaxWorkerRuntimes)])
}

// isShown says whether an admin should know of a comparison. A runtime that the manager has made from an earlier version
// of the hub's is replaced when a job needs it.
func isShown(known *dispatch.Comparison) bool {
	return known.State != "" && (known.State != v1alpha1.RuntimeDiffers || !known.Outdated)
}

func shown(key types.NamespacedName, known *dispatch.Comparison, was v1alpha1.WorkerRuntime, now time.Time) v1alpha1.WorkerRuntime {
	since := was.Since
	if was.State != known.State {
		since = metav1.NewTime(now)
	}
	return v1alpha1.WorkerRuntime{
		Kind: kindOf(key), Namespace: key.Namespace, Name: key.Name, State: known.State, Paths: known.Paths, Message: known.Message,
		Since: since,
	}
}

// kindOf returns the kind of a runtime with this key: only a TrainingRuntime has a namespace.
func kindOf(key types.NamespacedName) string {
	if key.Namespace == "" {
		return trainer.ClusterTrainingRuntimeKind
	}
	return trainer.TrainingRuntimeKind
}
