// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/executionlease/protocol"
	"github.com/trainyard/trainyard/internal/copies"
	"github.com/trainyard/trainyard/internal/requeue"
)

const (
	// restoreLimit is how often the hub changes a copy back until the job is moved.
	restoreLimit = 5
	// restoreWindow is for how long it counts that the hub has changed a copy back.
	restoreWindow = time.Hour
)

// restored counts how often the hub has changed back what somebody else had changed about the copy.
type restored struct {
	count int
	last  time.Time
	// checked is the generation of the copy whose spec was last found to be as it should.
	checked int64
}

// tooOften is true if somebody changes the copy again and again.
func (r *restored) tooOften(now time.Time) bool {
	if now.Sub(r.last) > restoreWindow {
		r.count = 0
	}
	return r.count >= restoreLimit
}

// mender keeps a copy that exists as it should be.
type mender struct {
	seen    *observation
	attempt *attempt
	hubID   string
	clock   clock.PassiveClock
	worker  copies.Worker
	// lease is Options.Lease.
	lease    func() (challenge string, ok bool)
	kueue    *workerKueue
	reporter *reporter
	events   *announcer
}

// mend makes the copy what it should be. It resumes a copy that the worker's agent has stopped when the agent allows
// that, and reverts changes that others have made on the worker. It returns when to look again.
func (m *mender) mend(ctx context.Context) (time.Duration, error) {
	due, written, err := m.permit(ctx)
	if written || err != nil {
		return due, err // The event of the write wakes us.
	}
	if m.seen.isStopped() || m.seen.isFenced() && !hasStarted(m.seen.copy) {
		due = requeue.Sooner(due, leaseCheck)
	}
	return due, m.restore(ctx)
}

// permit lets a stopped or suspended copy run if it may, and puts back the marks that the copy has lost. It returns
// when to look again, and true if there was something to write.
func (m *mender) permit(ctx context.Context) (time.Duration, bool, error) {
	may := m.permission()
	why, err := m.kueue.holdOf(ctx, may)
	if err != nil {
		return 0, false, err
	}
	var due time.Duration
	switch why {
	case unknown:
		due = workloadCheck
	case queued:
		due = m.attempt.suspension.due(m.seen.copy, m.clock.Now())
	case classless:
		return 0, true, m.dropClass(ctx)
	case refused:
		return 0, true, m.reporter.askEviction(ctx, v1alpha1.EvictionRejected,
			"the worker's Kueue does not admit the copy: "+m.seen.held.message)
	default:
	}
	lost, outdated := lostMarks(m.seen.copy, m.seen.dispatch, m.hubID, may), may.ok && isOutdated(m.seen.copy, may)
	if !why.ends() && len(lost) == 0 && !outdated {
		return due, false, nil
	}
	updated := m.seen.copy.DeepCopy()
	names := append(resume(updated, why, may), putBack(updated, lost)...)
	if outdated {
		trainjobs.SetAnnotation(updated, v1alpha1.AnnotationChallenge, may.challenge)
	}
	if patched, err := m.patchCopy(ctx, m.seen.copy, updated, names); !patched || err != nil {
		return 0, true, err
	}
	return due, true, nil
}

// dropClass takes a WorkloadPriorityClass off the copy that the worker does not have.
func (m *mender) dropClass(ctx context.Context) error {
	updated := m.seen.copy.DeepCopy()
	labels := updated.GetLabels()
	delete(labels, v1alpha1.LabelWorkloadPriorityClass)
	updated.SetLabels(labels)
	_, err := m.patchCopy(ctx, m.seen.copy, updated, nil)
	return err
}

// restore changes back what somebody has changed in the spec of the copy. A copy of generation 1 is as it was created,
// and each later generation is checked once.
func (m *mender) restore(ctx context.Context) error {
	generation, restored := m.seen.copy.GetGeneration(), &m.attempt.restored
	if generation <= 1 || generation == restored.checked {
		return nil
	}
	wanted := newSpec(m.seen.job, m.seen.dispatch, m.seen.copy)
	if sameSpec(wanted, specOf(m.seen.copy)) {
		restored.checked = generation
		return nil
	}
	// Only the API server says who wrote what: the cache has no managedFields.
	live, err := m.worker.Find(ctx, client.ObjectKeyFromObject(m.seen.dispatch))
	if err != nil || live == nil || live.GetUID() != m.seen.copy.GetUID() || live.GetGeneration() != generation {
		return err // Its event is on its way.
	}
	queued, err := m.kueue.isQueued(ctx, live)
	if err != nil {
		return err
	}
	changed := live.GetAnnotations()[v1alpha1.AnnotationSource] != sourceOf(m.seen.job)
	edits := editsOf(wanted, live, background{jobChanged: changed, queued: queued})
	if len(edits) == 0 {
		restored.checked = generation // The worker itself makes this of the job.
		return nil
	}
	names := make([]string, len(edits))
	updated := live.DeepCopy()
	for i, edit := range edits {
		names[i] = edit.String()
		edit.undo(specOf(updated))
	}
	if patched, err := m.patchCopy(ctx, live, updated, names); !patched || err != nil {
		return err
	}
	restored.checked = updated.GetGeneration() // What differs still was set by the worker's own admission, and stays.
	return nil
}

