// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/stage"
)

// express changes the expression of a policy.
func (s *scene) express(t *testing.T, policy *v1alpha1.DispatchPolicy, text string) {
	t.Helper()
	before := policy.DeepCopy()
	policy.Spec.Clusters.Expression = text
	check.Must(t, s.Hub.Admin.Patch(t.Context(), policy, client.MergeFrom(before)))
}

// validity reconciles a policy and returns its condition Valid.
func (s *scene) validity(t *testing.T, policy *v1alpha1.DispatchPolicy) metav1.Condition {
	t.Helper()
	_, err := (&policyReconciler{hub: s.Hub.Admin, recorder: s.Events, clock: s.Clock}).Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(policy)})
	check.Must(t, err)
	check.Must(t, s.Hub.Admin.Get(t.Context(), client.ObjectKeyFromObject(policy), policy))
	condition := meta.FindStatusCondition(policy.Status.Conditions, v1alpha1.DispatchPolicyValid)
	if condition == nil {
		t.Fatalf("DispatchPolicy %s has no condition %s", policy.Name, v1alpha1.DispatchPolicyValid)
	}
	if condition.ObservedGeneration != policy.Generation {
		t.Errorf("the condition is of generation %d, want %d", condition.ObservedGeneration, policy.Generation)
	}
	return *condition
}

// price sets what a GPU of a worker costs for the time of the test.
func (s *scene) price(t *testing.T, name v1alpha1.ClusterName, price string) {
	t.Helper()
	s.worker(t, name, func(worker *v1alpha1.WorkerCluster) {
		worker.Spec.Price = v1alpha1.Prices{gpu: resource.MustParse(price)}
	})
}

func pinned(to string) func(*trainer.TrainJob) {
	return func(job *trainer.TrainJob) {
		metav1.SetMetaDataAnnotation(&job.ObjectMeta, v1alpha1.AnnotationClusters, to)
	}
}

func reasonsOf(d *v1alpha1.Dispatch) map[v1alpha1.ClusterName]string {
	reasons := map[v1alpha1.ClusterName]string{}
	for _, line := range d.Status.Explanation {
		reasons[line.Cluster] = line.Reason + ": " + line.Message
	}
	return reasons
}

// A policy with a bad expression says where it is bad, its jobs wait and say so, and go on when it is repaired.
func TestPolicyExpression(t *testing.T) {
	s := newScene(t)
	policy := s.Policy(t, v1alpha1.DispatchPolicySpec{
		Clusters: v1alpha1.ClusterSelector{Expression: "worker.gpus > 1 &&\n  worker.memory > 1"},
	})
	const fault = "spec.clusters.expression: line 2, column 9: undefined field 'memory'; an expression sees worker.{allocatable, "
	if got := s.validity(t, policy); got.Status != metav1.ConditionFalse || got.Reason != v1alpha1.ReasonInvalid || !strings.HasPrefix(got.Message, fault) {
		t.Errorf("the condition is %+v, want False with %q", got, fault)
	}
	if seen := s.Events.Take(); len(seen) != 1 || !strings.HasPrefix(seen[0], "Warning Invalid "+fault) {
		t.Errorf("Events are %q, want one that begins with %q", seen, fault)
	}
	revision := policy.ResourceVersion
	if s.validity(t, policy); policy.ResourceVersion != revision {
		t.Error("the status was written again, with nothing new")
	}

	s.Submit(t, "job")
	d, _ := s.reconcile(t, "job")
	if d.Spec.Cluster != "" || d.Status.Reason != v1alpha1.ReasonInvalidPolicy {
		t.Fatalf("the Dispatch is %+v, want one that waits with %s", d, v1alpha1.ReasonInvalidPolicy)
	}
	for worker, why := range reasonsOf(d) {
		if want := v1alpha1.ReasonPolicyMismatch + `: DispatchPolicy "` + policy.Name + `": ` + fault; !strings.HasPrefix(why, want) {
			t.Errorf("%s: %q, want %q", worker, why, want)
		}
	}
	if len(d.Status.Explanation) != 2 {
		t.Errorf("%d workers explained, want 2", len(d.Status.Explanation))
	}

	s.express(t, policy, "worker.labels.zone == 'a'") // Compiles, and then there is no such label.
	if got := s.validity(t, policy); got.Status != metav1.ConditionTrue || got.Message != "" {
		t.Errorf("the condition is %+v, want True", got)
	}
	d, _ = s.reconcile(t, "job")
	why := "PolicyMismatch: the expression of DispatchPolicy " + policy.Name + " cannot be evaluated for the worker: no such key: zone"
	if diff := cmp.Diff(map[v1alpha1.ClusterName]string{east: why, west: why}, reasonsOf(d)); diff != "" || d.Status.Reason != v1alpha1.ReasonNoFit {
		t.Errorf("the job waits with %s (-want +got):\n%s", d.Status.Reason, diff)
	}

	s.express(t, policy, "worker.name == 'west' && worker.freeGPUs >= 8 && job.podSets[0].count == 2")
	if d, _ = s.reconcile(t, "job"); d.Spec.Cluster != west {
		t.Errorf("the job is on %q, want west: %+v", d.Spec.Cluster, d.Status)
	}
	// The expression sees the jobs that have been placed: it lets one more job in, and then fewer than eight GPUs are
	// free.
	s.Submit(t, "second")
	if d, _ = s.reconcile(t, "second"); d.Spec.Cluster != west {
		t.Errorf("the second job is on %q, want west: %+v", d.Spec.Cluster, d.Status)
	}
	s.Submit(t, "third")
	if d, _ = s.reconcile(t, "third"); d.Spec.Cluster != "" || !strings.Contains(reasonsOf(d)[west], "is false for the worker") {
		t.Errorf("the third job's Dispatch is %+v, want it to wait because the expression is false by now", d)
	}
}

