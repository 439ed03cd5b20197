// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"context"
	"errors"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
)

// errOutdated is of a decision that was right by the caches and is not by the API server. It is a conflict as any other.
var errOutdated error = apierrors.NewConflict(schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "dispatches"}, "",
	errors.New("the caches are out of date"))

// each does all tasks, some at a time. One that fails does not keep the others. It returns an error that is more than a conflict if
// there is one.
func each(todo []task, parallel int, do func(task) error) error {
	errs := make([]error, len(todo))
	if parallel == 1 {
		for i := range todo {
			errs[i] = do(todo[i])
		}
	} else {
		atOnce(len(todo), parallel, func(i int) { errs[i] = do(todo[i]) })
	}
	var conflict error
	for _, err := range errs {
		switch {
		case err == nil, apierrors.IsNotFound(err): // What has gone needs nothing.
		case apierrors.IsConflict(err):
			conflict = err
		default:
			return err // The others come again with it.
		}
	}
	return conflict
}

// atOnce calls do with the numbers below n, some at a time.
func atOnce(n, parallel int, do func(int)) {
	var group sync.WaitGroup
	tokens := make(chan struct{}, parallel)
	for i := range n {
		tokens <- struct{}{}
		group.Go(func() {
			defer func() { <-tokens }()
			do(i)
		})
	}
	group.Wait()
}

// act does what has been decided about a Dispatch.
func (r *Reconciler) act(ctx context.Context, o *observation, t task) error {
	log.FromContext(ctx).V(1).Info("Decided", "workerCluster", o.name, "dispatch", client.ObjectKeyFromObject(t.observation.dispatch), "state", t.decided.do)
	switch t.decided.do {
	case hold, answered, pausing, fencing, pending:
		return r.say(ctx, t.observation, t.decided)
	case end:
		return r.end(ctx, o, t)
	case note:
		return r.addTombstone(ctx, o, t.observation.dispatch)
	case discard:
		return r.discard(ctx, o, t)
	case release:
		return r.release(ctx, o, t)
	case leave:
	}
	return nil
}

// say writes the condition WorkerLost. The Event goes with a reason that is new.
func (r *Reconciler) say(ctx context.Context, f *jobObservation, decided decision) error {
	err := r.records.UpdateStatus(ctx, f.dispatch, func(status *v1alpha1.DispatchStatus) {
		record.Lose(status, f.dispatch, decided.do.reason(), decided.words, r.Clock.Now())
	})
	if err != nil {
		return err
	}
	if said := record.LostCondition(f.dispatch); said == nil || said.Reason != decided.do.reason() {
		r.recordHeld(f, decided)
	}
	return nil
}

// end gives up an attempt: first what its copy has said goes from the hub TrainJob, then the Dispatch says so, and then a Tombstone is
// written of what the worker may have.
func (r *Reconciler) end(ctx context.Context, o *observation, t task) error {
	f, err := r.confirm(ctx, o, t)
	if err != nil {
		return err
	}
	if err := r.records.TakeBackStatus(ctx, f.job); err != nil {
		return err
	}
	if err := r.records.End(ctx, f.dispatch, v1alpha1.OutcomeWorkerLost, t.decided.words); err != nil {
		return err
	}
	r.recordMoved(f, t.decided)
	log.FromContext(ctx).Info("Gave up attempt", "workerCluster", o.name, "dispatch", client.ObjectKeyFromObject(f.dispatch),
		"attempt", f.dispatch.Spec.Attempt, "failover", movedBy(f))
	jobsMoved.WithLabelValues(string(o.name), movedBy(f)).Inc()
	// Not before: the worker may return meanwhile, and would delete a copy that goes on. And not later: from now on the Dispatch may go
	// without waiting for the worker, and nobody would know what the copy there is.
	return r.addTombstone(ctx, o, f.dispatch)
}

// movedBy is why a job could be moved.
func movedBy(f *jobObservation) string {
	if f.worker == forgotten {
		return "Forgotten"
	}
	return string(f.dispatch.Spec.Failover)
}

// confirm decides again, on what the API server and the connection say now. If it is something else, that is a conflict: the caches and
// the connection will wake us. So it is if another manager may lead: this one was paused then, and does not know yet. What it knows of the
// worker counts for nothing, as the other one may reach it, and may have answered its agent and placed jobs there. One that leads later
// than this was asked writes to the Dispatch before it lets anything run there.
//
// The TrainJob is always read, since one that is there, or has ended, may not be in the cache; the Dispatch only while its cache may be
// that of a replica which was not leading, because all writes to it have a lock.
func (r *Reconciler) confirm(ctx context.Context, o *observation, t task) (*jobObservation, error) {
	f, now := *t.observation, r.Clock.Now()
	key := client.ObjectKeyFromObject(f.dispatch)
	if now.Sub(r.started) < startLag {
		stored := &v1alpha1.Dispatch{}
		if err := r.HubReader.Get(ctx, key, stored); err != nil {
			return nil, fmt.Errorf("get Dispatch %s: %w", key, err)
		}
		if stored.ResourceVersion != f.dispatch.ResourceVersion {
			return nil, errOutdated
		}
	}
	var err error
	if f.job, err = getJob(ctx, r.HubReader, key); err != nil {
		return nil, err
	}
	latest := *o
	latest.contact = r.Connections.Contact(o.name)
	state, _ := latest.judge(now)
	f.worker, f.fence = latest.stateFor(f.dispatch, state), r.fence(o, f.dispatch)
	if f.decide(now).do != t.decided.do || !r.Leading() {
		return nil, errOutdated
	}
	return &f, nil
}
