// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package explanation_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/views/explanation"
	"github.com/trainyard/trainyard/views/jobs"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func trainJob(edits ...func(map[string]any)) *unstructured.Unstructured {
	job := trainjobs.New()
	job.SetName("llama")
	job.SetNamespace("research")
	job.SetUID("uid")
	job.SetCreationTimestamp(metav1.NewTime(now.Add(-time.Hour)))
	job.Object["spec"] = map[string]any{"managedBy": v1alpha1.ManagedByMultiKueue}
	for _, edit := range edits {
		edit(job.Object)
	}
	return job
}

func managedBy(value string) func(map[string]any) {
	return func(o map[string]any) { o["spec"].(map[string]any)["managedBy"] = value }
}

func suspended(o map[string]any) { o["spec"].(map[string]any)["suspend"] = true }

func failed(o map[string]any) {
	o["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Failed", "status": "True", "reason": "JobFailed", "message": "exit code 1"}}}
}

func deleted(o map[string]any) {
	o["metadata"].(map[string]any)["deletionTimestamp"] = "2026-11-21T12:00:00Z"
}

// condition returns a condition of a Dispatch.
func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

func dispatchOf(edits ...func(*v1alpha1.Dispatch)) *v1alpha1.Dispatch {
	d := &v1alpha1.Dispatch{
		ObjectMeta: metav1.ObjectMeta{Namespace: "research", Name: "llama"},
		Spec:       v1alpha1.DispatchSpec{TrainJob: v1alpha1.TrainJobReference{Name: "llama", UID: "uid"}, Priority: 7},
	}
	for _, edit := range edits {
		edit(d)
	}
	return d
}

func placed(d *v1alpha1.Dispatch) {
	d.Spec.Cluster, d.Spec.Attempt, d.Status.Attempt = "west", 2, 2
	d.Annotations = map[string]string{v1alpha1.AnnotationDecision: "score 50: LeastAllocated 50; the only worker on which the job fits"}
	d.Status.History = []v1alpha1.Attempt{{Attempt: 1, Cluster: "east", To: metav1.NewTime(now.Add(-30 * time.Minute)), Outcome: v1alpha1.OutcomeRejected, Message: "no\nquota"}}
}

func with(c metav1.Condition) func(*v1alpha1.Dispatch) {
	return func(d *v1alpha1.Dispatch) { d.Status.Conditions = append(d.Status.Conditions, c) }
}

func explained(d *v1alpha1.Dispatch) {
	d.Spec.PodSets = []v1alpha1.PodSet{{
		Name: "node", Role: v1alpha1.RoleTrainer, Count: 4,
		Requests: corev1.ResourceList{"cpu": resource.MustParse("32"), "nvidia.com/gpu": resource.MustParse("8")},
	}}
	d.Status.Explanation = []v1alpha1.ClusterExplanation{
		{Cluster: "east", Reason: v1alpha1.ReasonInsufficientResources, Message: "lacks 8 nvidia.com/gpu"},
		{Cluster: "north", Reason: v1alpha1.ReasonFits, Message: "score 20: LeastAllocated 20", Score: ptr.To[int32](20)},
		{Cluster: "west", Reason: v1alpha1.ReasonFits, Message: "score 40: LeastAllocated 40", Score: ptr.To[int32](40)},
	}
	d.Status.Refusals = []v1alpha1.Refusal{{Cluster: "east", Count: 3}}
}

// cost adds attempts that ran, and one whose end nobody has seen.
func cost(d *v1alpha1.Dispatch) {
	d.Spec.PodSets = []v1alpha1.PodSet{{Name: "node", Count: 4, Requests: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}}}
	ended := metav1.NewTime(now.Add(-20 * time.Minute))
	d.Status.History = append(d.Status.History,
		v1alpha1.Attempt{Attempt: 2, Cluster: "east", To: ended, Outcome: v1alpha1.OutcomeWorkerLost, StartTime: &ended},
		v1alpha1.Attempt{Attempt: 3, Cluster: "east", To: ended, Outcome: v1alpha1.OutcomePreempted, GPUSeconds: ptr.To[int64](9000)},
		v1alpha1.Attempt{Attempt: 4, Cluster: "east", To: ended, Outcome: v1alpha1.OutcomeComplete, GPUSeconds: ptr.To[int64](3600)})
}