// A pin narrows what the policy allows. A malformed pin is reported, and the job waits until the pin is corrected.
func TestPin(t *testing.T) {
	s := newScene(t)
	s.Policy(t, v1alpha1.DispatchPolicySpec{
		Clusters: v1alpha1.ClusterSelector{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"region": "east"}}},
	})
	s.Submit(t, "malformed", pinned("region==="))
	d, _ := s.reconcile(t, "malformed")
	const fault = "annotation trainyard.dev/clusters: "
	placed := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchPlaced)
	if d.Spec.Cluster != "" || placed == nil || placed.Reason != v1alpha1.ReasonInvalidPin || !strings.HasPrefix(placed.Message, fault) {
		t.Errorf("the Dispatch is %+v, want one that waits with %s", d, v1alpha1.ReasonInvalidPin)
	}
	if seen := s.Events.Take(); len(seen) != 1 || !strings.HasPrefix(seen[0], "Warning Waiting InvalidPin: ") || !strings.Contains(seen[0], fault) {
		t.Errorf("Events are %q, want one of %s", seen, v1alpha1.ReasonInvalidPin)
	}
	s.Submit(t, "elsewhere", pinned("region=west"))
	d, _ = s.reconcile(t, "elsewhere")
	want := map[v1alpha1.ClusterName]string{
		east: `PinMismatch: the job is pinned to trainyard.dev/clusters="region=west", which does not select the worker: label region is "east"`,
		west: "PolicyMismatch: DispatchPolicy " + s.Namespace + ` does not select the worker: label region is "west"`,
	}
	if diff := cmp.Diff(want, reasonsOf(d)); diff != "" || d.Status.Reason != v1alpha1.ReasonNoFit {
		t.Errorf("the pin is outside the policy, and the job waits with %s (-want +got):\n%s", d.Status.Reason, diff)
	}
	for _, name := range []string{"malformed", "elsewhere"} {
		job := &trainer.TrainJob{}
		check.Must(t, s.Hub.Admin.Get(t.Context(), s.Key(name), job))
		pinned("region in (east, north)")(job)
		check.Must(t, s.Hub.Admin.Update(t.Context(), job))
		if d, _ := s.reconcile(t, name); d.Spec.Cluster != east {
			t.Errorf("%s is on %q after its pin was repaired, want east: %+v", name, d.Spec.Cluster, d.Status)
		}
	}
}

