// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"slices"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/test/explorer/memory"
)

const (
	// annotationOutranks on a hub TrainJob says that others are to be stopped for it.
	annotationOutranks = "explorer/outranks"
	// annotationFailover on a hub TrainJob is what its policy would say.
	annotationFailover = "explorer/failover"
	startupTime        = 30 * time.Second
	refusalTime        = time.Minute
	conflictDelay      = 20 * time.Millisecond
	// runtimeVersion stands for a version of the runtime. The workers have a runtime of their own, which is left alone.
	runtimeVersion = "runtime.1"
)

// placer stands for controllers/hub/placement: it writes the same records for the same reasons, and chooses workers in
// turn. It has no room, no waiting list and no policies. For a job that outranks others it has one job stopped on the
// worker, after the worker has said that it takes the job.
type placer struct {
	manager *Manager
	began   time.Time
	// remembered are the attempts of Dispatches that were deleted, by origin.
	remembered map[types.UID]int32
	// asked has the question about a job that outranks others.
	asked map[types.UID]asked
}

// asked is a question to a worker.
type asked struct {
	worker   string
	accepted bool
}

// lose notes that a Dispatch is gone.
func (p *placer) lose(d *v1alpha1.Dispatch) {
	uid := d.Spec.TrainJob.UID
	p.remembered[uid] = max(p.remembered[uid], d.Spec.Attempt)
}

// place does what is due about one job.
func (p *placer) place(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	hub := p.manager.hub
	job, d := trainjobs.New(), &v1alpha1.Dispatch{}
	if hub.Get(ctx, key, job) != nil {
		job = nil
	}
	if hub.Get(ctx, key, d) != nil {
		d = nil
	}
	again, err := p.decide(ctx, job, d)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return conflictDelay, nil
	}
	return again, err
}

func (p *placer) decide(ctx context.Context, job *unstructured.Unstructured, d *v1alpha1.Dispatch) (time.Duration, error) {
	state := record.StateOf(d)
	waiting := state == record.Waiting || state == record.GivenUp
	switch {
	case job == nil, job.GetDeletionTimestamp() != nil, trainjobs.Terminal(job) != nil:
		if state == record.GivenUp && record.JobStays(d, job) {
			return 0, p.records().FinishGivenUp(ctx, d, trainjobs.Terminal(job))
		}
		if waiting {
			return 0, client.IgnoreNotFound(p.records().DeleteUnchanged(ctx, d))
		}
		return 0, nil
	case state == record.Leaving, d != nil && d.Spec.TrainJob.UID != job.GetUID():
		if waiting {
			return 0, client.IgnoreNotFound(p.records().DeleteUnchanged(ctx, d))
		}
		return 0, nil
	case state == record.Finished, state.Live():
		return 0, p.evictSuspended(ctx, job, d)
	case state == record.GivenUp:
		return 0, p.fail(ctx, job, d)
	case trainjobs.Suspended(job):
		if d == nil {
			return 0, nil
		}
		return 0, p.withdraw(ctx, job, d, v1alpha1.ReasonSuspended)
	}
	if _, unknown := p.manager.quarantine.Of(client.ObjectKeyFromObject(job), job.GetUID()); unknown {
		return 0, p.withdraw(ctx, job, d, "UnknownCopy")
	}
	worker, open := p.choose(ctx, job, d)
	switch {
	case !open:
		return time.Second, nil
	case worker == nil:
		if p.isOverdue(job, d) {
			return 0, p.giveUp(ctx, d)
		}
		return refusalTime, p.withdraw(ctx, job, d, v1alpha1.ReasonNoFit)
	}
	if victim, waits := p.victim(job, worker); victim != nil && !waits && p.accepts(job, d, worker) {
		after := victim.DeepCopy()
		record.Evict(after, v1alpha1.Eviction{Reason: v1alpha1.EvictionPreempted, For: job.GetUID()})
		return time.Second, p.write(ctx, victim, after)
	} else if victim != nil {
		return time.Second, p.withdraw(ctx, job, d, "NoFit")
	}
	return 0, p.record(ctx, job, d, worker)
}

// isOverdue is true for a job that has waited for as long as its policy lets it, and of which no worker may have a copy.
func (p *placer) isOverdue(job *unstructured.Unstructured, d *v1alpha1.Dispatch) bool {
	after := p.manager.world.GiveUpAfter
	if after == 0 || record.StateOf(d) != record.Waiting {
		return false
	}
	since := record.WaitingSince(&d.Status, p.manager.clock.Now())
	return !since.IsZero() && p.manager.clock.Since(since) >= after && (p.manager.world.Broken.NoTombstonesSeen || len(p.tombstones(job)) == 0)
}

