// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/logarchive"
)

const (
	// maxFollow bounds how long an attempt is followed that is to end.
	maxFollow = time.Hour
	// again is how long to wait until logs are read again: the pods have not ended, or worker or archive have failed.
	again = 5 * time.Second
)

// begin follows the logs of an attempt that is to end, in a goroutine, unless that is done already. Eviction does not
// wait for it.
func (r *Reconciler) begin(ctx context.Context, seen observation, decided decision) {
	a := attemptOf(seen.dispatch)
	copyUID := seen.dispatch.Status.CopyUID
	if seen.copy != nil && record.RelationOf(seen.dispatch, seen.copy, record.Known{}) == record.Current {
		copyUID = seen.copy.GetUID()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.followed[a] || copyUID == "" {
		return
	}
	r.followed[a] = true
	ctx = log.IntoContext(r.life, log.FromContext(ctx)) // It names the job.
	go func() {
		defer func() {
			if value := recover(); value != nil { // What a worker answers must not end the process.
				log.FromContext(ctx).Error(nil, "Logs of an evicted job are not kept, because of a fault of Trainyard",
					"panic", value, "stack", string(debug.Stack()))
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			delete(r.followed, a)
		}()
		ctx, cancel := context.WithTimeout(ctx, maxFollow)
		defer cancel()
		if err := r.followToEnd(ctx, a, copyUID, decided.reason); err != nil {
			log.FromContext(ctx).Error(err, "Logs of an evicted job are not kept", "attempt", a.Number)
		}
	}()
}

// followToEnd follows the logs of an attempt until its pods have ended. If the eviction is taken back, no index is
// written: the logs are kept when the attempt ends.
func (r *Reconciler) followToEnd(ctx context.Context, a logarchive.Attempt, copyUID types.UID, reason string) error {
	x, err := r.index(ctx, a, reason)
	if err != nil {
		return err
	}
	reading := &reading{Reconciler: r, index: x, copyUID: copyUID, following: true}
	for {
		err := reading.round(ctx)
		over, left := r.over(ctx, a)
		switch {
		case over && !left:
			return nil // The eviction was taken back.
		case err == nil && reading.complete, over, errors.Is(err, errNoJobSet), ctx.Err() != nil:
			return r.conclude(ctx, reading, err)
		}
		if err := r.pause(ctx, again); err != nil {
			return r.conclude(ctx, reading, err)
		}
	}
}

// conclude writes the index of what was followed. An attempt without pods has nothing to be kept.
func (r *Reconciler) conclude(ctx context.Context, reading *reading, err error) error {
	if r.life.Err() != nil {
		return nil // The next leader begins again, as far as pods are left.
	}
	x := reading.index
	switch {
	case len(x.Pods) > 0:
	case err == nil:
		return nil
	case errors.Is(err, errNoJobSet):
		x.Missing = errNoJobSet.Error()
	default:
		log.FromContext(ctx).Error(err, "Logs of an evicted job could not be read", "attempt", x.Number)
		x.Missing = fmt.Sprintf("worker %q did not answer while the job was stopped", r.Cluster)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), attemptTimeout)
	defer cancel()
	for {
		err := r.close(ctx, x)
		if err == nil || r.life.Err() != nil || r.pause(ctx, again) != nil {
			return err
		}
	}
}

// over says whether an attempt is no longer to be followed. left is true if it has ended, and false if it goes on.
func (r *Reconciler) over(ctx context.Context, a logarchive.Attempt) (over, left bool) {
	d, err := records.Dispatch(ctx, r.Hub, types.NamespacedName{Namespace: a.Namespace, Name: a.Job})
	switch {
	case err != nil:
		return false, false
	case d == nil || d.Spec.TrainJob.UID != a.UID || d.Spec.Attempt != a.Number:
		return true, true
	}
	switch record.AttemptOf(d) {
	case record.Evicting, record.Lost:
		return false, false
	case record.Placed, record.Copied:
		return true, false
	case record.None, record.Waiting, record.Ended, record.GivenUp, record.Finished, record.Leaving:
	}
	return true, true
}

// pause waits. It fails when ctx ends.
func (r *Reconciler) pause(ctx context.Context, d time.Duration) error {
	timer := r.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
