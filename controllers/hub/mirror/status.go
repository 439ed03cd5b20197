// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/internal/requeue"
)

const (
	// statusWindow is how long changes of a live job's status are gathered into one write. An end does not wait.
	statusWindow = time.Second
	// pushLag is how long it may take until the cache shows a write of ours. It is longer than statusWindow: otherwise,
	// while the cache lags, each further write of the status would cost a read. It is shorter than any loss of a worker: no
	// attempt is given up meanwhile.
	pushLag = 5 * time.Second
)

// written is what this process has written on the hub about the copy.
type written struct {
	// before is true if an earlier process may have written the copy's status: the Dispatch said that there is a copy.
	before bool
	// pushed is the hash of the status last written to the TrainJob, zero if there is none. pushedAt is when that was.
	pushed   uint64
	pushedAt time.Time
	// refused is true if the API server has refused the last write of a status for good.
	refused bool
	// status and progress are about the writes of the TrainJob's status, and of the Dispatch's steps, restarts and health.
	status, progress changes
}

// changes are changes of a copy that the hub does not show yet.
type changes struct {
	// news measures since when there are any.
	news stopwatch
	pace requeue.Pace
	turn turn
}

// gather is how long to gather changes until a write is due.
func (c *changes) gather(now time.Time) time.Duration {
	return max(0, statusWindow-c.news.elapsed(now), c.pace.Due(now))
}

// tried notes a write and its error. A write that comes again because a cache lags is still the same one.
func (c *changes) tried(err error, now time.Time) {
	if apierrors.IsConflict(err) {
		return
	}
	since := c.news.since
	if since.IsZero() { // It has waited for nothing.
		since = now
	}
	c.pace.Note(since, now)
	c.news.reset()
	c.turn = turn{}
}

// statusWriter brings the status of the copy to the hub TrainJob.
type statusWriter struct {
	seen     *observation
	attempt  *attempt
	cluster  v1alpha1.ClusterName
	clock    clock.PassiveClock
	budget   *Budget
	hub      client.Client
	records  records.Writer
	verifier *verifier
	reporter *reporter
	events   *announcer
}

// syncStatus brings the status of a live copy to the hub TrainJob, and says when to look again if it gathers changes.
func (w *statusWriter) syncStatus(ctx context.Context) (time.Duration, error) {
	said, status := &w.attempt.written, w.shownStatus()
	if !w.seen.hasNews(status) || said.pushed == hashStatus(status) {
		said.status.news.reset()
		return 0, w.statusAccepted(ctx) // The write of the Dispatch after the write of the status may have failed.
	}
	if due := said.status.gather(w.clock.Now()); due > 0 {
		return due, nil
	}
	if w.seen.job.Object["status"] != nil {
		if due := said.status.turn.due(w.budget, sizeOf(w.seen.job)+sizeOf(status), w.clock.Now()); due > 0 {
			return due, nil
		}
	}
	if ok, err := w.maySpeak(ctx); !ok || err != nil {
		return requeue.ConflictDelay, err
	}
	return 0, w.writeJobStatus(ctx, status)
}

// shownStatus is the status that the hub shows of the copy.
func (w *statusWriter) shownStatus() map[string]any {
	status, cut := trainjobs.ShownStatus(w.seen.copy)
	if cut {
		w.events.statusCut()
	}
	return status
}

// reportStopping brings the status of a copy that is being stopped to the hub TrainJob: a queue on the hub gives the
// job's quota to others when no pod is active. A TrainJob without a status shows no active pod, so the first status is
// written at once.
func (w *statusWriter) reportStopping(ctx context.Context) (time.Duration, error) {
	if !w.seen.isCurrent(w.seen.copy) || trainjobs.Terminal(w.seen.copy) != nil {
		return 0, nil
	}
	if status := w.shownStatus(); w.attempt.written.pushed == 0 && w.seen.job.Object["status"] == nil && w.seen.hasNews(status) {
		if due := w.attempt.written.status.pace.Due(w.clock.Now()); due > 0 {
			return due, nil // The write was refused before.
		}
		return 0, w.writeJobStatus(ctx, status)
	}
	return w.syncStatus(ctx)
}

// finish says on the hub TrainJob how the copy ended, and then on the Dispatch. An end waits for nothing, unless the hub
// has refused it before.
func (w *statusWriter) finish(ctx context.Context) (time.Duration, error) {
	w.attempt.finishing.elapsed(w.clock.Now())
	if trainjobs.Terminal(w.seen.job) == nil {
		if due := w.attempt.written.status.pace.Due(w.clock.Now()); w.attempt.written.refused && due > 0 {
			return due, nil
		}
		if ok, err := w.maySpeak(ctx); !ok || err != nil {
			return requeue.ConflictDelay, err
		}
		if err := w.writeJobStatus(ctx, w.shownStatus()); err != nil {
			return 0, err
		}
		timeToReport.Observe(w.attempt.finishing.elapsed(w.clock.Now()).Seconds())
	}
	return 0, w.reporter.reportFinished(ctx)
}

