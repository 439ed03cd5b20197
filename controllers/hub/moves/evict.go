// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package moves

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/internal/requeue"
)

// displace evicts a job from a drained worker, if there is room elsewhere and its policy permits one more move.
func (r *Reconciler) displace(ctx context.Context, f observation, t turn) error {
	if !t.spent.allows(f.policy) {
		return nil // The end of another move wakes us.
	}
	full := t.full
	if !record.AwaitsCheckpointSince(f.dispatch).IsZero() {
		full = nil // Room is kept for this job, whatever jobs like it lack.
	}
	answer, err := r.Room.Elsewhere(ctx, f.dispatch, full)
	if err != nil {
		return fmt.Errorf("look for room for TrainJob %s: %w", client.ObjectKeyFromObject(f.dispatch), err)
	}
	switch {
	case answer.Reason == "":
		return nil // Placement wakes us when it knows.
	case answer.Reason != v1alpha1.ReasonFits:
		return r.stay(ctx, f, answer)
	}
	if until, err := r.awaitCheckpoint(ctx, f); !until.IsZero() || err != nil {
		if !until.IsZero() {
			t.spent.take(f.policy) // It moves soon, and has its room.
			*t.due = requeue.Earlier(*t.due, until)
		}
		return err
	}
	err = r.evict(ctx, f, v1alpha1.EvictionDrained,
		fmt.Sprintf("worker %s is being drained, and worker %s has room for the job", f.dispatch.Spec.Cluster, answer.Cluster))
	if err == nil {
		t.spent.take(f.policy)
	}
	return err
}

// awaitCheckpoint says until when a job stays on a drained worker because its process may save another checkpoint soon.
// Zero: it may go. Only a process that has reported a checkpoint in this attempt is waited for. The condition says since
// when the job waits, so that the next manager does not begin anew.
func (r *Reconciler) awaitCheckpoint(ctx context.Context, f observation) (until time.Time, err error) {
	rules, d, now := f.policy.Rules().Checkpoint, f.dispatch, r.Clock.Now()
	saved := d.Status.LastCheckpoint
	if rules == nil || rules.MaxWait == nil || saved == nil || d.Status.Attempt != d.Spec.Attempt {
		return time.Time{}, nil
	}
	since := record.AwaitsCheckpointSince(d)
	switch {
	case since.IsZero():
		until = now.Add(rules.MaxWait.Duration)
		return until, r.writeStatus(ctx, d, func(status *v1alpha1.DispatchStatus) {
			record.SetAwaitingCheckpoint(status, d, fmt.Sprintf("worker %s is being drained, and the job has room elsewhere: it moves when its "+
				"process has saved another checkpoint than %s, after %s at the latest (checkpoint.maxWait of DispatchPolicy %s)",
				d.Spec.Cluster, saved.Name, rules.MaxWait.Duration, f.policy.Name), now)
		})
	case saved.Time.After(since):
		return time.Time{}, nil
	}
	if until = since.Add(rules.MaxWait.Duration); !now.Before(until) {
		return time.Time{}, nil
	}
	return until, nil
}

// giveUp evicts a job that was not let run in time. Without room elsewhere it would only lose its place, so it stays.
func (r *Reconciler) giveUp(ctx context.Context, f observation) error {
	answer, err := r.Room.Elsewhere(ctx, f.dispatch, nil)
	if err != nil {
		return fmt.Errorf("look for room for TrainJob %s: %w", client.ObjectKeyFromObject(f.dispatch), err)
	}
	if answer.Reason != v1alpha1.ReasonFits {
		return nil
	}
	return r.evict(ctx, f, v1alpha1.EvictionAdmissionTimeout,
		fmt.Sprintf("worker %s has not let the job run%s for the admissionTimeout of DispatchPolicy %s, %s; %s",
			f.dispatch.Spec.Cluster, inDomain(f.dispatch.Spec.Domain), f.policy.Name, f.timeout(), answer.Message))
}

// inDomain says in words where on its worker a job is that has a domain.
func inDomain(domain *v1alpha1.Domain) string {
	if domain == nil {
		return ""
	}
	return fmt.Sprintf(" in domain %s", domain)
}

// keepRoom makes placement keep the room for which a job was evicted: another process may have evicted it, and the
// worker with the room may be gone. A preempted or suspended job was evicted without room elsewhere.
func (r *Reconciler) keepRoom(ctx context.Context, f observation) error {
	eviction := f.dispatch.Spec.Eviction
	if eviction == nil || !record.EndingOf(eviction.Reason).KeepsRoom {
		return nil
	}
	if _, err := r.Room.Elsewhere(ctx, f.dispatch, nil); err != nil {
		return fmt.Errorf("look for room for TrainJob %s: %w", client.ObjectKeyFromObject(f.dispatch), err)
	}
	return nil
}

// evict asks mirror to end the attempt. If the write fails, it gives the room back until the next reconcile.
func (r *Reconciler) evict(ctx context.Context, f observation, reason v1alpha1.EvictionReason, message string) error {
	updated := f.dispatch.DeepCopy()
	record.Evict(updated, v1alpha1.Eviction{Reason: reason, Message: message})
	if err := r.records().Patch(ctx, f.dispatch, updated); err != nil {
		r.Room.Release(f.dispatch.Spec.TrainJob.UID)
		return r.records().Refused(ctx, f.dispatch, v1alpha1.ReasonDispatchRefused, client.IgnoreNotFound(err))
	}
	r.written[f.dispatch.Spec.TrainJob.UID] = eviction{
		key: client.ObjectKeyFromObject(updated), attempt: f.dispatch.Spec.Attempt, policy: f.policy,
		counts: record.EndingOf(reason).Moves,
	}
	return nil
}

