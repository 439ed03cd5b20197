// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

var (
	t0      = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	t0Meta  = metav1.NewTime(t0)
	earlier = metav1.NewTime(t0.Add(-time.Hour))
	later   = metav1.NewTime(t0.Add(time.Minute))

	supported = []string{"TrainingRuntime.trainer.kubeflow.org", "ClusterTrainingRuntime.trainer.kubeflow.org"}
)

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

// job returns a TrainJob that was created at t0, changed by the given functions.
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

func ttl(seconds string) func(*trainer.TrainJob) {
	return func(j *trainer.TrainJob) { j.Annotations = map[string]string{v1alpha1.AnnotationTTL: seconds} }
}

func conditions(cs ...metav1.Condition) func(*trainer.TrainJob) {
	return func(j *trainer.TrainJob) { j.Status.Conditions = cs }
}

func jobsStatus(ready int32) []trainer.JobStatus {
	zero := new(int32(0))
	return []trainer.JobStatus{{Name: "node", Ready: &ready, Succeeded: zero, Failed: zero, Active: zero, Suspended: zero}}
}

// jobSet returns a JobSet with the TrainJob's name. The TrainJob with the given UID controls it, or nobody does.
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

// going returns the JobSet with a deletionTimestamp.
func going(js *jobsetv1alpha2.JobSet) *jobsetv1alpha2.JobSet {
	js.DeletionTimestamp = &earlier
	return js
}

// restarting returns the JobSet while it recreates its Jobs.
func restarting(js *jobsetv1alpha2.JobSet) *jobsetv1alpha2.JobSet {
	js.Status.Restarts = 1
	js.Status.Conditions = append(js.Status.Conditions, metav1.Condition{
		Type: "RestartingJobSet", Status: "True", Reason: "DefaultFailurePolicy", Message: "applying RestartJobSet action (first failed job: llm-node-0)",
	})
	return js
}

// steps returns the statuses of jobs. The arguments are pairs of a replicated job's name and its number of ready Jobs.
func steps(pairs ...any) []trainer.JobStatus {
	var jobs []trainer.JobStatus
	for i := 0; i < len(pairs); i += 2 {
		status := jobsStatus(int32(pairs[i+1].(int)))[0]
		status.Name = pairs[i].(string)
		jobs = append(jobs, status)
	}
	return jobs
}

func reports(jobs []trainer.JobStatus, cs ...metav1.Condition) *trainer.TrainJobStatus {
	return &trainer.TrainJobStatus{Conditions: cs, JobsStatus: jobs}
}