// patchCopy changes the copy on the worker. names are what somebody else has changed of it. If that happens again and
// again, or the worker does not let it be changed back, patchCopy has the job moved and returns false.
func (m *mender) patchCopy(ctx context.Context, from, to *unstructured.Unstructured, names []string) (patched bool, err error) {
	restored := &m.attempt.restored
	if len(names) > 0 && restored.tooOften(m.clock.Now()) {
		return false, m.reporter.evictChanged(ctx, names, "it is changed again and again")
	}
	err = m.worker.PatchCopy(ctx, from, to)
	switch {
	case isRefusal(err) && len(names) > 0:
		return false, m.reporter.evictChanged(ctx, names, "the worker does not let it be changed back: "+refusalWords(err))
	case err != nil:
		if isRefusal(err) {
			m.events.refusal(err)
		}
		return false, err
	}
	if len(names) > 0 {
		restored.count, restored.last = restored.count+1, m.clock.Now()
		m.events.restored(names)
	}
	return true, nil
}

// permission is what the worker's execution lease says about a copy.
type permission struct {
	// fenced is true if the agent has to stop the copy when the agent hears nothing from the hub.
	fenced bool
	// challenge is the last challenge that the hub has answered, empty for a copy that is not fenced.
	challenge string
	// ok is true if the copy may run: it is not fenced, or the agent is alive and lets such copies run.
	ok bool
}

// permission is what the worker's execution lease says about the job's copy.
func (m *mender) permission() permission {
	if !m.seen.isFenced() {
		return permission{ok: true}
	}
	challenge, ok := m.lease()
	return permission{fenced: true, challenge: challenge, ok: ok}
}

// maxChallengeLag is how many challenges a copy's challenge may be older than the latest one. Agents take about ten.
const maxChallengeLag = 5

// isOutdated is true if the copy has not started and its challenge is so old that the agent will not start the copy:
// the creation took long, or the worker has another agent now. The copy of the current attempt gets a new challenge.
func isOutdated(copy *unstructured.Unstructured, may permission) bool {
	if !may.fenced || hasStarted(copy) {
		return false
	}
	its, latest := protocol.ParseChallenge(copy.GetAnnotations()[v1alpha1.AnnotationChallenge]), protocol.ParseChallenge(may.challenge)
	return its.Run < latest.Run || its.Run == latest.Run && its.Number+maxChallengeLag <= latest.Number
}

// hasStarted is true if the copy has had a JobSet.
func hasStarted(copy *unstructured.Unstructured) bool { return len(trainjobs.JobsStatus(copy)) > 0 }

// mark is a label or annotation of ours, and its value. An empty value means that it must not be there.
type mark struct {
	label      bool
	key, value string
}

// lostMarks are the marks that a copy should have and does not have.
func lostMarks(copy *unstructured.Unstructured, dispatch *v1alpha1.Dispatch, hubID string, may permission) []mark {
	labels, annotations := marks(dispatch, hubID)
	if _, wanted := annotations[v1alpha1.AnnotationFailover]; !wanted {
		annotations[v1alpha1.AnnotationFailover] = ""
	}
	if may.fenced && may.ok && copy.GetAnnotations()[v1alpha1.AnnotationChallenge] == "" {
		annotations[v1alpha1.AnnotationChallenge] = may.challenge
	}
	var lost []mark
	for key, value := range labels {
		if copy.GetLabels()[key] != value {
			lost = append(lost, mark{label: true, key: key, value: value})
		}
	}
	for key, value := range annotations {
		if copy.GetAnnotations()[key] != value {
			lost = append(lost, mark{key: key, value: value})
		}
	}
	slices.SortFunc(lost, func(a, b mark) int { return strings.Compare(a.key, b.key) })
	return lost
}

// putBack sets the marks, and returns their names.
func putBack(copy *unstructured.Unstructured, lost []mark) []string {
	var names []string
	for _, mark := range lost {
		if mark.label {
			copy.SetLabels(merged(copy.GetLabels(), map[string]string{mark.key: mark.value}))
			names = append(names, "label "+mark.key)
		} else {
			trainjobs.SetAnnotation(copy, mark.key, mark.value)
			names = append(names, "annotation "+mark.key)
		}
	}
	return names
}
