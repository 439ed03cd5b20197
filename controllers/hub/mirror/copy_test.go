// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

func TestNewCopy(t *testing.T) {
	job := testJob("origin", func(job *unstructured.Unstructured) {
		job.SetLabels(map[string]string{"team": "vision", "kueue.x-k8s.io/queue-name": "gpus"})
		job.SetAnnotations(map[string]string{"note": "x", "kubectl.kubernetes.io/last-applied-configuration": "{}", "trainyard.dev/ttl-seconds-after-finished": "0"})
		job.SetFinalizers([]string{"somebody/else"})
		job.SetResourceVersion("17")
		job.SetGeneration(3)
		job.Object["spec"] = map[string]any{
			"managedBy": "kueue.x-k8s.io/multikueue", "runtimeRef": map[string]any{"name": "torch"}, "fieldOfTomorrow": "kept",
		}
		job.Object["status"] = map[string]any{"conditions": []any{}}
	})
	want := map[string]any{
		"apiVersion": "trainer.kubeflow.org/v1alpha1",
		"kind":       "TrainJob",
		"metadata": map[string]any{
			"namespace": "default",
			"name":      "job",
			"labels": map[string]any{
				"team": "vision", "kueue.x-k8s.io/queue-name": "gpus",
				"trainyard.dev/hub": "the-hub", "trainyard.dev/origin-uid": "origin",
			},
			"annotations": map[string]any{"note": "x", "trainyard.dev/attempt": "2", "trainyard.dev/source": "origin.3"},
		},
		"spec": map[string]any{
			"managedBy": "trainer.kubeflow.org/trainjob-controller", "runtimeRef": map[string]any{"name": "torch"}, "fieldOfTomorrow": "kept",
		},
	}
	before := job.DeepCopy()
	fenced := testDispatch(func(d *v1alpha1.Dispatch) { d.Spec.Failover = v1alpha1.FailoverFenced })
	check.Equal(t, "Fenced", newCopy(job, fenced, nil, "the-hub", nil).GetAnnotations()["trainyard.dev/failover"],
		"the failover on the copy")
	check.Diff(t, want, newCopy(job, testDispatch(), nil, "the-hub", nil).Object, "newCopy()")
	check.Diff(t, before.Object, job.Object, "newCopy changed the hub's job, which the cache owns")
}

// What the hub's Kueue has written about the hub's queues stays on the hub: the worker's Kueue adds an entry under the
// same key to whatever is created, and the API server refuses a key that stands twice.
func TestNewCopyLeavesTheHubsKueueBehind(t *testing.T) {
	patch := func(manager string) any { return map[string]any{"manager": manager} }
	for name, test := range map[string]struct {
		patches []any
		want    any
	}{
		"Only":   {patches: []any{patch("kueue.x-k8s.io/manager")}},
		"Others": {patches: []any{patch("a.dev/b"), patch("kueue.x-k8s.io/manager"), patch("c.dev/d")}, want: []any{patch("a.dev/b"), patch("c.dev/d")}},
	} {
		t.Run(name, func(t *testing.T) {
			job := testJob("origin", func(job *unstructured.Unstructured) {
				job.Object["spec"] = map[string]any{"runtimePatches": test.patches}
			})
			before := job.DeepCopy()
			check.Diff(t, test.want, specOf(newCopy(job, testDispatch(), nil, "hub", nil))["runtimePatches"],
				"newCopy()")
			check.Diff(t, before.Object, job.Object, "newCopy changed the hub's job, which the cache owns")
		})
	}
}