// The cheaper worker is preferred, as much as the policy says, and the Dispatch says why it was chosen.
func TestPriceAndOtherScores(t *testing.T) {
	s := newScene(t)
	s.price(t, east, "3")
	s.price(t, west, "1500m")
	policy := s.Policy(t, v1alpha1.DispatchPolicySpec{Scoring: []v1alpha1.Score{
		{Name: v1alpha1.ScorePrice, Weight: 3}, {Name: v1alpha1.ScoreQueueDepth},
	}})
	for i, want := range []struct {
		cluster  v1alpha1.ClusterName
		decision string
	}{
		{west, "score 63: Price 50 x3, QueueDepth 100; the highest of 2 workers on which the job fits"},
		{west, "score 50: Price 50 x3, QueueDepth 50; the highest of 2 workers on which the job fits"}, // One is queued there.
		{east, "score 25: Price 0 x3, QueueDepth 100; the only worker on which the job fits"},
	} {
		name := fmt.Sprintf("job-%d", i)
		s.Submit(t, name)
		d, _ := s.reconcile(t, name)
		if d.Spec.Cluster != want.cluster || d.Annotations[v1alpha1.AnnotationDecision] != want.decision {
			t.Errorf("job %d is on %q: %q; want %q: %q", i, d.Spec.Cluster, d.Annotations[v1alpha1.AnnotationDecision], want.cluster, want.decision)
		}
		if seen := s.Events.Take(); len(seen) != 1 || !strings.Contains(seen[0], want.decision) {
			t.Errorf("Events are %q, want one with %q", seen, want.decision)
		}
	}
	// Sticky: an attempt that ended with a deleted copy counts as run there, an attempt that was refused does not.
	before := policy.DeepCopy()
	policy.Spec.Scoring = []v1alpha1.Score{{Name: v1alpha1.ScoreSticky, Weight: 100}, {Name: v1alpha1.ScorePrice}}
	check.Must(t, s.Hub.Admin.Patch(t.Context(), policy, client.MergeFrom(before)))
	last := &v1alpha1.Dispatch{}
	check.Must(t, s.Hub.Admin.Get(t.Context(), s.Key("job-2"), last))
	first := &v1alpha1.Dispatch{}
	check.Must(t, s.Hub.Admin.Get(t.Context(), s.Key("job-0"), first))
	s.report(t, first, v1alpha1.DispatchFinished, metav1.ConditionTrue, v1alpha1.OutcomeComplete) // So there is room in the west.
	s.report(t, last, v1alpha1.DispatchMirrored, metav1.ConditionFalse, v1alpha1.OutcomeCopyDeleted)
	again, _ := s.reconcile(t, "job-2")
	if decision := again.Annotations[v1alpha1.AnnotationDecision]; again.Spec.Cluster != east || !strings.Contains(decision, "Sticky 100 x100, Price 0") {
		t.Errorf("the second attempt is on %q: %q; want east, where the first ran", again.Spec.Cluster, decision)
	}
}

