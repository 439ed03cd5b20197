// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/placement/decider"
	"github.com/trainyard/trainyard/controllers/hub/placement/kueue"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/queue"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/records"
)

// Kueue knows the jobs that a Kueue on the hub has.
type Kueue interface {
	// Of says what Kueue is to a hub TrainJob. It is asked often, and must not wait.
	Of(job *unstructured.Unstructured) kueue.Answer
	// Known is false while Of cannot answer for all jobs because it has just begun to look.
	Known() bool
}

// UnknownCopies knows the copies of this hub that the hub has no record of, as after its restoration from a backup.
type UnknownCopies interface {
	// Of returns a worker that has such a copy with the name of a hub TrainJob, whose UID is origin. It is asked often,
	// and must not wait.
	Of(key types.NamespacedName, origin types.UID) (worker v1alpha1.ClusterName, ok bool)
}

// observation is what one reconcile has read of a key before it decides.
type observation struct {
	// at is when the observation began.
	at time.Time
	// job and dispatch are nil if the hub has none.
	job      *unstructured.Unstructured
	dispatch *v1alpha1.Dispatch
	// eviction is what is to end the job's attempt: an eviction that the decider has decided, MultiKueue, or the
	// suspension of the job.
	eviction *v1alpha1.Eviction
	// kueue is what a Kueue on the hub is to the job. If MultiKueue dispatches it, eviction says so.
	kueue kueue.Answer

	// past, mayHaveCopy, placed, grant and copyAt are observed of an unplaced job only.
	past past
	// mayHaveCopy: a Tombstone says that a worker may have a copy of an earlier attempt.
	mayHaveCopy bool
	// placed: a pass has given the job a worker. grant is nil if that has been written.
	placed bool
	grant  *decider.Grant
	// copyAt is a worker with a copy that the hub has no record of and that may be the job's, empty if there is none.
	copyAt v1alpha1.ClusterName

	// needs is what needs.observe has added, which takes the most time.
	needs need
}

// need is what a decision on a job needs, from the hub's caches.
type need struct {
	// job is without PodSets if protected, and without exclusions and class if there is any obstacle.
	job *queue.Job
	// reads is what Data of the job was made of. needed are its Dependencies without which pods do not run.
	reads  dispatch.Reads
	needed []v1alpha1.Dependency
	// protected: no job of the namespace is placed.
	protected bool
	// unmet says what is wrong with the job's demand, nil if nothing is.
	unmet *dispatch.Decision
	// expire is how long it is until the first of the workers that have refused the job may be asked again.
	expire time.Duration
}

// key is the job's. The hub has the job.
func (seen *observation) key() types.NamespacedName { return client.ObjectKeyFromObject(seen.job) }

// stands is true for a suspended job that may have a worker nevertheless: it has quota and waits for room, or it is not
// known yet whether it has.
func (seen *observation) stands() bool {
	return seen.kueue.Standing == kueue.QuotaReserved || seen.kueue.Standing == kueue.Unknown
}

// suspends is true if the suspension of the job ends its attempt. A job that stands has no copy yet.
func (seen *observation) suspends() bool {
	return seen.job != nil && trainjobs.Suspended(seen.job) &&
		(!seen.stands() || seen.dispatch != nil && seen.dispatch.WasCopied())
}

// record returns the job's Dispatch to be edited, a new one if it has none.
func (seen *observation) record() *v1alpha1.Dispatch {
	if seen.dispatch == nil {
		d := record.New(seen.job, seen.past.attempt)
		noteRetry(d, retry{request: requestOf(seen.job)})
		return d
	}
	return seen.dispatch.DeepCopy()
}

// observer observes keys. It reads only caches and memory.
type observer struct {
	hub client.Reader
	// managedBy, kueue and copies are Options.ManagedBy, Options.Kueue and Options.UnknownCopies.
	managedBy string
	kueue     Kueue
	copies    UnknownCopies
	decider   *decider.Decider
	waiting   *waiting
	clock     clock.PassiveClock
}

// observe reads all that the next step for a key depends on, but for the needs of a job.
func (o *observer) observe(ctx context.Context, key types.NamespacedName) (observation, error) {
	seen, err := o.glance(ctx, key)
	if err != nil || classify(o.managedBy, &seen) != unplaced {
		return seen, err
	}
	if seen.past, err = o.past(ctx, &seen); err != nil {
		return seen, err
	}
	seen.grant, seen.placed = o.decider.Granted(seen.job.GetUID(), record.NextAttempt(seen.past.attempt))
	if o.copies != nil {
		seen.copyAt, _ = o.copies.Of(key, seen.job.GetUID())
	}
	return seen, nil
}

// glance reads what classify needs.
func (o *observer) glance(ctx context.Context, key types.NamespacedName) (observation, error) {
	seen := observation{at: o.clock.Now()}
	var err error
	if seen.job, err = records.Job(ctx, o.hub, key); err != nil {
		return seen, err
	}
	if seen.dispatch, err = records.Dispatch(ctx, o.hub, key); err != nil {
		return seen, err
	}
	seen.kueue = o.kueueOf(seen.job)
	seen.eviction = o.eviction(&seen)
	return seen, nil
}

// kueueOf returns what a Kueue on the hub is to a job, which may be nil.
func (o *observer) kueueOf(job *unstructured.Unstructured) kueue.Answer {
	if o.kueue == nil || job == nil || trainjobs.ManagedBy(job) != o.managedBy {
		return kueue.Answer{}
	}
	return o.kueue.Of(job)
}

// eviction returns what is to end the attempt of a job, nil if nothing is. A job that MultiKueue dispatches has to leave
// its worker: MultiKueue makes its copy whether ours is there or not, so only our copy can be deleted.
func (o *observer) eviction(seen *observation) *v1alpha1.Eviction {
	if seen.dispatch != nil {
		if decided := o.decider.Eviction(seen.dispatch.Spec.TrainJob.UID); decided != nil {
			return decided
		}
	}
	switch {
	case seen.kueue.Standing == kueue.MultiKueue:
		return &v1alpha1.Eviction{
			Reason: v1alpha1.EvictionManagedByMultiKueue, Message: record.Cut(seen.kueue.Message, record.NoteLimit),
		}
	case seen.suspends():
		return &v1alpha1.Eviction{Reason: v1alpha1.EvictionSuspended, Message: suspensionMessage}
	}
	return nil
}

// past returns what the Dispatch of an unplaced job says of its earlier attempts, and notes whether there are Tombstones. If somebody has deleted the Dispatch,
// past returns what it said last. Tombstones have the attempts whose end another process has seen.
func (o *observer) past(ctx context.Context, seen *observation) (past, error) {
	p := o.waiting.past(seen.key(), seen.job.GetUID())
	if seen.dispatch != nil {
		p.attempt, p.worker = seen.dispatch.Spec.Attempt, previousOf(seen.dispatch)
	}
	tombstones, err := records.Tombstones(ctx, o.hub, seen.job.GetUID())
	var last v1alpha1.TombstoneSpec
	for i := range tombstones {
		if spec := &tombstones[i].Spec; spec.Attempt > last.Attempt {
			last = *spec
		}
	}
	seen.mayHaveCopy = len(tombstones) > 0
	p.attempt = max(p.attempt, last.Attempt)
	if seen.dispatch == nil {
		p.worker = cmp.Or(p.worker, last.Cluster)
	}
	return p, err
}