// giveUp says that a job gets no worker any more, before its TrainJob becomes Failed.
func (p *placer) giveUp(ctx context.Context, d *v1alpha1.Dispatch) error {
	return p.records().UpdateStatus(ctx, d, func(status *v1alpha1.DispatchStatus) {
		record.GiveUp(status, d, record.Why{Message: "no worker took the job"}, p.manager.clock.Now())
	})
}

// fail makes the TrainJob of a job that was given up Failed.
func (p *placer) fail(ctx context.Context, job *unstructured.Unstructured, d *v1alpha1.Dispatch) error {
	updated := job.DeepCopy()
	failed := map[string]any{
		"type": trainer.TrainJobFailed, "status": string(metav1.ConditionTrue), "reason": v1alpha1.ReasonGivenUp,
		"message": "no worker took the job", "lastTransitionTime": p.manager.clock.Now().UTC().Format(time.RFC3339),
	}
	updated.Object["status"] = map[string]any{"conditions": []any{failed}}
	patch := client.MergeFromWithOptions(job, client.MergeFromWithOptimisticLock{})
	err := p.manager.hub.Status().Patch(ctx, updated, patch, records.FieldOwner)
	return p.records().Refused(ctx, d, v1alpha1.ReasonTrainJobStatusRefused, err)
}

// victim is the job that has to stop on a worker for a job that outranks it, nil if there is none. waits: it is being
// stopped.
func (p *placer) victim(job *unstructured.Unstructured, worker *v1alpha1.WorkerCluster) (victim *v1alpha1.Dispatch, waits bool) {
	if job.GetAnnotations()[annotationOutranks] == "" {
		return nil, false
	}
	for _, version := range p.manager.hub.Views[memory.Dispatch].List() {
		d := version.Object.(*v1alpha1.Dispatch)
		if string(d.Spec.Cluster) != worker.Name || !record.AttemptOf(d).Live() || d.DeletionTimestamp != nil {
			continue
		}
		if d.Spec.Eviction != nil && d.Spec.Eviction.For == job.GetUID() {
			return d, true
		}
		if d.Spec.Eviction == nil && victim == nil {
			victim = d
		}
	}
	return victim, false
}

// accepts is true if a worker has said that it takes a job. Otherwise the worker is asked.
func (p *placer) accepts(job *unstructured.Unstructured, d *v1alpha1.Dispatch, worker *v1alpha1.WorkerCluster) bool {
	uid := job.GetUID()
	if p.manager.world.Broken.NoTrials || p.asked[uid].worker == worker.Name && p.asked[uid].accepted {
		return true
	}
	p.asked[uid] = asked{worker: worker.Name}
	p.manager.trials.Try(v1alpha1.ClusterName(worker.Name), job, p.placed(job, d, worker), func(refused string) {
		p.asked[uid] = asked{worker: worker.Name, accepted: refused == ""}
	})
	return false
}

// evictSuspended ends the attempt of a job that has been suspended.
func (p *placer) evictSuspended(ctx context.Context, job *unstructured.Unstructured, d *v1alpha1.Dispatch) error {
	if !trainjobs.Suspended(job) || d.Spec.Eviction != nil || record.StateOf(d) == record.Finished {
		return nil
	}
	after := d.DeepCopy()
	record.Evict(after, v1alpha1.Eviction{Reason: v1alpha1.EvictionSuspended})
	return p.write(ctx, d, after)
}

// choose returns the worker whose turn it is, nil if none is Ready. It chooses no worker before all workers that are
// Ready have been swept.
func (p *placer) choose(ctx context.Context, job *unstructured.Unstructured, d *v1alpha1.Dispatch) (worker *v1alpha1.WorkerCluster, open bool) {
	var workers v1alpha1.WorkerClusterList
	if err := p.manager.hub.List(ctx, &workers); err != nil {
		return nil, false
	}
	patient := p.manager.clock.Since(p.began) < startupTime
	var ready []*v1alpha1.WorkerCluster
	for i := range workers.Items {
		worker := &workers.Items[i]
		isReady := meta.IsStatusConditionTrue(worker.Status.Conditions, v1alpha1.WorkerClusterReady)
		if isReady && patient && !p.manager.quarantine.Swept(v1alpha1.ClusterName(worker.Name)) {
			return nil, false
		}
		if isReady && !worker.Spec.Unschedulable && !p.refused(d, worker.Name) {
			ready = append(ready, worker)
		}
	}
	if len(ready) == 0 {
		return nil, true
	}
	turn := int(p.attempt(job, d)) + len(job.GetName())
	return ready[turn%len(ready)], true
}

// refused: the worker is not asked again yet.
func (p *placer) refused(d *v1alpha1.Dispatch, worker string) bool {
	return d != nil && slices.ContainsFunc(d.Status.Refusals, func(r v1alpha1.Refusal) bool {
		return string(r.Cluster) == worker && p.manager.clock.Since(r.Last.Time) < refusalTime
	})
}