// The API server refuses a policy that cannot mean anything.
func TestPolicyForm(t *testing.T) {
	s := newScene(t)
	for name, test := range map[string]struct {
		reason string
		spec   v1alpha1.DispatchPolicySpec
		want   string
	}{
		"Twice": {
			reason: "a score counts once",
			spec:   v1alpha1.DispatchPolicySpec{Scoring: []v1alpha1.Score{{Name: "Price"}, {Name: "Price", Weight: 2}}}, want: "Duplicate value",
		},
		"Unknown": {
			reason: "there are five scores", spec: v1alpha1.DispatchPolicySpec{Scoring: []v1alpha1.Score{{Name: "Random"}}}, want: "Unsupported value",
		},
		"Weight": {
			reason: "weights are 1 to 100", spec: v1alpha1.DispatchPolicySpec{Scoring: []v1alpha1.Score{{Name: "Price", Weight: 101}}}, want: "less than or equal to 100",
		},
		"Ceiling": {
			reason: "others have none",
			spec:   v1alpha1.DispatchPolicySpec{Scoring: []v1alpha1.Score{{Name: "Sticky", Ceiling: v1alpha1.Prices{gpu: resource.MustParse("1")}}}},
			want:   "only the score Price has a ceiling",
		},
		"Long": {
			reason: "4096 characters", want: "Too long",
			spec: v1alpha1.DispatchPolicySpec{Clusters: v1alpha1.ClusterSelector{Expression: strings.Repeat(" ", 4096) + "true"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			policy := &v1alpha1.DispatchPolicy{ObjectMeta: metav1.ObjectMeta{Name: s.Namespace}, Spec: test.spec}
			if err := s.Hub.Admin.Create(t.Context(), policy, client.DryRunAll); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("created with %v, want %q: %s", err, test.want, test.reason)
			}
		})
	}
	worker := &v1alpha1.WorkerCluster{}
	check.Must(t, s.Hub.Admin.Get(t.Context(), client.ObjectKey{Name: string(east)}, worker))
	worker.Spec.Price = v1alpha1.Prices{gpu: resource.MustParse("-1")}
	if err := s.Hub.Admin.Update(t.Context(), worker, client.DryRunAll); err == nil || !strings.Contains(err.Error(), "a price must not be negative") {
		t.Errorf("a negative price: %v, want a refusal", err)
	}
	// Defaults, and faults that only the controller finds.
	policy := s.Policy(t, v1alpha1.DispatchPolicySpec{
		Clusters: v1alpha1.ClusterSelector{Expression: "1", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b c"}}},
		Scoring:  []v1alpha1.Score{{Name: "Price", Ceiling: v1alpha1.Prices{gpu: resource.MustParse("-1")}}},
	})
	if policy.Spec.Scoring[0].Weight != 1 {
		t.Errorf("the weight is %d, want 1 by default", policy.Spec.Scoring[0].Weight)
	}
	message := s.validity(t, policy).Message
	for _, want := range []string{
		"spec.clusters.selector: ", "; spec.clusters.expression: line 1, column 1: it is of type int, and has to be a bool; ",
		"spec.scoring[0].ceiling[nvidia.com/gpu]: a price must not be negative",
	} {
		if !strings.Contains(message, want) {
			t.Errorf("the message is %q, want all faults, also %q", message, want)
		}
	}
}

// The samples are policies that the API server takes and that can be applied.
func TestSamplePolicies(t *testing.T) {
	s := newScene(t)
	content, err := os.ReadFile("../../../config/samples/dispatchpolicy.yaml")
	check.Must(t, err)
	samples := strings.Split(string(content), "\n---\n")
	for _, sample := range samples {
		policy := &v1alpha1.DispatchPolicy{}
		check.Must(t, yaml.UnmarshalStrict([]byte(sample), policy))
		check.Must(t, s.Hub.Admin.Create(t.Context(), policy, client.DryRunAll))
		if got := validity(policy); got.Status != metav1.ConditionTrue {
			t.Errorf("%s: %s", policy.Name, got.Message)
		}
	}
	if len(samples) < 3 {
		t.Errorf("%d samples, want them all", len(samples))
	}
}

// run starts a manager with the controller, until the test ends.
func (s *scene) run(t *testing.T) {
	t.Helper()
	mgr := s.NewManager(t, s.Hub.Cluster.Config)
	var err error
	s.reconciler, err = NewReconciler(t.Context(), Options{
		Hub: mgr.GetClient(), HubReader: mgr.GetAPIReader(), ManagedBy: v1alpha1.ManagedByMultiKueue, Connections: s.Fleet,
		Recorder: mgr.GetEventRecorder("trainyard"), Clock: s.Clock, UnknownCopies: s.unknown, Shown: s.shown,
		Kueue: s.kueue,
	})
	check.Must(t, err)
	check.Must(t, s.reconciler.Add(mgr))
	stage.RunFor(t, mgr)
}

// eventually waits until the Dispatch of a job says "worker/reason", with anything behind it.
func (s *scene) eventually(t *testing.T, name, what string, want string) {
	t.Helper()
	check.Eventually(t, what, func(g gomega.Gomega) {
		d := &v1alpha1.Dispatch{}
		g.Expect(s.Hub.Admin.Get(t.Context(), s.Key(name), d)).To(gomega.Succeed())
		g.Expect(string(d.Spec.Cluster) + "/" + d.Status.Reason).To(gomega.HavePrefix(want))
	})
}

// cpus makes a job one without GPUs, which may be taken by the jobs of other tests.
func cpus(job *trainer.TrainJob) {
	job.Spec.Trainer.ResourcesPerNode = &corev1.ResourceRequirements{Requests: list("cpu", "1")}
}

// With its watches: a job goes on as soon as its policy or its pin is repaired, without any other event.
func TestRepairsWakeJobs(t *testing.T) {
	s := newScene(t)
	s.run(t)
	expect := func(name, what string, want string) {
		t.Helper()
		s.eventually(t, name, what, want)
	}
	policy := s.Policy(t, v1alpha1.DispatchPolicySpec{Clusters: v1alpha1.ClusterSelector{Expression: "worker.name =="}})
	gomega.NewWithT(t).Eventually(func() string {
		check.Must(t, s.Hub.Admin.Get(t.Context(), client.ObjectKeyFromObject(policy), policy))
		if condition := meta.FindStatusCondition(policy.Status.Conditions, v1alpha1.DispatchPolicyValid); condition != nil {
			return string(condition.Status) + " " + condition.Message
		}
		return ""
	}, check.Patience, 20*time.Millisecond).Should(gomega.HavePrefix("False spec.clusters.expression: line 1, column 15: Syntax error"))
	s.Submit(t, "job", cpus)
	expect("job", "with a bad policy", "/InvalidPolicy")
	s.express(t, policy, "worker.name == 'west'")
	expect("job", "with a repaired policy", "west/")

	s.Submit(t, "pinned", cpus, pinned("region=north"))
	expect("pinned", "with a pin to nowhere", "/NoFit")
	job := &trainer.TrainJob{}
	check.Must(t, s.Hub.Admin.Get(t.Context(), s.Key("pinned"), job))
	before := job.DeepCopy()
	pinned("region=west")(job)
	check.Must(t, s.Hub.Admin.Patch(t.Context(), job, client.MergeFrom(before)))
	expect("pinned", "with a pin that can be met", "west/")
}