// TestDecide documents the state machine: one case for each way into a state, in the order of the states.
func TestDecide(t *testing.T) {
	unsupported := metav1.Condition{
		Type: "Failed", Status: "True", Reason: "TrainingRuntimeNotSupported", LastTransitionTime: t0Meta,
		Message: `runtimeRef has the unsupported kind "ServingRuntime.trainer.kubeflow.org"; supported are: ` +
			`ClusterTrainingRuntime.trainer.kubeflow.org, TrainingRuntime.trainer.kubeflow.org`,
	}
	type want struct {
		state   state
		action  action
		status  trainer.TrainJobStatus
		failure string
		recheck time.Duration
	}
	of := func(job *trainer.TrainJob, jobSet *jobsetv1alpha2.JobSet, reported ...*trainer.TrainJobStatus) observation {
		o := observation{trainJob: job, jobSet: jobSet, runtimeKinds: supported}
		if len(reported) > 0 {
			o.reported = reported[0]
		}
		return o
	}
	cases := map[string]struct {
		reason string
		seen   observation
		want   want
	}{
		"Foreign/MultiKueue": {
			reason: "A job that somebody else manages gets no status, whatever else is true of it.",
			seen:   of(job(managedBy("kueue.x-k8s.io/multikueue"), suspend, kind("ServingRuntime")), nil),
			want:   want{state: stateForeign},
		},
		"Foreign/AnyOther": {
			reason: "Where the CRD admits other values, they are not ours either.",
			seen:   of(job(managedBy("trainyard.dev/dispatcher")), nil),
			want:   want{state: stateForeign},
		},
		"Deleting": {
			reason: "A job that is being deleted gets neither objects nor status.",
			seen:   of(job(deleting, suspend), nil),
			want:   want{state: stateDeleting},
		},
		"Deleting/BeatsStopping": {
			reason: "The garbage collector deletes the JobSet then.",
			seen:   of(job(deleting, conditions(expired)), jobSet("uid-1", false)),
			want:   want{state: stateDeleting, status: reportsOnly(expired)},
		},
		"Stopping": {
			reason: "A JobSet that outlives the deadline has to go, however often that takes.",
			seen:   of(job(conditions(expired), deadline(time.Minute)), jobSet("uid-1", false)),
			want:   want{state: stateStopping, action: actionDeleteJobSet, status: reportsOnly(expired)},
		},
		"Stopping/UnderWay": {
			reason: "It is deleted once, and then waited for.",
			seen:   of(job(conditions(expired), deadline(time.Minute), ttl("0")), going(jobSet("uid-1", false))),
			want:   want{state: stateStopping, status: reportsOnly(expired)},
		},
		"Stopping/Over": {
			reason: "Once it is gone, the job is at rest.",
			seen:   of(job(conditions(expired), deadline(time.Minute)), nil),
			want:   want{state: stateFailed, status: reportsOnly(expired)},
		},
		"Stopping/NoNamesake": {
			reason: "A JobSet of another owner is not deleted for our deadline.",
			seen:   of(job(conditions(expired), deadline(time.Minute)), jobSet("uid-0", false)),
			want:   want{state: stateFailed, status: reportsOnly(expired)},
		},
		"Complete/IsFinal": {
			reason: "A JobSet that is gone after Complete is not built again.",
			seen:   of(job(conditions(complete)), nil),
			want:   want{state: stateComplete, status: reportsOnly(complete)},
		},
		"Complete/JobSetSaysSo": {
			reason: "Condition and counts are copied, and keep the time that the JobSet gave them.",
			seen:   of(job(), jobSet("uid-1", false), reports(jobsStatus(0), complete)),
			want:   want{state: stateComplete, status: *reports(jobsStatus(0), complete)},
		},
		"Complete/BeforeDeadlineWasSeen": {
			reason: "What the JobSet says goes before what the clock says.",
			seen:   of(job(deadline(time.Second), conditions(at(resumed, earlier))), jobSet("uid-1", false), reports(nil, complete)),
			want:   want{state: stateComplete, status: *reports(nil, resumed, complete)},
		},
		"Complete/KeptForTTL": {
			reason: "The TTL begins with the end.",
			seen:   of(job(conditions(complete), ttl("3660")), nil),
			want:   want{state: stateComplete, status: reportsOnly(complete), recheck: time.Minute},
		},
		"Complete/TTLOver": {
			reason: "Over is when it is reached.",
			seen:   of(job(conditions(complete), ttl("3600")), nil),
			want:   want{state: stateComplete, action: actionDeleteTrainJob, status: reportsOnly(complete)},
		},
		"Complete/TTLUnreadable": {
			reason: "To keep a job too long is better than to delete it too early.",
			seen:   of(job(conditions(complete), ttl("1h")), nil),
			want:   want{state: stateComplete, status: reportsOnly(complete)},
		},
		"Failed/IsFinal": {
			reason: "The status does not change any more, not even to what a JobSet says later, nor by suspending.",
			seen:   of(job(conditions(failed), suspend), jobSet("uid-1", false), reports(jobsStatus(1), complete)),
			want:   want{state: stateFailed, status: reportsOnly(failed)},
		},
		"Failed/TTLOver": {
			reason: "A failed job has a TTL as well.",
			seen:   of(job(conditions(failed), ttl("0")), nil),
			want:   want{state: stateFailed, action: actionDeleteTrainJob, status: reportsOnly(failed)},
		},
		"Failed/UnknownKindOfRuntime": {
			reason: "It can never run: the status says which kinds exist.",
			seen:   of(job(kind("ServingRuntime")), nil),
			want:   want{state: stateFailed, status: reportsOnly(unsupported), failure: unsupported.Message},
		},
		"Failed/JobSetSaysSo": {
			reason: "Other conditions stay where they are.",
			seen:   of(job(conditions(resumed)), jobSet("uid-1", false), reports(jobsStatus(0), resumed, failed)),
			want:   want{state: stateFailed, status: *reports(jobsStatus(0), resumed, failed), failure: failed.Message},
		},
		"Failed/DeadlineReached": {
			reason: "Reached is passed. The JobSet is deleted when the status says why.",
			seen:   of(job(deadline(time.Hour), conditions(resumed)), jobSet("uid-1", false)),
			want:   want{state: stateFailed, status: *reports(nil, resumed, at(expired, t0Meta)), failure: expired.Message},
		},
		"Failed/DeadlineReachedWithoutJobSet": {
			reason: "A job that could not be built in time has failed as well.",
			seen:   of(job(deadline(time.Hour), conditions(resumed)), nil),
			want:   want{state: stateFailed, status: *reports(nil, resumed, at(expired, t0Meta)), failure: expired.Message},
		},
		"Blocked/ForeignJobSet": {
			reason: "A JobSet without our owner reference is neither taken over nor read.",
			seen:   of(job(), jobSet("", false)),
			want:   want{state: stateBlocked, recheck: waitReported},
		},
		"Blocked/EarlierJobOfTheName": {
			reason: "A job created again at once must not inherit its predecessor's end.",
			seen:   of(job(suspend), jobSet("uid-0", false)),
			want: want{
				state: stateBlocked, action: actionDeletePredecessor, status: reportsOnly(at(suspended, t0Meta)), recheck: leftoverTime,
			},
		},
		"Suspended/WithoutJobSet": {
			reason: "The JobSet is built suspended.",
			seen:   of(job(suspend), nil),
			want:   want{state: stateSuspended, action: actionBuild, status: reportsOnly(at(suspended, t0Meta))},
		},
		"Suspended/WhileRunning": {
			reason: "The condition follows the spec; the counts follow the JobSet.",
			seen:   of(job(suspend, conditions(resumed)), jobSet("uid-1", false), reports(jobsStatus(1), resumed)),
			want:   want{state: stateSuspended, action: actionBuild, status: *reports(jobsStatus(1), at(suspended, t0Meta))},
		},
		"Suspended/Still": {
			reason: "The condition keeps its time, and no deadline passes.",
			seen:   of(job(suspend, deadline(time.Second), conditions(suspended)), jobSet("uid-1", true)),
			want:   want{state: stateSuspended, action: actionBuild, status: reportsOnly(suspended)},
		},
		"Suspended/JobSetGoing": {
			reason: "A JobSet that is made anew has to be gone first.",
			seen:   of(job(suspend, conditions(suspended)), going(jobSet("uid-1", true))),
			want:   want{state: stateSuspended, status: reportsOnly(suspended)},
		},
		"Created": {
			reason: "A job that was never suspended has no condition.",
			seen:   of(job(), nil),
			want:   want{state: stateCreated, action: actionBuild},
		},
		"Created/ManagedByNobody": {
			reason: "No value is the built-in one.",
			seen:   of(job(unmanaged), nil),
			want:   want{state: stateCreated, action: actionBuild},
		},
		"Created/Resumed": {
			reason: "Suspended=False says that it once was True, and the deadline starts anew.",
			seen:   of(job(deadline(time.Minute), conditions(suspended)), jobSet("uid-1", true)),
			want: want{
				state: stateCreated, action: actionBuild, status: reportsOnly(at(resumed, t0Meta)), recheck: time.Minute,
			},
		},
		"Created/ClockWentBack": {
			reason: "Another machine leads now and its clock is behind. A condition's time does not go back.",
			seen:   of(job(conditions(at(suspended, later))), jobSet("uid-1", true)),
			want:   want{state: stateCreated, action: actionBuild, status: reportsOnly(at(resumed, later))},
		},
		"Created/JobSetDeleted": {
			reason: "Somebody deletes the JobSet of a job that is not over: it is made anew when it is gone.",
			seen:   of(job(), going(jobSet("uid-1", false))),
			want:   want{state: stateCreated},
		},
		"Restarting": {
			reason: "The JobSet's failure policy makes all Jobs anew.",
			seen:   of(job(), restarting(jobSet("uid-1", false)), reports(jobsStatus(1))),
			want:   want{state: stateRestarting, action: actionBuild, status: *reports(jobsStatus(1))},
		},
		"Running": {
			reason: "While a job runs, jobsStatus is all that moves.",
			seen:   of(job(conditions(resumed)), jobSet("uid-1", false), reports(jobsStatus(1), resumed)),
			want:   want{state: stateRunning, action: actionBuild, status: *reports(jobsStatus(1), resumed)},
		},
		"Running/Launcher": {
			reason: "Whatever is no initializer counts as running.",
			seen:   of(job(), jobSet("uid-1", false), reports(steps("launcher", 1, "node", 0))),
			want:   want{state: stateRunning, action: actionBuild, status: *reports(steps("launcher", 1, "node", 0))},
		},
		"Initializing": {
			reason: "The trainer waits for the initializers.",
			seen:   of(job(), jobSet("uid-1", false), reports(steps("dataset-initializer", 0, "model-initializer", 1, "node", 0))),
			want: want{
				state: stateInitializing, action: actionBuild,
				status: *reports(steps("dataset-initializer", 0, "model-initializer", 1, "node", 0)),
			},
		},
		"Starting": {
			reason: "The JobSet runs, its pods are not ready. The deadline is looked at when it is reached.",
			seen:   of(job(deadline(time.Minute)), jobSet("uid-1", false)),
			want:   want{state: stateStarting, action: actionBuild, recheck: time.Minute},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f, before := tc.seen, tc.seen.trainJob.DeepCopy()
			d := decide(f, rules{}, t0)
			got := want{d.state, d.action, d.status, d.failure, d.recheck}
			check.Diff(t, tc.want, got, fmt.Sprintf("%s\ndecision", tc.reason), cmp.AllowUnexported(want{}))
			check.Diff(t, before, f.trainJob, "decide has changed its argument")
			// Once the status is written, the same decision changes nothing.
			f.trainJob = f.trainJob.DeepCopy()
			f.trainJob.Status = d.status
			check.Diff(t, d.status, decide(f, rules{}, t0.Add(time.Millisecond)).status,
				"the second decision has another status")
		})
	}
}

