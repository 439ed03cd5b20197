// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"cmp"
	"fmt"
	"slices"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
)

// course is what the JobSet of a copy says about it. The time is of the worker's clock, and is only shown.
type course struct {
	// restarts of the JobSet as a whole and of its Jobs.
	restarts int32
	// startTime is nil while the JobSet is suspended.
	startTime *metav1.Time
	// ttl is for how many seconds the worker keeps the JobSet after its end, nil for ever.
	ttl *int32
}

// courseOf reads a JobSet.
func courseOf(object *unstructured.Unstructured) (course, error) {
	var jobSet jobsetv1alpha2.JobSet
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &jobSet); err != nil {
		return course{}, fmt.Errorf("convert JobSet %s/%s: %w", object.GetNamespace(), object.GetName(), err)
	}
	c := course{restarts: jobSet.Status.Restarts, startTime: startTime(&jobSet), ttl: jobSet.Spec.TTLSecondsAfterFinished}
	for _, job := range jobSet.Status.ReplicatedJobsStatus {
		for _, restarts := range job.JobRestarts {
			c.restarts += restarts
		}
	}
	return c, nil
}

// startTime is when the JobSet was last resumed, or created if it has never been suspended.
func startTime(jobSet *jobsetv1alpha2.JobSet) *metav1.Time {
	suspended := meta.FindStatusCondition(jobSet.Status.Conditions, string(jobsetv1alpha2.JobSetSuspended))
	switch {
	case jobSet.Spec.Suspend != nil && *jobSet.Spec.Suspend:
		return nil
	case suspended == nil:
		return &jobSet.CreationTimestamp
	case suspended.Status == metav1.ConditionTrue:
		return nil // It is being resumed.
	default:
		return &suspended.LastTransitionTime
	}
}

// showProgress brings steps, restarts and times to the status of the Dispatch, which may be about an earlier attempt.
// Values of this attempt stay when its JobSet is gone.
func (f *observation) showProgress(status *v1alpha1.DispatchStatus) {
	if !f.dispatch.WasCopied() {
		record.ClearProgress(status)
	}
	said := f.copy
	end := trainjobs.Terminal(f.job)
	if end != nil {
		said = f.job // The end of the hub's job is final, whatever the copy says.
	} else {
		end = trainjobs.Terminal(f.copy)
	}
	status.Steps = trainjobs.Steps(inOrder(trainjobs.JobsStatus(said), f.dispatch.Spec.PodSets))
	if end != nil {
		endSteps(status.Steps, end.Type)
	}
	status.CompletionTime = trainjobs.CompletionTime(said)
	f.reports.show(status)
	if f.course != nil {
		if status.StartTime != nil && !status.StartTime.Equal(f.course.startTime) && end == nil {
			status.Stops++ // The JobSet is suspended, or was and has been resumed.
		}
		status.Restarts, status.StartTime = f.course.restarts+status.Stops, f.course.startTime
	}
}

// inOrder sorts jobs as the runtime has them. Jobs that the runtime does not have come last.
func inOrder(jobs []trainer.JobStatus, podSets []v1alpha1.PodSet) []trainer.JobStatus {
	place := func(job trainer.JobStatus) int {
		at := slices.IndexFunc(podSets, func(podSet v1alpha1.PodSet) bool { return podSet.Name == job.Name })
		if at < 0 {
			return len(podSets)
		}
		return at
	}
	slices.SortStableFunc(jobs, func(a, b trainer.JobStatus) int { return place(a) - place(b) })
	return jobs
}

// endSteps ends the steps that have not ended when the job ends: those that run, as MPI's workers do when the launcher
// has succeeded, and those that a Complete job did not need (successPolicy Any).
func endSteps(steps []v1alpha1.Step, end string) {
	for i := range steps {
		switch state := steps[i].State; {
		case end == trainer.TrainJobFailed && state == v1alpha1.StepRunning:
			steps[i].State = v1alpha1.StepFailed
		case end == trainer.TrainJobFailed:
		case state == v1alpha1.StepRunning:
			steps[i].State = v1alpha1.StepSucceeded
		case state == v1alpha1.StepWaiting:
			steps[i].State = v1alpha1.StepStopped
		}
	}
}