// A WorkloadPriorityClass that the policy does not name never goes to a worker, whatever the job said when it was placed.
func TestNewCopyHasNoForbiddenWorkloadPriorityClass(t *testing.T) {
	job := testJob("origin", func(job *unstructured.Unstructured) {
		job.SetLabels(map[string]string{"kueue.x-k8s.io/queue-name": "gpus", "kueue.x-k8s.io/priority-class": "urgent"})
	})
	for name, test := range map[string]struct {
		classes []string
		want    string
	}{
		"NoList":  {want: "urgent"},
		"Named":   {classes: []string{"low", "urgent"}, want: "urgent"},
		"Another": {classes: []string{"low"}},
	} {
		t.Run(name, func(t *testing.T) {
			policy := &v1alpha1.DispatchPolicy{Spec: v1alpha1.DispatchPolicySpec{PriorityClasses: test.classes}}
			got, labelled := newCopy(job, testDispatch(), policy, "hub", nil).GetLabels()["kueue.x-k8s.io/priority-class"]
			if got != test.want || labelled != (test.want != "") {
				t.Errorf("the copy has WorkloadPriorityClass %q (%t), want %q", got, labelled, test.want)
			}
		})
	}
}

// Only a policy with hubFlavors Propagate brings what the hub's Kueue says about nodes to the copy: neither labels of
// the hub's queues nor scheduling gates, which nobody would lift there.
func TestNewCopyWithFlavors(t *testing.T) {
	entry := func(manager string, jobs ...any) any {
		return map[string]any{"manager": manager, "trainingRuntimeSpec": map[string]any{
			"template": map[string]any{"spec": map[string]any{"replicatedJobs": jobs}},
		}}
	}
	job := func(name string, metadata, spec map[string]any) any {
		template := map[string]any{"spec": spec}
		if metadata != nil {
			template["metadata"] = metadata
		}
		return map[string]any{"name": name, "template": map[string]any{"spec": map[string]any{"template": template}}}
	}
	queue := map[string]any{"labels": map[string]any{"kueue.x-k8s.io/cluster-queue-name": "team-a"}}
	taint := []any{map[string]any{"key": "spot", "operator": "Exists"}}
	kueue := entry("kueue.x-k8s.io/manager",
		job("launcher", queue, map[string]any{"schedulingGates": []any{map[string]any{"name": "kueue.x-k8s.io/topology"}}}),
		job("node", queue, map[string]any{
			"nodeSelector": map[string]any{"gpu": "h100"}, "tolerations": taint,
			"schedulingGates": []any{map[string]any{"name": "kueue.x-k8s.io/topology"}},
		}))
	flavors := entry("trainyard.dev/hub-flavors",
		job("node", nil, map[string]any{"nodeSelector": map[string]any{"gpu": "h100"}, "tolerations": taint}))
	forged := entry("trainyard.dev/hub-flavors", job("node", nil, map[string]any{"nodeSelector": map[string]any{"gpu": "b200"}}))
	users := map[string]any{"manager": "a.dev/b"}
	for name, test := range map[string]struct {
		reason  string
		flavors v1alpha1.HubFlavors
		patches []any
		podSets []v1alpha1.PodSet
		want    any
	}{
		"Default":   {reason: "they are accounts", patches: []any{kueue}},
		"Ignore":    {reason: "they are accounts", flavors: v1alpha1.HubFlavorsIgnore, patches: []any{kueue, users}, want: []any{users}},
		"Require":   {reason: "they count for the choice only", flavors: v1alpha1.HubFlavorsRequire, patches: []any{users, kueue}, want: []any{users}},
		"Propagate": {reason: "the pods go to such nodes", flavors: v1alpha1.HubFlavorsPropagate, patches: []any{kueue, users}, want: []any{users, flavors}},
		"Tolerations": {
			reason: "the tolerations of an entry replace those of the runtime and of the user", flavors: v1alpha1.HubFlavorsPropagate,
			patches: []any{kueue},
			podSets: []v1alpha1.PodSet{{Name: "node", Tolerations: []corev1.Toleration{
				{Key: "gpu", Operator: corev1.TolerationOpExists}, {Key: "spot", Operator: corev1.TolerationOpExists},
			}}},
			want: []any{entry("trainyard.dev/hub-flavors", job("node", nil, map[string]any{
				"nodeSelector": map[string]any{"gpu": "h100"},
				"tolerations":  append([]any{map[string]any{"key": "gpu", "operator": "Exists"}}, taint...),
			}))},
		},
		"Nothing": {
			reason: "flavors without labels say nothing", flavors: v1alpha1.HubFlavorsPropagate,
			patches: []any{entry("kueue.x-k8s.io/manager", job("node", queue, map[string]any{}))},
		},
		"Forged": {reason: "the entry is not for users", flavors: v1alpha1.HubFlavorsPropagate, patches: []any{forged, kueue}, want: []any{flavors}},
	} {
		t.Run(name, func(t *testing.T) {
			job := testJob("origin", func(job *unstructured.Unstructured) {
				job.Object["spec"] = map[string]any{"runtimePatches": test.patches}
			})
			before := job.DeepCopy()
			policy := &v1alpha1.DispatchPolicy{Spec: v1alpha1.DispatchPolicySpec{HubFlavors: test.flavors}}
			dispatch := testDispatch()
			dispatch.Spec.PodSets = test.podSets
			check.Diff(t, test.want, specOf(newCopy(job, dispatch, policy, "hub", nil))["runtimePatches"],
				"newCopy(): "+test.reason)
			check.Diff(t, before.Object, job.Object, "newCopy changed the hub's job, which the cache owns")
		})
	}
}