func costOfShares(d *v1alpha1.Dispatch) {
	d.Spec.PodSets = []v1alpha1.PodSet{{Name: "node", Count: 2, Requests: corev1.ResourceList{"nvidia.com/mig-1g.10gb": resource.MustParse("7")}}}
	d.Status.History = append(d.Status.History, v1alpha1.Attempt{
		Attempt: 2, Cluster: "east", To: metav1.NewTime(now.Add(-20 * time.Minute)), Outcome: v1alpha1.OutcomePreempted, ShareSeconds: ptr.To[int64](10800),
	})
}

func TestDescribe(t *testing.T) {
	noFit := with(condition(v1alpha1.DispatchPlaced, metav1.ConditionFalse, v1alpha1.ReasonNoFit, "east: lacks 8 nvidia.com/gpu"))
	clusters := []v1alpha1.WorkerCluster{{ObjectMeta: metav1.ObjectMeta{Name: "east"}, Status: v1alpha1.WorkerClusterStatus{
		Jobs: 3, Conditions: []metav1.Condition{condition(v1alpha1.WorkerClusterReady, metav1.ConditionTrue, "Connected", "")},
	}}}
	tests := map[string]struct {
		reason      string
		observation explanation.Observation
		wide        bool
		want        string
	}{
		"Waiting": {
			reason: "why each worker does not take it, those first that are nearest; what only sums this up is left out",
			observation: explanation.Observation{
				Job: trainJob(), Dispatch: dispatchOf(noFit, explained), Policy: "gold", Place: &jobs.Place{Position: 3}, Length: 9,
			},
			want: `
Name:         llama
Namespace:    research
Managed By:   kueue.x-k8s.io/multikueue
State:        Waiting (NoFit)
To Do:        wait until jobs end or nodes are added, or let the job ask for less: the table of workers says what each lacks
Priority:     7
Position:     3 of 9: 2 waiting jobs come before it
Policy:       gold
Needs:        4x8 nvidia.com/gpu
Age:          60m
Demand:
  PODSET   PODS   EACH-REQUESTS
  node     4      8 nvidia.com/gpu, 32 cpu
Workers:
  WORKER   RESULT                  SCORE   MESSAGE
  west     Fits                    40      LeastAllocated 40
  north    Fits                    20      LeastAllocated 20
  east     InsufficientResources   -       lacks 8 nvidia.com/gpu
`,
		},
		"Wide": {
			reason: "and the state of the workers that the user may read", wide: true,
			observation: explanation.Observation{Job: trainJob(), Dispatch: dispatchOf(noFit, explained), Clusters: clusters},
			want: `
Name:         llama
Namespace:    research
Managed By:   kueue.x-k8s.io/multikueue
State:        Waiting (NoFit)
To Do:        wait until jobs end or nodes are added, or let the job ask for less: the table of workers says what each lacks
Priority:     7
Needs:        4x8 nvidia.com/gpu
Age:          60m
Demand:
  PODSET   PODS   EACH-REQUESTS              ROLE      NODE-SELECTOR
  node     4      8 nvidia.com/gpu, 32 cpu   trainer   <none>
Workers:
  WORKER   RESULT                  SCORE   READY       GPUS        JOBS        REFUSALS   MESSAGE
  west     Fits                    40      <unknown>   <unknown>   <unknown>   0          LeastAllocated 40
  north    Fits                    20      <unknown>   <unknown>   <unknown>   0          LeastAllocated 20
  east     InsufficientResources   -       True        0/0         3           3          lacks 8 nvidia.com/gpu
`,
		},
		"NoRuntime": {
			reason: "the runtime is missing on the hub, where the user can look, and not on a worker",
			observation: explanation.Observation{Job: trainJob(), Dispatch: dispatchOf(with(condition(
				v1alpha1.DispatchPlaced, metav1.ConditionFalse, v1alpha1.ReasonRuntimeNotFound, "there is no ClusterTrainingRuntime \"torch\"")))},
			want: `
Name:         llama
Namespace:    research
Managed By:   kueue.x-k8s.io/multikueue
State:        Waiting (RuntimeNotFound)
Message:      there is no ClusterTrainingRuntime "torch"
To Do:        create the runtime on the hub, or create the job again with another spec.runtimeRef
Priority:     7
Needs:        <unknown>
Age:          60m
`,
		},
		"Data": {
			reason: "what the job reads, and what would help where no worker has it",
			observation: explanation.Observation{Job: trainJob(), Policy: "gold", Data: "requires s3://corpora/en", Dispatch: dispatchOf(with(condition(
				v1alpha1.DispatchPlaced, metav1.ConditionFalse, v1alpha1.ReasonDataNotFound, "no worker lists s3://corpora/en")),
				func(d *v1alpha1.Dispatch) {
					d.Status.Explanation = []v1alpha1.ClusterExplanation{{Cluster: "east", Reason: v1alpha1.ReasonDataElsewhere, Message: "no prefix of it"}}
				})},
			want: `
Name:         llama
Namespace:    research
Managed By:   kueue.x-k8s.io/multikueue
State:        Waiting (DataNotFound)
Message:      no worker lists s3://corpora/en
To Do:        ask an admin to list the data in spec.data of the WorkerClusters that are near it, or write preferred= in place of required= into the annotation
Priority:     7
Policy:       gold
Needs:        <unknown>
Data:         requires s3://corpora/en
Age:          60m
Workers:
  WORKER   RESULT          SCORE   MESSAGE
  east     DataElsewhere   -       no prefix of it
`,
		},
		"Sick": {
			reason: "how it is, and what to do",
			observation: explanation.Observation{Job: trainJob(), Dispatch: dispatchOf(placed,
				with(condition(v1alpha1.DispatchMirrored, metav1.ConditionTrue, "Copied", "")),
				with(condition(v1alpha1.DispatchHealthy, metav1.ConditionFalse, "CrashLoop", "on worker \"west\": pod llama-node-0-0: exit code 1")),
				func(d *v1alpha1.Dispatch) {
					d.Status.Phase = v1alpha1.PhaseRestarting
					d.Status.Conditions[len(d.Status.Conditions)-1].LastTransitionTime = metav1.NewTime(now.Add(-5 * time.Minute))
				}), Events: warnings()},
			want: `
Name:         llama
Namespace:    research
Managed By:   kueue.x-k8s.io/multikueue
State:        Restarting on worker west (CrashLoop)
Health:       CrashLoop for 5m: on worker "west": pod llama-node-0-0: exit code 1
To Do:        read what the container wrote: kubectl trainyard logs llama --previous
Decision:     score 50: LeastAllocated 50; the only worker on which the job fits
Attempt:      2
Failover:     Hold
Priority:     7
Needs:        <unknown>
Age:          60m
Attempts:
  ATTEMPT   WORKER   ENDED     OUTCOME    MESSAGE
  1         east     30m ago   Rejected   no quota
Warnings:
  LAST-SEEN   REASON      MESSAGE
  6m ago      Six         x
  5m ago      Five        x
  4m ago      Four        x
  3m ago      Three       x
  60s ago     Restarted   on worker west: two lines
`,
		},
		"LostBefore": {
			reason: "an Event says in the present tense that the worker does not answer, and it does",
			observation: explanation.Observation{Job: trainJob(), Dispatch: dispatchOf(placed, with(
				condition(v1alpha1.DispatchMirrored, metav1.ConditionTrue, "Copied", ""))), Events: lost()},
			want: `
Name:         llama
Namespace:    research
Managed By:   kueue.x-k8s.io/multikueue
State:        Running on worker west
Decision:     score 50: LeastAllocated 50; the only worker on which the job fits
Attempt:      2
Failover:     Hold
Priority:     7
Needs:        <unknown>
Age:          60m
Attempts:
  ATTEMPT   WORKER   ENDED     OUTCOME    MESSAGE
  1         east     30m ago   Rejected   no quota
Warnings:
  LAST-SEEN   REASON       MESSAGE
  2m ago      WorkerLost   Hold: worker "west" does not answer; it has answered again since
`,
		},
		"LostNow": {
			reason: "the message says it already",
			observation: explanation.Observation{Job: trainJob(), Dispatch: dispatchOf(placed,
				with(condition(v1alpha1.DispatchMirrored, metav1.ConditionTrue, "Copied", "")),
				with(condition(v1alpha1.DispatchWorkerLost, metav1.ConditionTrue, v1alpha1.ReasonHold, "worker \"west\" does not answer"))), Events: lost()},
			want: `
Name:         llama
Namespace:    research
Managed By:   kueue.x-k8s.io/multikueue
State:        Lost with worker west (Hold)
Message:      worker "west" does not answer
Decision:     score 50: LeastAllocated 50; the only worker on which the job fits
Attempt:      2
Failover:     Hold
Priority:     7
Needs:        <unknown>
Age:          60m
Attempts:
  ATTEMPT   WORKER   ENDED     OUTCOME    MESSAGE
  1         east     30m ago   Rejected   no quota
`,
		},
		"InDomain": {
			reason: "where on the worker its pods are together",
			observation: explanation.Observation{Job: trainJob(), Dispatch: dispatchOf(placed, func(d *v1alpha1.Dispatch) {
				d.Spec.Domain = &v1alpha1.Domain{Label: "nvidia.com/gpu.clique", Value: "a.1"}
				d.Status.History = nil
			}, with(condition(v1alpha1.DispatchMirrored, metav1.ConditionTrue, "Copied", "")))},
			want: `
Name:         llama
Namespace:    research
Managed By:   kueue.x-k8s.io/multikueue
State:        Running on worker west
Decision:     score 50: LeastAllocated 50; the only worker on which the job fits
Domain:       nvidia.com/gpu.clique=a.1
Attempt:      2
Failover:     Hold
Priority:     7
Needs:        <unknown>
Age:          60m
`,
		},
		"Running": {
			reason:      "why it is there, and where it was before",
			observation: explanation.Observation{Job: trainJob(), Dispatch: dispatchOf(placed, with(condition(v1alpha1.DispatchMirrored, metav1.ConditionTrue, "Copied", "")))},
			want: `
Name:         llama
Namespace:    research
Managed By:   kueue.x-k8s.io/multikueue
State:        Running on worker west
Decision:     score 50: LeastAllocated 50; the only worker on which the job fits
Attempt:      2
Failover:     Hold
Priority:     7
Needs:        <unknown>
Age:          60m
Attempts:
  ATTEMPT   WORKER   ENDED     OUTCOME    MESSAGE
  1         east     30m ago   Rejected   no quota
`,
		},
		"Cost": {
			reason: "GPU-hours of the attempts that ended, and for how many nobody knows them; a refused attempt never ran", wide: true,
			observation: explanation.Observation{Job: trainJob(), Dispatch: dispatchOf(placed, cost)},
			want: `
Name:         llama
Namespace:    research
Managed By:   kueue.x-k8s.io/multikueue
State:        Placed on worker west
Decision:     score 50: LeastAllocated 50; the only worker on which the job fits
Attempt:      2
Failover:     Hold
Priority:     7
Needs:        4x8 nvidia.com/gpu
Cost:         3.50 GPU-hours in ended attempts; not known for 1 of 4 attempts
Age:          60m
Demand:
  PODSET   PODS   EACH-REQUESTS      ROLE     NODE-SELECTOR
  node     4      8 nvidia.com/gpu   <none>   <none>
Attempts:
  ATTEMPT   WORKER   ENDED     OUTCOME      GPU-HOURS   SHARE-HOURS   MESSAGE
  1         east     30m ago   Rejected     <none>      <none>        no quota
  2         east     20m ago   WorkerLost   <none>      <none>
  3         east     20m ago   Preempted    2.50        <none>
  4         east     20m ago   Complete     1.00        <none>
`,
		},
		"CostOfShares": {
			reason: "shares of devices are counted apart", wide: true,
			observation: explanation.Observation{Job: trainJob(), Dispatch: dispatchOf(placed, costOfShares)},
			want: `
Name:         llama
Namespace:    research
Managed By:   kueue.x-k8s.io/multikueue
State:        Placed on worker west
Decision:     score 50: LeastAllocated 50; the only worker on which the job fits
Attempt:      2
Failover:     Hold
Priority:     7
Needs:        2x7 nvidia.com/mig-1g.10gb
Cost:         3.00 share-hours in ended attempts
Age:          60m
Demand:
  PODSET   PODS   EACH-REQUESTS              ROLE     NODE-SELECTOR
  node     2      7 nvidia.com/mig-1g.10gb   <none>   <none>
Attempts:
  ATTEMPT   WORKER   ENDED     OUTCOME     GPU-HOURS   SHARE-HOURS   MESSAGE
  1         east     30m ago   Rejected    <none>      <none>        no quota
  2         east     20m ago   Preempted   <none>      3.00
`,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tc.observation.Now = now
			var out bytes.Buffer
			check.Must(t, explanation.Describe(&out, tc.observation, tc.wide))
			check.Diff(t, strings.TrimPrefix(tc.want, "\n"), out.String(), tc.reason)
		})
	}
}

