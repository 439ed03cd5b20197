// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/executionlease/protocol"
)

// leases records the leases of hubs in the tracker. While this replica leads, it also writes them. A key is a hub's ID.
type leases struct {
	tracker  *tracker
	alarms   *alarms
	identity string
	clock    clock.PassiveClock
	// cache has the leases, live is the API server. client writes, and reads copies from the cache.
	cache, live client.Reader
	client      client.Client
	recorder    events.EventRecorder
	log         logr.Logger
}

// Reconcile records what a lease says, and does what this replica has to do about it now.
func (l *leases) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*requestTimeout)
	defer cancel()
	id := request.Name
	lease, err := get(ctx, l.cache, id)
	if err != nil {
		return reconcile.Result{}, err
	}
	if l.isCurrent(id, lease) {
		l.note(id, lease)
	} else if lease, err = l.read(ctx, id); err != nil {
		return reconcile.Result{}, err
	}
	err = l.perform(ctx, id, lease)
	if apierrors.IsConflict(err) { // The hub has answered, another agent leads, or the cache is behind. Use a fresh read.
		if lease, err = l.read(ctx, id); err == nil {
			err = l.perform(ctx, id, lease)
		}
	}
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: minRetryDelay}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	l.alarms.set(request.NamespacedName, l.next(id))
	return reconcile.Result{}, nil
}

// isCurrent is false if the cache has another lease of the name than this replica knows, or none. Only the API server
// can say which of them is there now: a cache may be a minute behind after its API server was away.
func (l *leases) isCurrent(id string, lease *v1alpha1.ExecutionLease) (current bool) {
	l.tracker.view(id, func(h *hub, _ time.Time) { current = h.uid == "" || lease != nil && lease.UID == h.uid })
	return current
}

// perform does what this replica has to do about a lease now.
func (l *leases) perform(ctx context.Context, id string, lease *v1alpha1.ExecutionLease) error {
	switch l.task(id, lease) {
	case takeOver:
		return l.takeOver(ctx, id)
	case writeNext:
		return l.write(ctx, id, lease, true)
	case writeState:
		return l.write(ctx, id, lease, false)
	case readLease:
		_, err := l.read(ctx, id)
		return err
	case nothing:
	}
	return nil
}

// task is what to do about a lease.
type task int

const (
	// nothing: there is nothing to do now.
	nothing task = iota
	// readLease: read the lease from the API server, so that the age of the next challenge is known.
	readLease
	// takeOver: write the first challenge of a new run.
	takeOver
	// writeNext: write the next challenge.
	writeNext
	// writeState: write the state that the lease has now.
	writeState
)

// task decides what to do. A leader also takes over a missing lease. Else nobody would stop the hub's copies.
func (l *leases) task(id string, lease *v1alpha1.ExecutionLease) (what task) {
	l.tracker.view(id, func(h *hub, now time.Time) {
		switch {
		case lease == nil && len(l.tracker.copies[id]) == 0:
		case l.tracker.leads() && h.term != l.tracker.term:
			what = takeOver
		case lease == nil:
		case !l.tracker.leads():
			if h.agent.Unmarked() {
				what = readLease
			}
		case lease.Status.Run >= h.run && lease.Status.Agent != l.identity:
			what = takeOver // Another agent leads, or did not know that it was replaced.
		case !now.Before(h.sent.Add(h.agent.Interval())):
			what = writeNext
		case lease.Status.Run == h.run && lease.Status.State != h.agent.State(now):
			what = writeState
		}
	})
	return what
}

// next is when the next task is due. It is zero if only an event can bring one.
func (l *leases) next(id string) (due time.Time) {
	l.tracker.view(id, func(h *hub, now time.Time) {
		if !l.tracker.leads() || h.uid == "" {
			return
		}
		due = h.sent.Add(h.agent.Interval())
		if ends := h.agent.StateEnds(now); !ends.IsZero() && ends.Before(due) {
			due = ends
		}
	})
	return due
}

// note records in the tracker what a lease says. lease is nil if there is no lease.
func (l *leases) note(id string, lease *v1alpha1.ExecutionLease) {
	l.tracker.update(id, func(h *hub, now time.Time) { h.note(lease, now) })
}

func (h *hub) note(lease *v1alpha1.ExecutionLease, now time.Time) {
	if lease == nil {
		h.replaced("")
		return
	}
	if h.uid != lease.UID {
		h.replaced(lease.UID)
	}
	h.agent.See(protocol.ParseChallenge(lease.Status.Challenge))
	h.agent.Answered(protocol.ParseChallenge(lease.Spec.Answer), lease.Spec.FenceAfter.Duration, now)
}