// The pods that belong together select the domain of the Dispatch, whatever the job itself says.
func TestNewCopyInDomain(t *testing.T) {
	onNodes := func(manager, name, value string) any {
		return map[string]any{"manager": manager, "trainingRuntimeSpec": map[string]any{"template": map[string]any{"spec": map[string]any{
			"replicatedJobs": []any{map[string]any{"name": name, "template": map[string]any{"spec": map[string]any{"template": map[string]any{
				"spec": map[string]any{"nodeSelector": map[string]any{"rack": value}},
			}}}}},
		}}}}
	}
	users, forged := map[string]any{"manager": "a.dev/b"}, onNodes("trainyard.dev/topology", "node", "r9")
	for name, test := range map[string]struct {
		reason  string
		patches []any
		domain  *v1alpha1.Domain
		want    any
	}{
		"None":   {reason: "the pods may run anywhere", patches: []any{users, forged}, want: []any{users}},
		"Domain": {reason: "only the trainers were counted there", domain: &v1alpha1.Domain{Label: "rack", Value: "r1"}, want: []any{onNodes("trainyard.dev/topology", "node", "r1")}},
		"Forged": {
			reason: "the entry is not for users", patches: []any{forged, users}, domain: &v1alpha1.Domain{Label: "rack", Value: "r1"},
			want: []any{users, onNodes("trainyard.dev/topology", "node", "r1")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			job := testJob("origin", func(job *unstructured.Unstructured) {
				job.Object["spec"] = map[string]any{}
				if test.patches != nil {
					job.Object["spec"] = map[string]any{"runtimePatches": test.patches}
				}
			})
			dispatch := testDispatch()
			dispatch.Spec.Domain = test.domain
			dispatch.Spec.PodSets = []v1alpha1.PodSet{
				{Name: "model-initializer", NodeSelector: map[string]string{"disk": "fast"}}, {Name: "node", NodeSelector: map[string]string{"rack": "r1"}},
			}
			copy := newCopy(job, dispatch, nil, "hub", nil)
			check.Diff(t, test.want, specOf(copy)["runtimePatches"], test.reason)
			domain, jobs := trainjobs.DomainOf(copy)
			check.Diff(t, test.domain, domain, "what a hub that has forgotten the Dispatch reads")
			if domain != nil {
				check.Diff(t, []string{"node"}, jobs, "the replicated jobs in the domain")
			}
		})
	}
}

