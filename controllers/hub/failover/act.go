// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/internal/requeue"
)

// errOutdated is the error for a decision that is right by the caches, but not by the API server. It is a conflict.
var errOutdated = requeue.Outdated("the caches are out of date")

// each does all tasks, up to parallel tasks at a time, also after errors. It returns one error. It returns a conflict
// only if there is no other error.
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
		case err == nil, apierrors.IsNotFound(err): // An object that no longer exists needs nothing.
		case apierrors.IsConflict(err):
			conflict = err
		default:
			return err // A retry of this error retries the conflicts too.
		}
	}
	return conflict
}

// atOnce calls do for each number below n, up to parallel calls at a time.
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

func (r *Reconciler) act(ctx context.Context, o *observation, t task) error {
	log.FromContext(ctx).V(1).Info("Decided", "workerCluster", o.name, "dispatch", client.ObjectKeyFromObject(t.observation.dispatch), "state", t.decided.do)
	switch t.decided.do {
	case hold, answered, pausing, fencing, pending:
		return r.reportLost(ctx, t.observation, t.decided)
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

// reportLost writes the condition WorkerLost. It records an Event if the reason is new.
func (r *Reconciler) reportLost(ctx context.Context, f *jobObservation, decided decision) error {
	err := r.records.UpdateStatus(ctx, f.dispatch, func(status *v1alpha1.DispatchStatus) {
		f.showReports(status, r.Clock.Now())
		record.SetWorkerLost(status, f.dispatch, decided.do.reason(), decided.words, r.Clock.Now())
	})
	if err != nil {
		return err
	}
	if said := record.LostCondition(f.dispatch); said == nil || said.Reason != decided.do.reason() {
		r.recordHeld(f, decided)
	}
	return nil
}

// end gives up an attempt. It first removes the status of the copy from the hub TrainJob, then ends the attempt in the
// Dispatch, and then writes a Tombstone for the copy that the worker may have.
func (r *Reconciler) end(ctx context.Context, o *observation, t task) error {
	f, err := r.confirm(ctx, o, t)
	if err != nil {
		return err
	}
	if err := r.records.TakeBackStatus(ctx, f.job); err != nil {
		return err
	}
	err = r.records.EndCopy(ctx, f.dispatch, v1alpha1.OutcomeWorkerLost, t.decided.words, func(status *v1alpha1.DispatchStatus) {
		f.showReports(status, r.Clock.Now())
	})
	if err != nil {
		return err
	}
	r.recordMoved(f, t.decided)
	log.FromContext(ctx).Info("Gave up attempt", "workerCluster", o.name, "dispatch", client.ObjectKeyFromObject(f.dispatch),
		"attempt", f.dispatch.Spec.Attempt, "failover", movedBy(f))
	jobsMoved.WithLabelValues(string(o.name), movedBy(f)).Inc()
	// An earlier Tombstone would let the manager delete a copy that goes on, if the worker returned meanwhile. If the
	// Tombstone came later, the Dispatch could be gone first, and the copy would be unknown.
	return r.addTombstone(ctx, o, f.dispatch)
}

// movedBy is the reason why a job was moved, for metrics and logs.
func movedBy(f *jobObservation) string {
	if f.worker == forgotten {
		return "Forgotten"
	}
	return string(f.dispatch.Spec.Failover)
}

// confirm decides again, from the API server and the connection. If the decision has changed, it returns a conflict:
// the caches and the connection will wake us.
//
// confirm always reads the TrainJob, because the cache may lack a TrainJob or its end. All writes to a Dispatch have a
// lock. So confirm reads the Dispatch only while its cache may be from before this replica began to lead.
func (r *Reconciler) confirm(ctx context.Context, o *observation, t task) (*jobObservation, error) {
	f, now := *t.observation, r.Clock.Now()
	key := client.ObjectKeyFromObject(f.dispatch)
	if now.Sub(r.started) < records.StartLag {
		stored := &v1alpha1.Dispatch{}
		if err := r.HubReader.Get(ctx, key, stored); err != nil {
			return nil, fmt.Errorf("get Dispatch %s: %w", key, err)
		}
		if stored.ResourceVersion != f.dispatch.ResourceVersion {
			return nil, errOutdated
		}
	}
	var err error
	if f.job, err = records.Job(ctx, r.HubReader, key); err != nil {
		return nil, err
	}
	latest := *o
	latest.contact = r.Connections.Contact(o.name)
	state, _ := latest.stateAt(now)
	f.worker, f.stop = latest.stateFor(f.dispatch, state), r.observeStop(&latest, f.dispatch)
	if f.decide(now).do != t.decided.do {
		return nil, errOutdated
	}
	return &f, nil
}