// replaced records that the lease is a new object, or deleted. It keeps the run, so no two challenges are equal.
func (h *hub) replaced(uid types.UID) {
	if h.uid != "" {
		h.agent.Replaced()
	}
	if uid != "" {
		h.term, h.leased = 0, true
	}
	h.uid = uid
}

// takeOver writes the first challenge of a new run.
func (l *leases) takeOver(ctx context.Context, id string) error {
	lease, err := l.read(ctx, id)
	if err != nil {
		return err
	}
	l.tracker.update(id, func(h *hub, now time.Time) {
		h.run++
		if lease != nil {
			h.run = max(h.run, lease.Status.Run+1)
		}
		h.term, h.number, h.sent = l.tracker.term, 0, time.Time{}
		h.agent.TakeOver(h.run, now)
		l.log.Info("Took over execution lease", "hub", id, "run", h.run, "state", h.agent.State(now), "exists", lease != nil)
	})
	if lease == nil {
		return nil
	}
	return l.write(ctx, id, lease, true)
}

// write writes the state into a lease, with next also a new challenge. It fails with Conflict if the lease has changed.
func (l *leases) write(ctx context.Context, id string, lease *v1alpha1.ExecutionLease, next bool) error {
	fenced, err := l.countFenced(ctx, id)
	if err != nil {
		return err
	}
	updated := lease.DeepCopy()
	var challenge protocol.Challenge
	var sent time.Time
	l.tracker.view(id, func(h *hub, now time.Time) {
		status := &updated.Status
		if next {
			// A number is used once, even if the write fails. The time is taken before the write is sent.
			h.number++
			h.sent, sent = now, now
			challenge = protocol.Challenge{Run: h.run, Number: h.number}
			status.Run, status.Challenge, status.Agent = h.run, challenge.String(), l.identity
			status.Interval, status.Fenced = &metav1.Duration{Duration: h.agent.Interval()}, fenced
		}
		status.State = h.agent.State(now)
	})
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	patch := client.MergeFromWithOptions(lease, client.MergeFromWithOptimisticLock{})
	if err := l.client.Status().Patch(ctx, updated, patch, fieldOwner); err != nil {
		if next { // The next one is due at once: a conflict must not cost an interval.
			l.tracker.view(id, func(h *hub, _ time.Time) { h.sent, h.failed = time.Time{}, h.failed+1 })
		}
		return fmt.Errorf("patch status of ExecutionLease %q: %w", id, err)
	}
	if lease.Status.State != updated.Status.State {
		l.log.Info("Execution lease", "hub", id, "state", updated.Status.State, "before", lease.Status.State, "fenced", fenced)
		l.recordState(updated, lease.Status.State)
	}
	l.tracker.update(id, func(h *hub, now time.Time) {
		if next {
			h.agent.Issued(challenge, sent)
			h.written++
		}
		h.note(updated, now)
	})
	return nil
}

// read reads a lease from the API server and records what it says and when it was read. nil: there is none.
func (l *leases) read(ctx context.Context, id string) (*v1alpha1.ExecutionLease, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	sent := l.clock.Now()
	lease, err := get(ctx, l.live, id)
	if err != nil {
		return nil, err
	}
	l.tracker.update(id, func(h *hub, now time.Time) {
		h.note(lease, now)
		if lease != nil {
			h.agent.Shown(protocol.ParseChallenge(lease.Status.Challenge), sent)
		}
	})
	return lease, nil
}

// countFenced counts the stopped copies of a hub.
func (l *leases) countFenced(ctx context.Context, id string) (count int32, err error) {
	var jobs trainer.TrainJobList
	err = l.client.List(ctx, &jobs, client.MatchingLabels{v1alpha1.LabelHub: id}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return 0, fmt.Errorf("list copies of hub %q: %w", id, err)
	}
	for i := range jobs.Items {
		if _, fenced := jobs.Items[i].Annotations[v1alpha1.AnnotationFenced]; fenced && isFenceable(&jobs.Items[i]) {
			count++
		}
	}
	return count, nil
}

// get returns a lease, or nil if there is no lease.
func get(ctx context.Context, reader client.Reader, id string) (*v1alpha1.ExecutionLease, error) {
	lease := &v1alpha1.ExecutionLease{}
	if err := reader.Get(ctx, client.ObjectKey{Name: id}, lease); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("get ExecutionLease %q: %w", id, err)
	}
	return lease, nil
}