// The Dispatch says into which queue the copy comes. Without a queue a WorkloadPriorityClass says nothing to the
// worker.
func TestQueueOfTheCopy(t *testing.T) {
	const queue, class = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
	job := map[string]string{queue: "main", class: "high", "team": "vision"}
	for name, test := range map[string]struct {
		reason  string
		job     map[string]string
		decided *string
		want    map[string]string
	}{
		"Undecided": {reason: "as a manager of an earlier version did it", job: job, want: job},
		"FromJob":   {reason: "the queue of the job", job: job, decided: new("main"), want: job},
		"Other":     {reason: "another queue", job: job, decided: new("gpus"), want: map[string]string{queue: "gpus", class: "high", "team": "vision"}},
		"None":      {reason: "the labels were for the hub's Kueue", job: job, decided: new(""), want: map[string]string{"team": "vision"}},
		"Named":     {reason: "the job names no queue", decided: new("gpus"), want: map[string]string{queue: "gpus"}},
	} {
		t.Run(name, func(t *testing.T) {
			dispatch := testDispatch()
			dispatch.Spec.LocalQueue = test.decided
			labels := newCopy(testJob("origin", func(j *unstructured.Unstructured) { j.SetLabels(test.job) }), dispatch, nil, "hub", nil).GetLabels()
			delete(labels, v1alpha1.LabelHub)
			delete(labels, v1alpha1.LabelOriginUID)
			check.Diff(t, test.want, labels, "labels of the copy: "+test.reason)
		})
	}
}

// A copy that the worker's agent has stopped goes on when the agent lets it. A copy that somebody has suspended goes on
// at once. A copy that the worker's Kueue has suspended is left to Kueue.
func TestResume(t *testing.T) {
	copyOf := func(suspended bool, annotations map[string]string) *unstructured.Unstructured {
		return testJob("c", func(job *unstructured.Unstructured) {
			job.Object["spec"] = map[string]any{"suspend": suspended}
			job.SetAnnotations(annotations)
		})
	}
	valid, expired := permission{fenced: true, challenge: "3.7", ok: true}, permission{fenced: true, challenge: "3.7"}
	stopped := map[string]string{"trainyard.dev/fenced": "3.1", "trainyard.dev/challenge": "3.0"}
	answered := map[string]string{"trainyard.dev/challenge": "3.7"}
	for name, test := range map[string]struct {
		reason   string
		why      hold
		copy     *unstructured.Unstructured
		may      permission
		want     *unstructured.Unstructured
		restored []string
	}{
		"Free":           {reason: "no write that changes nothing", why: free, copy: copyOf(false, nil), may: valid, want: copyOf(false, nil)},
		"Fenced":         {reason: "the agent would stop it again", why: fenced, copy: copyOf(true, stopped), may: expired, want: copyOf(true, stopped)},
		"Resumable":      {reason: "with the challenge by which the agent tells that this is no old message", why: resumable, copy: copyOf(true, stopped), may: valid, want: copyOf(false, answered)},
		"ResumedByQueue": {reason: "whether it runs decides the worker's Kueue", why: resumedByQueue, copy: copyOf(true, stopped), may: valid, want: copyOf(true, answered)},
		"Queued":         {reason: "the lease has nothing to do with it", why: queued, copy: copyOf(true, nil), may: valid, want: copyOf(true, nil)},
		"Refused":        {reason: "the attempt ends", why: refused, copy: copyOf(true, nil), may: valid, want: copyOf(true, nil)},
		"Unknown":        {reason: "Kueue may be about to say that it was Kueue", why: unknown, copy: copyOf(true, nil), may: valid, want: copyOf(true, nil)},
		"Suspended": {
			reason: "the agent says whether it runs, by the challenge", why: suspendedThere, copy: copyOf(true, nil), may: expired,
			want: copyOf(false, answered), restored: []string{"spec.suspend"},
		},
		"NotFenced": {
			reason: "somebody had marked it so, and its Dispatch says something else", why: resumable,
			copy: copyOf(true, stopped), may: permission{ok: true}, want: copyOf(false, map[string]string{"trainyard.dev/challenge": "3.0"}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			restored := resume(test.copy, test.why, test.may)
			check.Diff(t, test.want, test.copy, "resume(): "+test.reason, cmpopts.EquateEmpty())
			check.Diff(t, test.restored, restored, "what is said to have been restored: "+test.reason)
		})
	}
}