func TestStates(t *testing.T) {
	waits := func(reason, message string) func(*v1alpha1.Dispatch) {
		return with(condition(v1alpha1.DispatchPlaced, metav1.ConditionFalse, reason, message))
	}
	tests := map[string]struct {
		reason   string
		job      *unstructured.Unstructured
		dispatch *v1alpha1.Dispatch
		place    *jobs.Place
		want     []string
	}{
		"Unmanaged": {
			reason: "what it is managed by, and what to do", job: trainJob(managedBy(v1alpha1.ManagedByBuiltIn)),
			want: []string{"State:        Not managed by Trainyard", `spec.managedBy is "trainer.kubeflow.org/trainjob-controller"`, `of "kueue.x-k8s.io/multikueue"`, "create the job again"},
		},
		"OtherManager": {reason: "a value of somebody else's", job: trainJob(managedBy("example.com/x")), want: []string{"Not managed by Trainyard"}},
		"OwnManager":   {reason: "a manager may own another value, and then there is a Dispatch", job: trainJob(managedBy("example.com/x")), dispatch: dispatchOf(), want: []string{"State:        Waiting"}},
		"Unseen":       {reason: "no Dispatch yet", job: trainJob(), want: []string{"State:        Not seen by Trainyard yet", "there is no Dispatch"}},
		"Suspended":    {reason: "the gate", job: trainJob(suspended), want: []string{"State:        Suspended", "spec.suspend is true"}},
		"Gated":        {reason: "the gate, of a job that has a Dispatch", job: trainJob(suspended), dispatch: dispatchOf(waits(v1alpha1.ReasonSuspended, "")), want: []string{"State:        Suspended"}},
		"WithQuota": {
			reason: "it waits for room, and Kueue resumes it then", job: trainJob(suspended),
			dispatch: dispatchOf(waits(v1alpha1.ReasonNoFit, "lacks 8 GPUs")), want: []string{"Waiting (NoFit)", "Message:      lacks 8 GPUs"},
		},
		"MultiKueue": {
			reason: "another dispatcher has it", job: trainJob(),
			dispatch: dispatchOf(waits(v1alpha1.ReasonManagedByMultiKueue, "take that check off")),
			want:     []string{"Waiting (ManagedByMultiKueue)", "Message:      take that check off"},
		},
		"Undecided": {reason: "nothing has been said yet", job: trainJob(), dispatch: dispatchOf(), want: []string{"State:        Waiting\n"}},
		"Queued":    {reason: "what sums up nothing is told", job: trainJob(), dispatch: dispatchOf(waits(v1alpha1.ReasonQueued, "older jobs wait"), explained), want: []string{"Waiting (Queued)", "Message:      older jobs wait"}},
		"First":     {reason: "the first of the waiting list", job: trainJob(), dispatch: dispatchOf(), place: &jobs.Place{Position: 1}, want: []string{"1 of 5: no waiting job comes before it"}},
		"Second":    {reason: "the second of the waiting list", job: trainJob(), dispatch: dispatchOf(), place: &jobs.Place{Position: 2}, want: []string{"2 of 5: one waiting job comes before it"}},
		"NoPlace":   {reason: "no position", job: trainJob(), dispatch: dispatchOf(), place: &jobs.Place{}, want: []string{"none: it waits for something else than room"}},
		"Placed":    {reason: "no copy yet", job: trainJob(), dispatch: dispatchOf(placed), want: []string{"State:        Placed on worker west"}},
		"Returned": {
			reason: "the worker refused it", job: trainJob(),
			dispatch: dispatchOf(placed, with(condition(v1alpha1.DispatchMirrored, metav1.ConditionFalse, v1alpha1.ReasonRejected, "no quota"))),
			want:     []string{"State:        Waiting\n", "worker west ended attempt 2 (Rejected): no quota"},
		},
		"Evicting": {
			reason: "it makes room", job: trainJob(),
			dispatch: dispatchOf(placed, func(d *v1alpha1.Dispatch) {
				d.Spec.Eviction = &v1alpha1.Eviction{Reason: v1alpha1.EvictionPreempted, Message: "for research/urgent"}
			}),
			want: []string{"State:        Evicting from worker west (Preempted)", "Message:      for research/urgent"},
		},
		"EvictingSlowly": {
			reason: "for what its end waits", job: trainJob(),
			dispatch: dispatchOf(placed, func(d *v1alpha1.Dispatch) {
				d.Spec.Eviction = &v1alpha1.Eviction{Reason: v1alpha1.EvictionPreempted, Message: "for research/urgent"}
			}, with(condition(v1alpha1.DispatchMirrored, metav1.ConditionTrue, v1alpha1.ReasonAwaitingEnd, "pod a has not ended"))),
			want: []string{"Message:      for research/urgent; pod a has not ended"},
		},
		"EvictionRefused": {
			reason: "the worker does not let it go", job: trainJob(),
			dispatch: dispatchOf(placed, func(d *v1alpha1.Dispatch) {
				d.Spec.Eviction = &v1alpha1.Eviction{Reason: v1alpha1.EvictionDrained, Message: "worker west is drained"}
			}, with(condition(v1alpha1.DispatchMirrored, metav1.ConditionTrue, v1alpha1.ReasonDeletionRefused, "it may not go"))),
			want: []string{"Message:      worker west is drained; it may not go"},
		},
		"DeletedSlowly": {
			reason: "for what its deletion waits", job: trainJob(deleted),
			dispatch: dispatchOf(placed, with(condition(v1alpha1.DispatchMirrored, metav1.ConditionTrue, v1alpha1.ReasonAwaitingEnd, "pod a has not ended"))),
			want:     []string{"State:        Deleting", "from worker west; pod a has not ended"},
		},
		"DeletedOnTheWorker": {
			reason: "it does not run, though it has a copy", job: trainJob(),
			dispatch: dispatchOf(placed, with(condition(v1alpha1.DispatchMirrored, metav1.ConditionTrue, v1alpha1.ReasonAwaitingEnd, "the finalizer x"))),
			want:     []string{"Message:      the finalizer x"},
		},
		"Lost": {
			reason: "its worker does not answer, and what is done about it", job: trainJob(),
			dispatch: dispatchOf(placed, func(d *v1alpha1.Dispatch) { d.Spec.Failover = v1alpha1.FailoverFenced },
				with(condition(v1alpha1.DispatchMirrored, metav1.ConditionTrue, "Copied", "")),
				with(condition(v1alpha1.DispatchWorkerLost, metav1.ConditionTrue, v1alpha1.ReasonFencing, "worker west does not answer"))),
			want: []string{"State:        Lost with worker west (Fencing)", "Message:      worker west does not answer", "Failover:     Fenced"},
		},
		"LostAndGivenUp": {
			reason: "the attempt has ended, whatever is left of the condition", job: trainJob(),
			dispatch: dispatchOf(placed, with(condition(v1alpha1.DispatchMirrored, metav1.ConditionFalse, v1alpha1.ReasonWorkerLost, "given up")),
				with(condition(v1alpha1.DispatchWorkerLost, metav1.ConditionTrue, v1alpha1.ReasonFencing, ""))),
			want: []string{"State:        Waiting\n", "worker west ended attempt 2 (WorkerLost): given up"},
		},
		"Found": {
			reason: "its worker has answered again", job: trainJob(),
			dispatch: dispatchOf(placed, with(condition(v1alpha1.DispatchWorkerLost, metav1.ConditionFalse, v1alpha1.ReasonHold, ""))),
			want:     []string{"State:        Placed on worker west\n"},
		},
		"Drained": {
			reason: "it moves", job: trainJob(),
			dispatch: dispatchOf(placed, func(d *v1alpha1.Dispatch) {
				d.Spec.Eviction = &v1alpha1.Eviction{Reason: v1alpha1.EvictionDrained, Message: "worker west is drained"}
			}),
			want: []string{"State:        Evicting from worker west (Drained)", "Message:      worker west is drained"},
		},
		"EvictedAndEnded": {
			reason: "it has left the worker, and the eviction stays on record until it is placed again", job: trainJob(),
			dispatch: dispatchOf(placed, with(condition(v1alpha1.DispatchMirrored, metav1.ConditionFalse, string(v1alpha1.OutcomeDrained), "it has stopped")),
				func(d *v1alpha1.Dispatch) {
					d.Spec.Eviction = &v1alpha1.Eviction{Reason: v1alpha1.EvictionDrained, Message: "worker west is drained"}
				}),
			want: []string{"State:        Waiting\n", "worker west ended attempt 2 (Drained): it has stopped"},
		},
		"HeldByWorker": {
			reason: "it has a copy, which may not run", job: trainJob(),
			dispatch: dispatchOf(placed, with(condition(v1alpha1.DispatchMirrored, metav1.ConditionTrue, "Copied", "")),
				func(d *v1alpha1.Dispatch) {
					d.Status.Phase, d.Status.Reason = v1alpha1.PhaseQueued, v1alpha1.ReasonHeldByWorker
				}),
			want: []string{"State:        Queued on worker west\n", "Message:      worker west keeps the copy suspended"},
		},
		"HeldByKueue": {
			reason: "Kueue says why", job: trainJob(),
			dispatch: dispatchOf(placed, with(condition(v1alpha1.DispatchMirrored, metav1.ConditionTrue, "WaitingForQuota", "the Kueue of worker west holds")),
				func(d *v1alpha1.Dispatch) {
					d.Status.Phase, d.Status.Reason = v1alpha1.PhaseQueued, v1alpha1.ReasonWaitingForQuota
					d.Spec.LocalQueue = ptr.To("team")
				}),
			want: []string{
				"Queue:        LocalQueue team of worker west; ", "kubectl --context west get --raw " +
					"/apis/visibility.kueue.x-k8s.io/v1beta2/namespaces/research/localqueues/team/pendingworkloads\n",
				"State:        Queued on worker west", "Message:      the Kueue of worker west holds"},
		},
		"Stays": {
			reason: "it cannot move", job: trainJob(),
			dispatch: dispatchOf(placed, with(condition(v1alpha1.DispatchMirrored, metav1.ConditionTrue, "Copied", "")),
				with(condition(v1alpha1.DispatchEvicting, metav1.ConditionFalse, v1alpha1.ReasonNoRoomElsewhere, "east: lacks 8 nvidia.com/gpu"))),
			want: []string{"State:        Running on worker west\n", "Drain:        stays on worker west (NoRoomElsewhere): east: lacks 8 nvidia.com/gpu"},
		},
		"DeletionPending": {
			reason: "for whom its deletion waits", job: trainJob(deleted),
			dispatch: dispatchOf(placed, with(condition(v1alpha1.DispatchWorkerLost, metav1.ConditionTrue, v1alpha1.ReasonDeletionPending, "worker west does not answer"))),
			want:     []string{"State:        Deleting", "from worker west (DeletionPending): worker west does not answer"},
		},
		"Ended":    {reason: "how it ended, and where", job: trainJob(failed), dispatch: dispatchOf(placed), want: []string{"State:        Failed on worker west", "Message:      exit code 1"}},
		"Deleting": {reason: "it goes", job: trainJob(deleted), dispatch: dispatchOf(placed), want: []string{"State:        Deleting", "when its copy is gone from worker west"}},
		"Succeeding": {
			reason: "another one of its name was before", job: trainJob(),
			dispatch: dispatchOf(placed, func(d *v1alpha1.Dispatch) { d.Spec.TrainJob.UID = "old" }),
			want:     []string{"State:        Waiting\n", "the Dispatch of an earlier TrainJob", "from worker west"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			observation := explanation.Observation{Job: tc.job, Dispatch: tc.dispatch, Place: tc.place, Length: 5, Now: now}
			check.Must(t, explanation.Describe(&out, observation, false))
			for _, want := range tc.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in: %s\n%s", want, tc.reason, &out)
				}
			}
		})
	}
}

