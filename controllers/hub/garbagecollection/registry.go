// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/remote"
)

// unknownCopy is a copy that the hub seems to have no record of.
type unknownCopy struct {
	uid, origin types.UID
	attempt     int32
	// found: the copy existed at the first sweep of this process. since is when this process first saw the copy.
	found bool
	since time.Time
	// certain: this process has asked the API servers of hub and worker, and the copy stays.
	certain bool
	// why says why the manager does not adopt the copy although its attempt is later than the hub knows.
	why reason
	// reported: an Event has reported the copy. refusal is the last reported reason why a decision is not carried out.
	reported bool
	refusal  string
}

// registry knows the unknown copies of all workers.
type registry struct {
	mu sync.Mutex
	// copies has the unknown copies by key and worker. A copy has the key of its job. Under mu.
	copies map[types.NamespacedName]map[v1alpha1.ClusterName]unknownCopy
	// byWorker has what is known of each worker. Under mu.
	byWorker map[v1alpha1.ClusterName]*perWorker
	// subscribers has the callbacks by number. last is the highest number. Under mu.
	subscribers map[int]func(types.NamespacedName)
	last        int
}

// perWorker is what is known of one worker.
type perWorker struct {
	keys map[types.NamespacedName]struct{}
	// swept: this process has listed the copies at the worker's API server.
	swept bool
	// refusal is why the worker refused the last sweep. failing is since when sweeps have failed. Zero: the last one
	// worked.
	refusal sweepRefusal
	failing time.Time
}

// change is what the registry has to report after a change. keys are the keys of copies that appeared or disappeared,
// and an empty key for a worker that was swept for the first time.
type change struct {
	keys []types.NamespacedName
	// certain: copies that are certainly unknown have appeared, disappeared or changed.
	certain bool
}

func newRegistry() registry {
	return registry{
		copies:      map[types.NamespacedName]map[v1alpha1.ClusterName]unknownCopy{},
		byWorker:    map[v1alpha1.ClusterName]*perWorker{},
		subscribers: map[int]func(types.NamespacedName){},
	}
}

// of returns the first worker by name whose copy may be this job: it has this origin, or it is certainly unknown and was
// found. A hub that was restored may have the job anew, with another UID, and its copy was there before. A copy that
// appears later has a record, or no hub has asked for it: a worker that lies must not keep jobs waiting by their names.
func (r *registry) of(key types.NamespacedName, origin types.UID) (worker v1alpha1.ClusterName, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, s := range r.copies[key] {
		if (s.origin == origin || s.certain && s.found && !s.why.stays()) && !s.why.isFalse() && (!ok || name < worker) {
			worker, ok = name, true
		}
	}
	return worker, ok
}

// otherAttempt is the highest attempt of unknown copies on other workers that may be the job of this origin, 0 if there
// is none.
func (r *registry) otherAttempt(key types.NamespacedName, origin types.UID, worker v1alpha1.ClusterName) int32 {
	highest, _ := r.highest(key, origin, worker, func(s unknownCopy) bool {
		return !s.why.stays() && s.why.name != v1alpha1.ReasonAttemptTooHigh
	})
	return highest
}

// runningAttempt is the highest attempt of unknown copies on other workers that may run, and the first such worker by
// name.
func (r *registry) runningAttempt(key types.NamespacedName, origin types.UID, worker v1alpha1.ClusterName) (highest int32, at v1alpha1.ClusterName) {
	return r.highest(key, origin, worker, func(s unknownCopy) bool { return !s.why.isFalse() })
}

func (r *registry) highest(
	key types.NamespacedName, origin types.UID, worker v1alpha1.ClusterName, counts func(unknownCopy) bool,
) (highest int32, at v1alpha1.ClusterName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, s := range r.copies[key] {
		if name == worker || s.origin != origin || s.attempt < highest || !counts(s) {
			continue
		}
		if s.attempt > highest || name < at {
			highest, at = s.attempt, name
		}
	}
	return highest, at
}

// get returns what is known of a copy, and false if the copy is not unknown.
func (r *registry) get(worker v1alpha1.ClusterName, key types.NamespacedName) (unknownCopy, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.copies[key][worker]
	return s, ok
}

func (r *registry) put(worker v1alpha1.ClusterName, key types.NamespacedName, s unknownCopy) change {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, known := r.copies[key][worker]
	if known && before == s {
		return change{}
	}
	r.set(worker, key, s)
	return change{keys: []types.NamespacedName{key}, certain: before.certain || s.certain}
}

// drop removes a copy that is known now, or gone.
func (r *registry) drop(worker v1alpha1.ClusterName, key types.NamespacedName) change {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, known := r.copies[key][worker]
	if !known {
		return change{}
	}
	r.unset(worker, key)
	return change{keys: []types.NamespacedName{key}, certain: before.certain}
}

// sweep records all unknown copies that a worker's API server has listed. It keeps what is already known of them. It
// also keeps those not listed: the reconciler finds out whether they and their pods are gone.
func (r *registry) sweep(worker v1alpha1.ClusterName, all map[types.NamespacedName]unknownCopy) change {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.on(worker)
	var c change
	if !w.swept {
		w.swept = true
		// The status has to be compared once, even if no copy is unknown.
		c = change{certain: true, keys: []types.NamespacedName{{}}}
	}
	for key, s := range all {
		if before, known := r.copies[key][worker]; !known || before.uid != s.uid {
			c.keys = append(c.keys, key)
			c.certain = c.certain || before.certain
			r.set(worker, key, s)
		}
	}
	return c
}

