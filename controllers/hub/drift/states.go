// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package drift

import (
	"cmp"
	"fmt"
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
	// workers, own and subscribers are under mu. The next subscriber gets the number subscriptions.
	workers map[v1alpha1.ClusterName]*worker
	// own has the comparisons of all workers that have a spec of the worker's runtime.
	own           map[types.NamespacedName]*ownRuntimes
	subscribers   map[int]subscriber
	subscriptions int
}

// subscriber is told that something else is known of a worker, and with which runtimes the worker may make other pods than
// before. It must not block.
type subscriber = func(worker v1alpha1.ClusterName, own []types.NamespacedName)

// ownRuntimes are the runtimes of one name on workers. shown is what Own has returned last, nil if something has changed
// since.
type ownRuntimes struct {
	on    map[v1alpha1.ClusterName]dispatch.Comparison
	shown *dispatch.OwnRuntimes
}

// maxSpecs is how many bytes of JSON the kept specs of a worker's runtimes may have together.
const maxSpecs = 1 << 20

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
	// specs is how many bytes the kept specs have. own are the runtimes whose pods may have changed since the last notice.
	specs int
	own   []types.NamespacedName
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
	before := w.compared[key]
	count(name, before, -1)
	count(name, comparison, 1)
	w.compared[key], w.asked[key] = comparison, with
	w.changed++
	w.noteOwn(key, &before, &comparison)
}

// noteOwn notes that another spec of a runtime is kept, if it is another.
func (w *worker) noteOwn(key types.NamespacedName, before, after *dispatch.Comparison) {
	w.specs += size(after.Own) - size(before.Own)
	if digestOf(before.Own) != digestOf(after.Own) || before.Outdated != after.Outdated && after.Own != nil {
		w.own = append(w.own, key)
	}
}

func size(spec *dispatch.RuntimeSpec) int {
	if spec == nil {
		return 0
	}
	return len(spec.JSON)
}

func digestOf(spec *dispatch.RuntimeSpec) string {
	if spec == nil {
		return ""
	}
	return spec.Digest
}

// drop forgets a runtime.
func (w *worker) drop(name v1alpha1.ClusterName, key types.NamespacedName) {
	if known, has := w.compared[key]; has {
		count(name, known, -1)
		delete(w.compared, key)
		delete(w.asked, key)
		w.changed++
		w.noteOwn(key, &known, &dispatch.Comparison{})
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

// Own returns the workers on which a runtime may make other pods than the hub's, nil if there is none. It is the same
// pointer until something changes.
func (s *States) Own(key types.NamespacedName) *dispatch.OwnRuntimes {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.own[key]
	if own == nil {
		return nil
	}
	if own.shown == nil {
		own.shown = &dispatch.OwnRuntimes{On: maps.Clone(own.on)}
	}
	return own.shown
}

// setOwn brings Own up to date with a runtime of a worker. The caller holds mu.
func (s *States) setOwn(name v1alpha1.ClusterName, key types.NamespacedName, known dispatch.Comparison) {
	own := s.own[key]
	if own == nil {
		if s.own == nil {
			s.own = map[types.NamespacedName]*ownRuntimes{}
		}
		own = &ownRuntimes{on: map[v1alpha1.ClusterName]dispatch.Comparison{}}
		s.own[key] = own
	}
	own.shown, own.on[name] = nil, known
	if known.Own == nil {
		delete(own.on, name)
	}
	if len(own.on) == 0 {
		delete(s.own, key)
	}
}

// bound lets a comparison keep its spec if the worker's specs are not too large with it. Workers with equal runtimes share
// the spec. The caller holds mu.
func (s *States) bound(w *worker, key types.NamespacedName, comparison *dispatch.Comparison) {
	switch spec := comparison.Own; {
	case spec == nil:
	case w.specs-size(w.compared[key].Own)+size(spec) > maxSpecs:
		comparison.Own = nil
		comparison.Assumed = fmt.Sprintf("the specs of the worker's runtimes that differ have more than %d bytes together, and no more are looked at", maxSpecs)
	default:
		if own := s.own[key]; own != nil {
			for _, other := range own.on {
				if other.Own.Digest == spec.Digest {
					comparison.Own = other.Own
					return
				}
			}
		}
	}
}

// Subscribe calls notify, which must not block, when something else is known of a worker. own are the runtimes with which
// the worker may make other pods than before.
func (s *States) Subscribe(notify func(worker v1alpha1.ClusterName, own []types.NamespacedName)) (cancel func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.subscribers == nil {
		s.subscribers = map[int]subscriber{}
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
	if w := s.workers[name]; w != nil {
		for key, known := range w.compared {
			if known.Own != nil {
				s.setOwn(name, key, dispatch.Comparison{})
			}
		}
	}
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

// comparedOn returns the runtimes of a worker. After it was away all of them are looked at: the hub's may have changed
// meanwhile. What is known costs no request.
func (s *States) comparedOn(name v1alpha1.ClusterName) []types.NamespacedName {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.workers[name]; w != nil {
		return slices.Collect(maps.Keys(w.compared))
	}
	return nil
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
// whether it is foreign. Until then its pods are counted as those of the version before. An outdated version has probably been
// replaced by the hub's just now.
func (s *States) seen(name v1alpha1.ClusterName, key types.NamespacedName, version string, foreign bool) {
	s.change(name, func(w *worker) {
		if _, has := w.compared[key]; !has || w.asked[key].version != version {
			before := w.compared[key]
			w.set(name, key, dispatch.Comparison{
				Foreign: foreign, Outdated: before.Outdated, Own: before.Own, Assumed: before.Assumed,
			}, asked{version: version})
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
			s.bound(w, key, &comparison)
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
	var all []subscriber
	if w.changed != before {
		w.shown = nil
		all = slices.Collect(maps.Values(s.subscribers))
	}
	own := w.own
	w.own = nil
	for _, key := range own {
		s.setOwn(name, key, w.compared[key])
	}
	s.mu.Unlock()
	for _, tell := range all {
		tell(name, own)
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
