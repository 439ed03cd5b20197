// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/placement/kueue"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/record"
)

// unreportedWait is how long a job of Kueue's without a Dispatch waits for its Workload before the manager reports the
// wait.
const unreportedWait = 5 * time.Second

// Kueue knows the jobs that a Kueue on the hub has.
type Kueue interface {
	// Of says what Kueue is to a hub TrainJob. It is asked often, and must not wait.
	Of(job *unstructured.Unstructured) kueue.Answer
	// Known is false while Of cannot answer for all jobs because it has just begun to look.
	Known() bool
}

// Reconsider makes the Reconciler look at a TrainJob again, or, with an empty key, at all jobs that wait. Those who
// implement Kueue call it when an answer of Of has changed, and when Known becomes true. It never blocks.
func (r *Reconciler) Reconsider(key types.NamespacedName) {
	if key.Name != "" {
		r.inbox.Add(key)
		return
	}
	r.watches.wakeAll()
	r.decider.Changed()
}

// observeKueue adds to the observation what Kueue is to the job. A job that MultiKueue dispatches has to leave its
// worker: MultiKueue makes its copy whether ours is there or not, so only our copy can be deleted.
func (r *Reconciler) observeKueue(f observation) observation {
	if r.Kueue == nil || f.job == nil || trainjobs.ManagedBy(f.job) != r.ManagedBy {
		return f
	}
	f.kueue = r.Kueue.Of(f.job)
	if f.kueue.Standing == kueue.MultiKueue && f.eviction == nil {
		f.eviction = &v1alpha1.Eviction{
			Reason: v1alpha1.EvictionManagedByMultiKueue, Message: record.Cut(f.kueue.Message, record.NoteLimit),
		}
	}
	return f
}

// awaitsKueue is true while nothing is written about a job, because its Workload will probably show soon whether Kueue
// admits the job. until is how long that lasts at most. 0: until Kueue's answer changes. Kueue admits a Workload before
// it resumes its job, but the two changes come through two watches. If the manager reported the wait at once, each such
// job would cost a waiting Dispatch.
func (r *Reconciler) awaitsKueue(f observation) (hushed bool, until time.Duration) {
	switch f.kueue.Standing {
	case kueue.Unknown:
		return true, 0
	case kueue.Held:
		until = unreportedWait - r.Clock.Since(f.past.firstSeen)
		return f.dispatch == nil && until > 0, max(until, 0)
	case kueue.Free, kueue.QuotaReserved, kueue.MultiKueue:
	}
	return false, 0
}

// kueueObstacle says why a job that Kueue has is not placed. Nil: Kueue does not stand in the way, or it is not known
// yet.
func kueueObstacle(f observation) *dispatch.Decision {
	switch f.kueue.Standing {
	case kueue.MultiKueue:
		return &dispatch.Decision{Reason: v1alpha1.ReasonManagedByMultiKueue, Message: f.kueue.Message}
	case kueue.Held:
		return &dispatch.Decision{Reason: v1alpha1.ReasonWaitingForWorkload, Message: f.kueue.Message}
	case kueue.Free, kueue.QuotaReserved, kueue.Unknown:
	}
	return nil
}

// UnknownCopies knows the copies of this hub that the hub has no record of, as after its restoration from a backup.
type UnknownCopies interface {
	// Of returns a worker that has such a copy with the name of a hub TrainJob, whose UID is origin. It is asked often,
	// and must not wait.
	Of(key types.NamespacedName, origin types.UID) (worker v1alpha1.ClusterName, ok bool)
}

// Wake makes the Reconciler look at TrainJobs again, and the decider do a pass. Those who implement UnknownCopies and
// Shown call it when their answers have changed. A key without a name stands for no job. It never blocks.
func (r *Reconciler) Wake(keys ...types.NamespacedName) {
	for _, key := range keys {
		if key.Name != "" {
			r.inbox.Add(key)
		}
	}
	r.decider.Changed()
}

// heldBack says why a job waits that somebody else may run. Nil: there is no sign of that.
func heldBack(copies UnknownCopies, f observation) *dispatch.Decision {
	if obstacle := kueueObstacle(f); obstacle != nil || copies == nil {
		return obstacle
	}
	key := client.ObjectKeyFromObject(f.job)
	worker, ok := copies.Of(key, f.job.GetUID())
	if !ok {
		return nil
	}
	return &dispatch.Decision{Reason: v1alpha1.ReasonUnknownCopy, Message: fmt.Sprintf(
		"worker %s has a copy of this name that the hub has no record of, and that may be running; the job waits until somebody decides: "+
			"kubectl trainyard adopt %s %s makes it the copy of this job; kubectl trainyard release %s %s leaves it to the worker",
		worker, worker, key, worker, key)}
}
