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

// suspect is a copy that the hub seems to have no record of.
type suspect struct {
	uid, origin types.UID
	attempt     int32
	// found: the copy existed at the first sweep of this process. since is when this process first saw the copy.
	found bool
	since time.Time
	// certain: this process has asked the API servers of hub and worker, and the copy stays.
	certain bool
	// doubt is why the manager does not adopt the copy although its attempt is later than the hub knows.
	doubt doubt
	// told: an Event has reported the copy. refusal is the last reported reason why a decision is not carried out.
	told    bool
	refusal string
}

// registry knows the suspects of all workers.
type registry struct {
	mu sync.Mutex
	// copies has the suspects by key and worker. A copy has the key of its job. Under mu.
	copies map[types.NamespacedName]map[v1alpha1.ClusterName]suspect
	// wards has what is known of each worker. Under mu.
	wards map[v1alpha1.ClusterName]*ward
	// subscribers has the callbacks by number. last is the highest number. Under mu.
	subscribers map[int]func(types.NamespacedName)
	last        int
}

// ward is what is known of one worker.
type ward struct {
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
		copies:      map[types.NamespacedName]map[v1alpha1.ClusterName]suspect{},
		wards:       map[v1alpha1.ClusterName]*ward{},
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
		if (s.origin == origin || s.certain && s.found && !s.doubt.stays()) && !s.doubt.isFalse() && (!ok || name < worker) {
			worker, ok = name, true
		}
	}
	return worker, ok
}

// rival is the highest attempt of unknown copies on other workers that may be the job of this origin, 0 if there is
// none.
func (r *registry) rival(key types.NamespacedName, origin types.UID, worker v1alpha1.ClusterName) int32 {
	highest, _ := r.highest(key, origin, worker, func(s suspect) bool {
		return !s.doubt.stays() && s.doubt.reason != v1alpha1.ReasonAttemptTooHigh
	})
	return highest
}

// rivalOf is the highest attempt of unknown copies on other workers that may run, and the first such worker by name.
func (r *registry) rivalOf(key types.NamespacedName, origin types.UID, worker v1alpha1.ClusterName) (highest int32, at v1alpha1.ClusterName) {
	return r.highest(key, origin, worker, func(s suspect) bool { return !s.doubt.isFalse() })
}

func (r *registry) highest(
	key types.NamespacedName, origin types.UID, worker v1alpha1.ClusterName, counts func(suspect) bool,
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

// get returns what is known of a copy, and false if the copy is no suspect.
func (r *registry) get(worker v1alpha1.ClusterName, key types.NamespacedName) (suspect, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.copies[key][worker]
	return s, ok
}

func (r *registry) put(worker v1alpha1.ClusterName, key types.NamespacedName, s suspect) change {
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

// sweep takes in all suspects that a worker's API server has listed. It keeps what is known of the suspects. It also
// keeps those not listed: the reconciler finds out whether they and their pods are gone.
func (r *registry) sweep(worker v1alpha1.ClusterName, all map[types.NamespacedName]suspect) change {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.ward(worker)
	var c change
	if !w.swept {
		w.swept = true
		// The status has to be compared once, even if there is no suspect.
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
	if r.ward(worker).swept {
		return c
	}
	for _, copy := range listed {
		key := types.NamespacedName{Namespace: copy.Namespace, Name: copy.Name}
		if _, known := r.copies[key][worker]; !known {
			r.set(worker, key, suspect{
				uid: copy.UID, origin: copy.OriginUID, attempt: copy.Attempt, certain: true, told: true,
				found: true, since: now, doubt: doubt{copy.Reason, copy.Message},
			})
			c.keys = append(c.keys, key)
		}
	}
	return c
}

// forget removes all suspects of a worker.
func (r *registry) forget(worker v1alpha1.ClusterName) change {
	r.mu.Lock()
	defer r.mu.Unlock()
	var c change
	for key := range maps.Clone(r.ward(worker).keys) {
		c.keys = append(c.keys, key)
		r.unset(worker, key)
	}
	delete(r.wards, worker)
	return c
}

// certain returns the certainly unknown copies of a worker, by namespace and name. swept is false until this process
// has listed the copies at the worker's API server.
func (r *registry) certain(worker v1alpha1.ClusterName) (all []v1alpha1.UnknownCopy, swept bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.wards[worker]
	if w == nil {
		return nil, false
	}
	for key := range w.keys {
		if s := r.copies[key][worker]; s.certain && canShow(key, s) {
			all = append(all, v1alpha1.UnknownCopy{
				Namespace: key.Namespace, Name: key.Name, UID: s.uid, OriginUID: s.origin, Attempt: s.attempt,
				Reason: s.doubt.reason, Message: s.doubt.message,
			})
		}
	}
	slices.SortFunc(all, func(a, b v1alpha1.UnknownCopy) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return all, w.swept
}

// keysOf returns the keys of a worker's suspects.
func (r *registry) keysOf(worker v1alpha1.ClusterName) []types.NamespacedName {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.wards[worker]; w != nil {
		return slices.Collect(maps.Keys(w.keys))
	}
	return nil
}

// workersOf returns the workers with a suspect of that key.
func (r *registry) workersOf(key types.NamespacedName) []v1alpha1.ClusterName {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.copies[key]))
}

// note keeps why a worker refused a sweep, and returns true if that has changed.
func (r *registry) note(worker v1alpha1.ClusterName, refusal sweepRefusal) (changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.ward(worker)
	changed = w.refusal != refusal
	w.refusal = refusal
	return changed
}

// failing takes in the result of a sweep, and returns true if sweeps have failed for failingTime.
func (r *registry) failing(worker v1alpha1.ClusterName, err error, now time.Time) (lasting bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.ward(worker)
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
	if w := r.wards[worker]; w != nil {
		return w.refusal
	}
	return sweepRefusal{}
}

// isSwept is true if this process has listed the copies at the worker's API server.
func (r *registry) isSwept(worker v1alpha1.ClusterName) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.wards[worker]
	return w != nil && w.swept
}

// tell returns true the first time that it is called for a certain copy.
func (r *registry) tell(worker v1alpha1.ClusterName, copy v1alpha1.UnknownCopy) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := types.NamespacedName{Namespace: copy.Namespace, Name: copy.Name}
	s, ok := r.copies[key][worker]
	if !ok || s.told || s.uid != copy.UID {
		return false
	}
	s.told = true
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

// ward returns what is known of a worker. ward, set and unset are called under mu.
func (r *registry) ward(worker v1alpha1.ClusterName) *ward {
	w := r.wards[worker]
	if w == nil {
		w = &ward{keys: map[types.NamespacedName]struct{}{}}
		r.wards[worker] = w
	}
	return w
}

func (r *registry) set(worker v1alpha1.ClusterName, key types.NamespacedName, s suspect) {
	if r.copies[key] == nil {
		r.copies[key] = map[v1alpha1.ClusterName]suspect{}
	}
	r.copies[key][worker] = s
	r.ward(worker).keys[key] = struct{}{}
}

func (r *registry) unset(worker v1alpha1.ClusterName, key types.NamespacedName) {
	delete(r.copies[key], worker)
	if len(r.copies[key]) == 0 {
		delete(r.copies, key)
	}
	delete(r.ward(worker).keys, key)
}