// recall takes in the unknown copies from the status of a worker that this process has not looked at.
func (r *registry) recall(worker v1alpha1.ClusterName, listed []v1alpha1.UnknownCopy, now time.Time) change {
	r.mu.Lock()
	defer r.mu.Unlock()
	var c change
	if r.on(worker).swept {
		return c
	}
	for _, copy := range listed {
		key := types.NamespacedName{Namespace: copy.Namespace, Name: copy.Name}
		if _, known := r.copies[key][worker]; !known {
			r.set(worker, key, unknownCopy{
				uid: copy.UID, origin: copy.OriginUID, attempt: copy.Attempt, certain: true, reported: true,
				found: true, since: now, why: reason{copy.Reason, copy.Message},
			})
			c.keys = append(c.keys, key)
		}
	}
	return c
}

// forget removes all unknown copies of a worker.
func (r *registry) forget(worker v1alpha1.ClusterName) change {
	r.mu.Lock()
	defer r.mu.Unlock()
	var c change
	for key := range maps.Clone(r.on(worker).keys) {
		c.keys = append(c.keys, key)
		r.unset(worker, key)
	}
	delete(r.byWorker, worker)
	return c
}

// certain returns the certainly unknown copies of a worker, by namespace and name. swept is false until this process
// has listed the copies at the worker's API server.
func (r *registry) certain(worker v1alpha1.ClusterName) (all []v1alpha1.UnknownCopy, swept bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.byWorker[worker]
	if w == nil {
		return nil, false
	}
	for key := range w.keys {
		if s := r.copies[key][worker]; s.certain && canShow(key, s) {
			all = append(all, v1alpha1.UnknownCopy{
				Namespace: key.Namespace, Name: key.Name, UID: s.uid, OriginUID: s.origin, Attempt: s.attempt,
				Reason: s.why.name, Message: s.why.message,
			})
		}
	}
	slices.SortFunc(all, func(a, b v1alpha1.UnknownCopy) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return all, w.swept
}

// keysOf returns the keys of a worker's unknown copies.
func (r *registry) keysOf(worker v1alpha1.ClusterName) []types.NamespacedName {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.byWorker[worker]; w != nil {
		return slices.Collect(maps.Keys(w.keys))
	}
	return nil
}

// workersOf returns the workers with an unknown copy of that key.
func (r *registry) workersOf(key types.NamespacedName) []v1alpha1.ClusterName {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.copies[key]))
}

// note keeps why a worker refused a sweep, and returns true if that has changed.
func (r *registry) note(worker v1alpha1.ClusterName, refusal sweepRefusal) (changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.on(worker)
	changed = w.refusal != refusal
	w.refusal = refusal
	return changed
}

// failing takes in the result of a sweep, and returns true if sweeps have failed for failingTime.
func (r *registry) failing(worker v1alpha1.ClusterName, err error, now time.Time) (lasting bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.on(worker)
	switch {
	case err == nil, remote.IsNotConnected(err), errors.Is(err, context.Canceled):
		w.failing = time.Time{}
	case w.failing.IsZero():
		w.failing = now
	}
	return !w.failing.IsZero() && now.Sub(w.failing) >= failingTime
}

// refusal returns why a worker refused the last sweep.
func (r *registry) refusal(worker v1alpha1.ClusterName) sweepRefusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.byWorker[worker]; w != nil {
		return w.refusal
	}
	return sweepRefusal{}
}

// isSwept is true if this process has listed the copies at the worker's API server.
func (r *registry) isSwept(worker v1alpha1.ClusterName) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.byWorker[worker]
	return w != nil && w.swept
}

// report returns true the first time that it is called for a certain copy.
func (r *registry) report(worker v1alpha1.ClusterName, copy v1alpha1.UnknownCopy) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := types.NamespacedName{Namespace: copy.Namespace, Name: copy.Name}
	s, ok := r.copies[key][worker]
	if !ok || s.reported || s.uid != copy.UID {
		return false
	}
	s.reported = true
	r.copies[key][worker] = s
	return true
}

// refuse keeps why the decision on a copy is not carried out, and returns true if that has changed.
func (r *registry) refuse(worker v1alpha1.ClusterName, key types.NamespacedName, refusal string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.copies[key][worker]
	if !ok || s.refusal == refusal {
		return false
	}
	s.refusal = refusal
	r.copies[key][worker] = s
	return true
}

// subscribe lets the registry's owner call f with each key whose copy has appeared or disappeared.
func (r *registry) subscribe(f func(types.NamespacedName)) (cancel func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	number := r.last
	r.subscribers[number] = f
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.subscribers, number)
	}
}

func (r *registry) listeners() []func(types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.subscribers))
}

// on returns what is known of a worker. on, set and unset are called under mu.
func (r *registry) on(worker v1alpha1.ClusterName) *perWorker {
	w := r.byWorker[worker]
	if w == nil {
		w = &perWorker{keys: map[types.NamespacedName]struct{}{}}
		r.byWorker[worker] = w
	}
	return w
}

func (r *registry) set(worker v1alpha1.ClusterName, key types.NamespacedName, s unknownCopy) {
	if r.copies[key] == nil {
		r.copies[key] = map[v1alpha1.ClusterName]unknownCopy{}
	}
	r.copies[key][worker] = s
	r.on(worker).keys[key] = struct{}{}
}

func (r *registry) unset(worker v1alpha1.ClusterName, key types.NamespacedName) {
	delete(r.copies[key], worker)
	if len(r.copies[key]) == 0 {
		delete(r.copies, key)
	}
	delete(r.on(worker).keys, key)
}