// maySpeak is true if the copy's status may be written to the hub TrainJob. Whoever gives an attempt up removes what
// its copy has said, and then says on the Dispatch that the attempt is over. The cache may not show that yet. So a
// TrainJob without a status is doubted if this process, or an earlier one, may have written one.
//
// A TrainJob is not doubted for pushLag after a write: the cache may not show that write yet, and the next write has an
// optimistic lock.
func (w *statusWriter) maySpeak(ctx context.Context) (bool, error) {
	said := w.attempt.written
	spoke := said.pushed != 0 || said.before
	if !spoke || w.seen.job.Object["status"] != nil || w.clock.Since(said.pushedAt) < pushLag {
		return true, nil
	}
	return w.verifier.isStored(ctx)
}

// hasNews is true if status, which is to be shown of the copy, says something that the hub's does not. Counters that are
// all zero are no news to a hub that has none, and a copy without a status says nothing.
func (f *observation) hasNews(status map[string]any) bool {
	shown, _ := f.job.Object["status"].(map[string]any)
	if f.copy.Object["status"] == nil || equality.Semantic.DeepEqual(shown, status) {
		return false
	}
	if len(shown) > 0 {
		return true
	}
	for field, value := range status {
		if field != "jobsStatus" || anyCounter(value) {
			return true
		}
	}
	return false
}

func anyCounter(jobsStatus any) bool {
	jobs, _ := jobsStatus.([]any)
	for _, job := range jobs {
		fields, _ := job.(map[string]any)
		for _, value := range fields {
			if count, ok := value.(int64); ok && count > 0 {
				return true
			}
		}
	}
	return false
}

// writeJobStatus writes the status of the copy to the hub TrainJob. The optimistic lock makes it fail if the TrainJob
// has ended, or another TrainJob has got the name. The first status and the end are taken from the worker's budget here.
func (w *statusWriter) writeJobStatus(ctx context.Context, status map[string]any) error {
	said, now := &w.attempt.written, w.clock.Now()
	updated := w.seen.job.DeepCopy()
	if updated.Object["status"] = runtime.DeepCopyJSON(status); status == nil {
		delete(updated.Object, "status")
	}
	if said.status.turn.at.IsZero() {
		w.budget.spend(now, sizeOf(updated))
	}
	patch := client.MergeFromWithOptions(w.seen.job, client.MergeFromWithOptimisticLock{})
	err := w.hub.Status().Patch(ctx, updated, patch, records.FieldOwner)
	said.status.tried(err, now)
	if err != nil {
		err = fmt.Errorf("patch status of TrainJob %s/%s with what worker %q says: %w", w.seen.job.GetNamespace(), w.seen.job.GetName(), w.cluster, err)
		said.refused = records.IsFinal(err)
		return w.records.Refused(ctx, w.seen.dispatch, v1alpha1.ReasonTrainJobStatusRefused, err)
	}
	said.refused, said.pushed, said.pushedAt = false, hashStatus(status), w.clock.Now()
	return w.statusAccepted(ctx)
}

// statusAccepted removes from the Dispatch that the hub refuses the job's status. It writes nothing if the Dispatch
// does not say that.
func (w *statusWriter) statusAccepted(ctx context.Context) error {
	return w.records.Accepted(ctx, w.seen.dispatch, v1alpha1.ReasonTrainJobStatusRefused)
}

// hashStatus is the hash of a status. Without it, a field that the hub's CRD prunes would be written for ever.
func hashStatus(status map[string]any) uint64 {
	encoded, err := json.Marshal(status) // sorts keys
	if err != nil {
		return 0 // Not JSON, which no API server sends.
	}
	hash := fnv.New64a()
	_, _ = hash.Write(encoded)
	return hash.Sum64()
}

// takeBackStatus removes from the hub TrainJob the status of a copy that is gone: its counters are of pods that do not
// exist any more. It returns false if the cached Dispatch is not the API server's: another copy may have spoken.
func (w *statusWriter) takeBackStatus(ctx context.Context) (bool, error) {
	shown := w.seen.job.Object["status"] != nil || w.attempt.written.pushed != 0 // The cache may not show yet what was pushed.
	if !shown || trainjobs.Terminal(w.seen.job) != nil {
		return true, nil
	}
	if ok, err := w.verifier.dispatchIsCurrent(ctx); !ok || err != nil {
		return false, err
	}
	if err := w.records.TakeBackStatus(ctx, w.seen.job); err != nil {
		return false, err
	}
	w.attempt.written.pushed = 0
	return true, nil
}