// spent returns how much of each budget is in use, and when less may be because the patience with a job ends. It forgets
// the evictions that the cache shows.
func (r *Reconciler) spent(ctx context.Context, home home) (budgets, time.Time, error) {
	var due time.Time
	spent := budgets{}
	for uid, e := range r.written {
		d, err := records.Dispatch(ctx, r.Hub, e.key)
		switch {
		case err != nil:
			return nil, due, err
		case !record.AttemptOf(d).Live(), d.Spec.TrainJob.UID != uid, d.Spec.Attempt != e.attempt, d.Spec.Eviction != nil:
			delete(r.written, uid)
		case e.counts:
			spent.take(e.policy)
		}
	}
	if home != draining {
		return spent, due, nil
	}
	dispatches, err := records.Moving(ctx, r.Hub)
	if err != nil {
		return nil, due, err
	}
	ends := r.patienceEnds(dispatches)
	for i := range dispatches {
		at := ends[dispatches[i].Spec.TrainJob.UID]
		if !r.Clock.Now().Before(at) {
			continue // It would hold up the others for ever.
		}
		due = requeue.Earlier(due, at)
		if err := r.spend(ctx, &dispatches[i], spent); err != nil {
			return nil, due, err
		}
	}
	return spent, due, nil
}

// patienceEnds returns from when the jobs on their way hold up no others, by the UIDs of their TrainJobs. A time that
// the Dispatch does not say, or that this machine's clock has not reached, counts from when this process saw the job
// first.
func (r *Reconciler) patienceEnds(moving []v1alpha1.Dispatch) map[types.UID]time.Time {
	now, ends, seen := r.Clock.Now(), map[types.UID]time.Time{}, map[types.UID]time.Time{}
	for i := range moving {
		uid, since := moving[i].Spec.TrainJob.UID, record.MovingSince(&moving[i])
		first, known := r.moving[uid]
		if !known {
			first = now
		}
		seen[uid] = first
		if since.IsZero() || since.After(now) {
			since = first
		}
		ends[uid] = since.Add(record.MovePatience)
	}
	r.moving = seen
	return ends
}

// spend counts a job on its way, unless it is gone or suspended.
func (r *Reconciler) spend(ctx context.Context, d *v1alpha1.Dispatch, spent budgets) error {
	key := client.ObjectKeyFromObject(d)
	job, err := records.Job(ctx, r.Hub, key)
	if job == nil {
		return err
	}
	if job.GetUID() != d.Spec.TrainJob.UID || trainjobs.Suspended(job) {
		return nil
	}
	policy, err := r.Policy(ctx, job)
	if err != nil {
		return fmt.Errorf("find DispatchPolicy of TrainJob %s: %w", key, err)
	}
	spent.take(policy)
	return nil
}

// nearest is what was last reported about a job that stays: the nearest worker, and what keeps the job from it.
type nearest struct {
	worker v1alpha1.ClusterName
	reason string
}

// stay writes on the Dispatch that the job fits on no other worker. The message stays while the same worker is the
// nearest for the same reason: the free amounts there change all the time.
func (r *Reconciler) stay(ctx context.Context, f observation, answer v1alpha1.ClusterExplanation) error {
	d, now := f.dispatch, nearest{answer.Cluster, answer.Reason}
	state := r.workers[d.Spec.Cluster]
	if record.HasNoRoomElsewhere(d) && state.reported[d.Spec.TrainJob.UID] == now {
		return nil
	}
	message := fmt.Sprintf("worker %s is being drained, and the job fits on no other worker; ", d.Spec.Cluster)
	if answer.Cluster != "" {
		message += fmt.Sprintf("the nearest is worker %s: ", answer.Cluster)
	}
	err := r.writeStatus(ctx, d, func(status *v1alpha1.DispatchStatus) {
		record.SetNoRoomElsewhere(status, d, message+answer.Message, r.Clock.Now())
	})
	if err == nil {
		state.reported[d.Spec.TrainJob.UID] = now
	}
	return err
}

// clear takes back the message on a job that was to leave, because the job may stay now.
func (r *Reconciler) clear(ctx context.Context, d *v1alpha1.Dispatch) error {
	if !record.Stays(d) || !record.StateOf(d).Live() {
		return nil
	}
	return r.writeStatus(ctx, d, record.ClearNoRoomElsewhere)
}

// writeStatus writes a Dispatch's status if change changes it. A Dispatch that is gone needs no write.
func (r *Reconciler) writeStatus(ctx context.Context, d *v1alpha1.Dispatch, change func(*v1alpha1.DispatchStatus)) error {
	return client.IgnoreNotFound(r.records().UpdateStatus(ctx, d, change))
}

func (r *Reconciler) records() records.Writer { return records.Writer{Hub: r.Hub, Clock: r.Clock} }

// budgets count the jobs on their way, by policy. Jobs without a policy share one budget.
type budgets map[string]int32

func (b budgets) take(policy *v1alpha1.DispatchPolicy) { b[nameOf(policy)]++ }

func (b budgets) allows(policy *v1alpha1.DispatchPolicy) bool {
	return b[nameOf(policy)] < *policy.Rules().MaxConcurrentMoves
}

func nameOf(policy *v1alpha1.DispatchPolicy) string {
	if policy == nil {
		return ""
	}
	return policy.Name
}
