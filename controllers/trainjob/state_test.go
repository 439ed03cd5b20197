// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

var (
	t0      = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	t0Meta  = metav1.NewTime(t0)
	earlier = metav1.NewTime(t0.Add(-time.Hour))

	supported = []string{"TrainingRuntime.trainer.kubeflow.org", "ClusterTrainingRuntime.trainer.kubeflow.org"}
)

// The conditions that a TrainJob can have.
var (
	suspended = metav1.Condition{
		Type: "Suspended", Status: "True", Reason: "Suspended", Message: "TrainJob is suspended", LastTransitionTime: earlier,
	}
	resumed = metav1.Condition{
		Type: "Suspended", Status: "False", Reason: "Resumed", Message: "TrainJob is resumed", LastTransitionTime: earlier,
	}
	complete = metav1.Condition{
		Type: "Complete", Status: "True", Reason: "AllJobsCompleted", Message: "jobset completed successfully", LastTransitionTime: earlier,
	}
	failed = metav1.Condition{
		Type: "Failed", Status: "True", Reason: "FailedJobs", Message: "jobset failed due to one or more job failures",
		LastTransitionTime: earlier,
	}
	expired = metav1.Condition{
		Type: "Failed", Status: "True", Reason: "DeadlineExceeded", Message: "TrainJob exceeded its active deadline",
		LastTransitionTime: earlier,
	}
)

func at(c metav1.Condition, t metav1.Time) metav1.Condition {
	c.LastTransitionTime = t
	return c
}

// job returns a TrainJob created at t0, changed by the given functions.
func job(changes ...func(*trainer.TrainJob)) *trainer.TrainJob {
	j := &trainer.TrainJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "llm", UID: "uid-1", CreationTimestamp: t0Meta},
		Spec: trainer.TrainJobSpec{
			RuntimeRef: trainer.RuntimeRef{
				Name: "torch-distributed", APIGroup: new("trainer.kubeflow.org"), Kind: new("ClusterTrainingRuntime"),
			},
			Suspend:   new(false),
			ManagedBy: new("trainer.kubeflow.org/trainjob-controller"),
		},
	}
	for _, change := range changes {
		change(j)
	}
	return j
}

func suspend(j *trainer.TrainJob)   { j.Spec.Suspend = new(true) }
func deleting(j *trainer.TrainJob)  { j.DeletionTimestamp = &earlier }
func unmanaged(j *trainer.TrainJob) { j.Spec.ManagedBy = nil }

func managedBy(who string) func(*trainer.TrainJob) {
	return func(j *trainer.TrainJob) { j.Spec.ManagedBy = &who }
}

func kind(k string) func(*trainer.TrainJob) {
	return func(j *trainer.TrainJob) { j.Spec.RuntimeRef.Kind = &k }
}

func deadline(d time.Duration) func(*trainer.TrainJob) {
	return func(j *trainer.TrainJob) { j.Spec.ActiveDeadlineSeconds = int64(d / time.Second) }
}

func conditions(cs ...metav1.Condition) func(*trainer.TrainJob) {
	return func(j *trainer.TrainJob) { j.Status.Conditions = cs }
}

func jobsStatus(ready int32) []trainer.JobStatus {
	zero := new(int32(0))
	return []trainer.JobStatus{{Name: "node", Ready: &ready, Succeeded: zero, Failed: zero, Active: zero, Suspended: zero}}
}

// jobSet returns a JobSet of the TrainJob's name, controlled by the TrainJob with the given UID, or by nobody.
func jobSet(owner types.UID, suspended bool) *jobsetv1alpha2.JobSet {
	js := &jobsetv1alpha2.JobSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "llm"},
		Spec:       jobsetv1alpha2.JobSetSpec{Suspend: &suspended},
	}
	if owner != "" {
		js.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "trainer.kubeflow.org/v1alpha1", Kind: "TrainJob", Name: "llm", UID: owner, Controller: new(true),
		}}
	}
	return js
}

func reports(jobs []trainer.JobStatus, cs ...metav1.Condition) *trainer.TrainJobStatus {
	return &trainer.TrainJobStatus{Conditions: cs, JobsStatus: jobs}
}