func TestHeldJobIsNotBuilt(t *testing.T) {
	for _, j := range []*trainer.TrainJob{job(), job(suspend)} {
		f := observation{trainJob: j, runtimeKinds: supported, held: "its hub has yet to answer"}
		if d := decide(f, rules{}, t0); d.action != actionNone {
			t.Errorf("%s: a job that is held gets the action %s", d.state, d.action)
		}
	}
}

func reportsOnly(cs ...metav1.Condition) trainer.TrainJobStatus {
	return *reports(nil, cs...)
}

func TestEmptyReportKeepsStatus(t *testing.T) {
	f := observation{trainJob: job(), jobSet: jobSet("uid-1", false), reported: reports(nil), runtimeKinds: supported}
	f.trainJob.Status.JobsStatus = jobsStatus(1)
	got := decide(f, rules{}, t0)
	check.Diff(t, jobsStatus(1), got.status.JobsStatus,
		"a JobSet that was built anew has emptied the status, which the CRD refuses")
}

func TestStateNames(t *testing.T) {
	seen := map[string]state{}
	for s := stateForeign; s <= stateStarting; s++ {
		name := s.String()
		if other, ok := seen[name]; ok {
			t.Errorf("states %d and %d are both called %q", other, s, name)
		}
		seen[name] = s
	}
	check.Equal(t, "state(99)", state(99).String(), "state 99")
	check.Equal(t, "Starting", stateStarting.String(), "the last state")
}