// attempt returns the next attempt.
func (p *placer) attempt(job *unstructured.Unstructured, d *v1alpha1.Dispatch) int32 {
	highest := p.remembered[job.GetUID()]
	for _, tombstone := range p.tombstones(job) {
		highest = max(highest, tombstone.Spec.Attempt)
	}
	if d != nil {
		highest = max(highest, d.Spec.Attempt)
	}
	return highest + 1
}

// tombstones returns the Tombstones of a job.
func (p *placer) tombstones(job *unstructured.Unstructured) (found []*v1alpha1.Tombstone) {
	for _, version := range p.manager.hub.Views[memory.Tombstone].List() {
		if tombstone := version.Object.(*v1alpha1.Tombstone); tombstone.Spec.TrainJob.UID == job.GetUID() {
			found = append(found, tombstone)
		}
	}
	return found
}

// record writes a decision.
func (p *placer) record(ctx context.Context, job *unstructured.Unstructured, d *v1alpha1.Dispatch, worker *v1alpha1.WorkerCluster) error {
	return p.write(ctx, d, p.placed(job, d, worker))
}

// placed is the Dispatch of a job that is placed on a worker.
func (p *placer) placed(job *unstructured.Unstructured, d *v1alpha1.Dispatch, worker *v1alpha1.WorkerCluster) *v1alpha1.Dispatch {
	failover := v1alpha1.Failover(job.GetAnnotations()[annotationFailover])
	if failover == v1alpha1.FailoverFenced && !meta.IsStatusConditionTrue(worker.Status.Conditions, v1alpha1.WorkerClusterAgentReady) {
		failover = v1alpha1.FailoverHold
	}
	after := p.edited(job, d)
	record.Place(after, v1alpha1.DispatchSpec{
		Cluster: v1alpha1.ClusterName(worker.Name), ClusterID: worker.Status.ClusterID, Attempt: p.attempt(job, d), Failover: failover,
		Counted: &v1alpha1.Counted{Generation: job.GetGeneration(), Digest: trainjobs.Digest(job), Runtime: runtimeVersion},
	}, "its turn")
	return after
}

// withdraw says that a job waits, and why.
func (p *placer) withdraw(ctx context.Context, job *unstructured.Unstructured, d *v1alpha1.Dispatch, reason string) error {
	after := p.edited(job, d)
	record.Unplace(after, after.Spec.Priority, after.Spec.PodSets)
	if d == nil || !equality.Semantic.DeepEqual(d, after) {
		if err := p.write(ctx, d, after); err != nil {
			return err
		}
	}
	return p.records().UpdateStatus(ctx, after, func(status *v1alpha1.DispatchStatus) {
		record.Wait(status, after, record.Why{Reason: reason}, p.manager.clock.Now())
	})
}

// edited is the job's Dispatch to be edited, a new one if it has none.
func (p *placer) edited(job *unstructured.Unstructured, d *v1alpha1.Dispatch) *v1alpha1.Dispatch {
	if d == nil {
		return record.New(job, p.attempt(job, d)-1)
	}
	return d.DeepCopy()
}

func (p *placer) write(ctx context.Context, before, after *v1alpha1.Dispatch) error {
	if before == nil {
		return p.records().Create(ctx, after)
	}
	return p.records().Patch(ctx, before, after)
}

func (p *placer) records() records.Writer {
	return records.Writer{Hub: p.manager.hub, Clock: p.manager.clock}
}

// collectOwned plays the hub's garbage collector.
func (w *World) collectOwned() {
	for _, version := range w.Hub.List(memory.Dispatch) {
		d := version.Object.(*v1alpha1.Dispatch)
		job := w.Hub.Get(memory.TrainJob, client.ObjectKeyFromObject(d))
		gone := job == nil || job.Object.GetUID() != d.OwnerReferences[0].UID
		if d.DeletionTimestamp == nil && (gone || job.Object.GetDeletionTimestamp() != nil) {
			_ = w.Hub.Delete(memory.Dispatch, client.ObjectKeyFromObject(d), &client.DeleteOptions{}, "hub/gc") // It is there.
		}
	}
	for _, version := range w.Hub.List(memory.TrainJob) {
		job := version.Object
		d := w.Hub.Get(memory.Dispatch, client.ObjectKeyFromObject(job))
		owned := d != nil && d.Object.GetOwnerReferences()[0].UID == job.GetUID()
		if job.GetDeletionTimestamp() != nil && !owned {
			w.Hub.Change(memory.TrainJob, client.ObjectKeyFromObject(job), "hub/gc", func(object client.Object) { object.SetFinalizers(nil) })
		}
	}
}