// TestDecide is the documentation of the state machine: one case per way into a state, in the order of the states.
func TestDecide(t *testing.T) {
	unsupported := metav1.Condition{
		Type: "Failed", Status: "True", Reason: "TrainingRuntimeNotSupported", LastTransitionTime: t0Meta,
		Message: `runtimeRef has the unsupported kind "ServingRuntime.trainer.kubeflow.org"; supported are: ` +
			`ClusterTrainingRuntime.trainer.kubeflow.org, TrainingRuntime.trainer.kubeflow.org`,
	}
	type want struct {
		state   state
		status  trainer.TrainJobStatus
		recheck time.Duration
	}
	cases := map[string]struct {
		reason   string
		job      *trainer.TrainJob
		jobSet   *jobsetv1alpha2.JobSet
		reported *trainer.TrainJobStatus
		want     want
	}{
		"ManagedByMultiKueue": {
			reason: "A job that somebody else manages gets no status, whatever else is true of it.",
			job:    job(managedBy("kueue.x-k8s.io/multikueue"), suspend, kind("ServingRuntime")),
			want:   want{state: stateForeign},
		},
		"ManagedByAnyOther": {
			reason: "Where the CRD admits other values, they are not ours either.",
			job:    job(managedBy("trainyard.dev/dispatcher")),
			want:   want{state: stateForeign},
		},
		"ManagedByNobody": {
			reason: "No value is the built-in one.",
			job:    job(unmanaged),
			want:   want{state: statePending},
		},
		"Deleting": {
			reason: "A job that is being deleted gets neither objects nor status.",
			job:    job(deleting, suspend),
			want:   want{state: stateDeleting},
		},
		"DeletingBeatsStopping": {
			reason: "The garbage collector deletes the JobSet then.",
			job:    job(deleting, conditions(expired)),
			jobSet: jobSet("uid-1", false),
			want:   want{state: stateDeleting, status: reportsOnly(expired)},
		},
		"StoppingAfterDeadline": {
			reason: "A JobSet that outlives the deadline has to go, however often that takes.",
			job:    job(conditions(expired), deadline(time.Minute)),
			jobSet: jobSet("uid-1", false),
			want:   want{state: stateStopping, status: reportsOnly(expired)},
		},
		"StoppedAfterDeadline": {
			reason: "Once it is gone, the job is at rest.",
			job:    job(conditions(expired), deadline(time.Minute)),
			want:   want{state: stateFinished, status: reportsOnly(expired)},
		},
		"StoppingTouchesNoNamesake": {
			reason: "A JobSet of another owner is not deleted for our deadline.",
			job:    job(conditions(expired), deadline(time.Minute)),
			jobSet: jobSet("uid-0", false),
			want:   want{state: stateFinished, status: reportsOnly(expired)},
		},
		"CompleteIsFinal": {
			reason: "A JobSet that is gone after Complete is not built again.",
			job:    job(conditions(complete)),
			want:   want{state: stateFinished, status: reportsOnly(complete)},
		},
		"FailedIsFinal": {
			reason:   "The status does not change any more, not even to what a JobSet says later, nor by suspending.",
			job:      job(conditions(failed), suspend),
			jobSet:   jobSet("uid-1", false),
			reported: reports(jobsStatus(1), complete),
			want:     want{state: stateFinished, status: reportsOnly(failed)},
		},
		"UnknownKindOfRuntime": {
			reason: "It can never run: the status says which kinds exist.",
			job:    job(kind("ServingRuntime")),
			want:   want{state: stateUnsupported, status: reportsOnly(unsupported)},
		},
		"JobSetCompleted": {
			reason:   "Condition and counts are copied, and keep the time that the JobSet gave them.",
			job:      job(),
			jobSet:   jobSet("uid-1", false),
			reported: reports(jobsStatus(0), complete),
			want:     want{state: stateEnding, status: *reports(jobsStatus(0), complete)},
		},
		"JobSetFailed": {
			reason:   "Other conditions stay where they are.",
			job:      job(conditions(resumed)),
			jobSet:   jobSet("uid-1", false),
			reported: reports(jobsStatus(0), resumed, failed),
			want:     want{state: stateEnding, status: *reports(jobsStatus(0), resumed, failed)},
		},
		"JobSetEndedBeforeDeadlineWasSeen": {
			reason:   "What the JobSet says goes before what the clock says.",
			job:      job(deadline(time.Second), conditions(at(resumed, earlier))),
			jobSet:   jobSet("uid-1", false),
			reported: reports(nil, complete),
			want:     want{state: stateEnding, status: *reports(nil, resumed, complete)},
		},
		"DeadlineReached": {
			reason: "Reached is passed.",
			job:    job(deadline(time.Hour), conditions(resumed)),
			jobSet: jobSet("uid-1", false),
			want:   want{state: stateExpired, status: *reports(nil, resumed, at(expired, t0Meta))},
		},
		"DeadlineReachedWithoutJobSet": {
			reason: "A job that could not be built in time has failed as well.",
			job:    job(deadline(time.Hour), conditions(resumed)),
			want:   want{state: stateExpired, status: *reports(nil, resumed, at(expired, t0Meta))},
		},
		"DeadlineAhead": {
			reason: "It is looked at again when it is reached.",
			job:    job(deadline(time.Minute)),
			jobSet: jobSet("uid-1", false),
			want:   want{state: stateRunning, recheck: time.Minute},
		},
		"DeadlineStartsAnewOnResume": {
			reason: "The time before the suspension does not count.",
			job:    job(deadline(time.Minute), conditions(suspended)),
			jobSet: jobSet("uid-1", true),
			want:   want{state: stateResuming, status: reportsOnly(at(resumed, t0Meta)), recheck: time.Minute},
		},
		"DeadlineStopsWhileSuspended": {
			reason: "A suspended job does not expire.",
			job:    job(suspend, deadline(time.Second), conditions(at(suspended, earlier))),
			jobSet: jobSet("uid-1", true),
			want:   want{state: stateSuspended, status: reportsOnly(suspended)},
		},
		"BlockedByForeignJobSet": {
			reason: "A JobSet without our owner reference is neither taken over nor read.",
			job:    job(),
			jobSet: jobSet("", false),
			want:   want{state: stateBlocked},
		},
		"BlockedByEarlierJobOfTheName": {
			reason: "A job created again at once must not inherit its predecessor's end.",
			job:    job(suspend),
			jobSet: jobSet("uid-0", false),
			want:   want{state: stateBlocked, status: reportsOnly(at(suspended, t0Meta))},
		},
		"SuspendedWithoutJobSet": {
			reason: "The JobSet is built suspended.",
			job:    job(suspend),
			want:   want{state: stateSuspended, status: reportsOnly(at(suspended, t0Meta))},
		},
		"SuspendedWhileRunning": {
			reason:   "The condition follows the spec; the counts follow the JobSet.",
			job:      job(suspend, conditions(resumed)),
			jobSet:   jobSet("uid-1", false),
			reported: reports(jobsStatus(1), resumed),
			want:     want{state: stateSuspended, status: *reports(jobsStatus(1), at(suspended, t0Meta))},
		},
		"StillSuspended": {
			reason: "The condition keeps its time.",
			job:    job(suspend, conditions(suspended)),
			jobSet: jobSet("uid-1", true),
			want:   want{state: stateSuspended, status: reportsOnly(suspended)},
		},
		"Pending": {
			reason: "A job that was never suspended has no condition.",
			job:    job(),
			want:   want{state: statePending},
		},
		"Resuming": {
			reason: "Suspended=False says that it once was True.",
			job:    job(conditions(suspended)),
			jobSet: jobSet("uid-1", true),
			want:   want{state: stateResuming, status: reportsOnly(at(resumed, t0Meta))},
		},
		"Running": {
			reason:   "While a job runs, jobsStatus is all that moves.",
			job:      job(conditions(resumed)),
			jobSet:   jobSet("uid-1", false),
			reported: reports(jobsStatus(1), resumed),
			want:     want{state: stateRunning, status: *reports(jobsStatus(1), resumed)},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := facts{trainJob: tc.job, jobSet: tc.jobSet, reported: tc.reported, runtimeKinds: supported}
			before := tc.job.DeepCopy()
			got := decide(f, t0)
			if got.state != tc.want.state {
				t.Errorf("%s\nstate: got %s, want %s", tc.reason, got.state, tc.want.state)
			}
			if diff := cmp.Diff(tc.want.status, got.status); diff != "" {
				t.Errorf("%s\nstatus (-want +got):\n%s", tc.reason, diff)
			}
			if got.recheck != tc.want.recheck {
				t.Errorf("%s\nrecheck: got %s, want %s", tc.reason, got.recheck, tc.want.recheck)
			}
			if diff := cmp.Diff(before, tc.job); diff != "" {
				t.Errorf("decide has changed its argument (-before +after):\n%s", diff)
			}
			// Once the status is written, deciding again changes nothing.
			f.trainJob = tc.job.DeepCopy()
			f.trainJob.Status = got.status
			if diff := cmp.Diff(got.status, decide(f, t0.Add(time.Millisecond)).status); diff != "" {
				t.Errorf("the second decision has another status (-first +second):\n%s", diff)
			}
		})
	}
}

func reportsOnly(cs ...metav1.Condition) trainer.TrainJobStatus {
	return *reports(nil, cs...)
}

func TestEmptyReportKeepsStatus(t *testing.T) {
	f := facts{trainJob: job(), jobSet: jobSet("uid-1", false), reported: reports(nil), runtimeKinds: supported}
	f.trainJob.Status.JobsStatus = jobsStatus(1)
	got := decide(f, t0)
	if diff := cmp.Diff(jobsStatus(1), got.status.JobsStatus); diff != "" {
		t.Errorf("a JobSet that was built anew has emptied the status, which the CRD refuses (-want +got):\n%s", diff)
	}
}

func TestStateNames(t *testing.T) {
	seen := map[string]state{}
	for s := stateForeign; s <= stateRunning; s++ {
		name := s.String()
		if other, ok := seen[name]; ok {
			t.Errorf("states %d and %d are both called %q", other, s, name)
		}
		seen[name] = s
	}
	if got := state(99).String(); got != "state(99)" {
		t.Errorf("state 99: got %q", got)
	}
	if got := stateRunning.String(); got != "Running" {
		t.Errorf("the last state: got %q, want Running", got)
	}
}