// warnings are Events as different recorders write them.
func warnings() []corev1.Event {
	event := func(reason, message string) corev1.Event {
		return corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: reason}, Type: corev1.EventTypeWarning, Reason: reason, Message: message}
	}
	ago := func(minutes time.Duration) time.Time { return now.Add(-minutes * time.Minute) }
	last := event("Restarted", "on worker west:\ntwo lines")
	last.EventTime = metav1.NewMicroTime(ago(60))
	last.Series = &corev1.EventSeries{LastObservedTime: metav1.NewMicroTime(ago(1))}
	normal := event("Placed", "it is no warning")
	normal.Type = corev1.EventTypeNormal
	all := []corev1.Event{normal, last, event("CrashLoop", "it is told as Health"), event("Rejected", "it is among the attempts")}
	for minutes, reason := range map[time.Duration]string{3: "Three", 4: "Four", 5: "Five", 6: "Six", 7: "Seven"} {
		e := event(reason, "x")
		if minutes%2 == 0 {
			e.EventTime = metav1.NewMicroTime(ago(minutes))
		} else {
			e.LastTimestamp = metav1.NewTime(ago(minutes))
		}
		all = append(all, e)
	}
	return all
}

func lost() []corev1.Event {
	return []corev1.Event{{
		Type: corev1.EventTypeWarning, Reason: v1alpha1.ReasonWorkerLost, Message: `Hold: worker "west" does not answer`, LastTimestamp: metav1.NewTime(now.Add(-2 * time.Minute)),
	}}
}