// hasProgressed is true if the Dispatch has to show another phase, other steps or restarts, another checkpoint, or that a
// stopped copy goes on.
func (f *observation) hasProgressed() bool {
	shown, current := &f.dispatch.Status, f.progress()
	if phase, _ := f.phaseAt(&current); phase != shown.Phase {
		return true
	}
	if shown.Stops > 0 && shown.StartTime == nil && current.StartTime != nil {
		return true // Otherwise the next stop would not be noticed.
	}
	if saved := f.reports.saved; saved != nil && !equality.Semantic.DeepEqual(saved, shown.LastCheckpoint) {
		return true
	}
	return current.Restarts != shown.Restarts || !equality.Semantic.DeepEqual(current.Steps, shown.Steps)
}

// progress is what the Dispatch has to show of the copy's progress.
func (f *observation) progress() v1alpha1.DispatchStatus {
	shown := &f.dispatch.Status
	current := v1alpha1.DispatchStatus{Restarts: shown.Restarts, Stops: shown.Stops, StartTime: shown.StartTime}
	f.showProgress(&current)
	return current
}

// phase is the phase, with its reason, of a job that has a copy.
func (f *observation) phase() (v1alpha1.DispatchPhase, string) {
	current := f.progress()
	return f.phaseAt(&current)
}

// phaseAt is phase for progress that is known already.
func (f *observation) phaseAt(current *v1alpha1.DispatchStatus) (v1alpha1.DispatchPhase, string) {
	if f.isHeld() {
		return v1alpha1.PhaseQueued, cmp.Or(f.held.reason, v1alpha1.ReasonHeldByWorker)
	}
	shown := v1alpha1.DispatchStatus{}
	if f.dispatch.WasCopied() {
		shown = f.dispatch.Status
	}
	return record.CopiedPhase(&shown, current), v1alpha1.ReasonCopied
}

// copiedMessage is the message of the condition Mirrored of a copy that no queue keeps suspended.
func (f *observation) copiedMessage(worker v1alpha1.ClusterName) string {
	message := fmt.Sprintf("the copy exists on worker %q", worker)
	if f.course == nil || f.course.ttl == nil {
		return message
	}
	kind, runtime := trainjobs.RuntimeOf(f.copy)
	return message + fmt.Sprintf("; its JobSet has ttlSecondsAfterFinished %d, by %s %q of the worker: if JobSet deletes it before the hub "+
		"has seen its end, the job runs again; remove the field from that runtime, the hub deletes ended copies itself",
		*f.course.ttl, kind, runtime.Name)
}

// saysTTL says whether the Dispatch says what the JobSet has for a TTL.
func (f *observation) saysTTL(worker v1alpha1.ClusterName) bool {
	mirrored := meta.FindStatusCondition(f.dispatch.Status.Conditions, v1alpha1.DispatchMirrored)
	return f.course == nil || f.course.ttl == nil || mirrored == nil || mirrored.Reason != v1alpha1.ReasonCopied ||
		mirrored.Message == record.Message(f.copiedMessage(worker))
}

// isHeldOtherwise is true if the worker's Kueue holds the copy, and the Dispatch shows other words than Kueue's present
// words.
func (f *observation) isHeldOtherwise(worker v1alpha1.ClusterName) bool {
	if f.held.message == "" || !f.isHeld() {
		return false
	}
	mirrored := meta.FindStatusCondition(f.dispatch.Status.Conditions, v1alpha1.DispatchMirrored)
	return f.dispatch.Status.Reason != f.held.reason || mirrored == nil || mirrored.Message != record.Message(f.held.on(worker))
}
