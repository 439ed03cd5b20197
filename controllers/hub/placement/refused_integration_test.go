// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/test/check"
)

// refuse has the hub refuse Dispatches of the scene's namespace for which a CEL expression is false, until the returned
// function is called.
func (s *scene) refuse(t *testing.T, expression, words string) (admit func()) {
	t.Helper()
	name := s.Namespace + "-" + fmt.Sprint(len(expression))
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
					Rule:       admissionv1.Rule{APIGroups: []string{"trainyard.dev"}, APIVersions: []string{"*"}, Resources: []string{"dispatches"}},
				},
			}}},
			MatchConditions: []admissionv1.MatchCondition{{Name: "namespace", Expression: fmt.Sprintf("object.metadata.namespace == %q", s.Namespace)}},
			Validations:     []admissionv1.Validation{{Expression: expression, Message: words}},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}
	check.Must(t, s.Hub.Admin.Create(t.Context(), policy))
	check.Must(t, s.Hub.Admin.Create(t.Context(), binding))
	probe := func() error {
		return s.Hub.Admin.Create(t.Context(), &v1alpha1.Dispatch{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "probe"},
			Spec:       v1alpha1.DispatchSpec{TrainJob: v1alpha1.TrainJobReference{Name: "probe", UID: "probe"}, Cluster: "nowhere", Attempt: 1},
		}, client.DryRunAll)
	}
	gomega.NewWithT(t).Eventually(probe, check.Patience, 50*time.Millisecond).ShouldNot(gomega.Succeed())
	deleted := false
	remove := func() {
		if deleted {
			return
		}
		deleted = true
		for _, object := range []client.Object{binding, policy} {
			check.Must(t, client.IgnoreNotFound(s.Hub.Admin.Delete(context.Background(), object)))
		}
	}
	t.Cleanup(remove)
	return func() {
		remove()
		gomega.NewWithT(t).Eventually(probe, check.Patience, 50*time.Millisecond).Should(gomega.Succeed())
	}
}

// try reconciles a job and returns the error.
func (s *scene) try(t *testing.T, name string) error {
	t.Helper()
	_, err := s.turn(t, name)
	return err
}

// If the API server refuses a decision for good, its words are where the user looks. While nothing changes, nothing is
// written again. The room is free for others. When the API server admits the decision, the job is placed.
func TestRefusedForGood(t *testing.T) {
	s := newScene(t)
	admit := s.refuse(t, "!has(object.spec.cluster) || object.metadata.name == 'other'", "nothing is placed on Sundays")
	s.Submit(t, "job")
	for range 2 {
		if err := s.try(t, "job"); err == nil || !strings.Contains(err.Error(), "nothing is placed on Sundays") {
			t.Fatalf("reconcile: %v", err)
		}
	}
	d := s.Dispatch(t, "job")
	refused := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchWriteRefused)
	placed := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchPlaced)
	for _, condition := range []*metav1.Condition{refused, placed} {
		if condition == nil || !strings.Contains(condition.Message, "nothing is placed on Sundays") {
			t.Fatalf("the Dispatch says %+v", d.Status)
		}
	}
	if refused.Reason != v1alpha1.ReasonDispatchRefused || placed.Reason != v1alpha1.ReasonWriteRefused || placed.Status != metav1.ConditionFalse ||
		d.Status.Phase != v1alpha1.PhaseWaiting || d.Status.Reason != v1alpha1.ReasonWriteRefused || d.Spec.Cluster != "" {
		t.Errorf("the Dispatch says %+v", d)
	}
	_ = s.try(t, "job")
	if again := s.Dispatch(t, "job"); again.ResourceVersion != d.ResourceVersion {
		t.Errorf("what is said already is written again")
	}
	s.Submit(t, "other", func(job *trainer.TrainJob) { job.Spec.Trainer.NumNodes = new(int32(4)) }) // All that a worker has.
	if other, _ := s.reconcile(t, "other"); other.Spec.Cluster == "" {
		t.Errorf("the room of a job that cannot be placed is not free for others: %+v", other.Status)
	}
	admit()
	d, _ = s.reconcile(t, "job")
	if d.Spec.Cluster == "" {
		t.Fatalf("the job is not placed when its Dispatch is admitted: %+v", d.Status)
	}
	check.Must(t, records.Writer{Hub: s.Hub.Admin, Clock: s.Clock}.UpdateStatus(t.Context(), d, func(status *v1alpha1.DispatchStatus) {
		record.SetCopied(status, d, s.Clock.Now())
	}))
	if d = s.Dispatch(t, "job"); meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchWriteRefused) != nil {
		t.Errorf("the next write leaves a refusal that is over: %+v", d.Status.Conditions)
	}
}

// If no Dispatch can be recorded at all, an Event on the TrainJob says so.
func TestNoDispatchAtAll(t *testing.T) {
	s := newScene(t)
	s.refuse(t, "false", "no Dispatches here")
	s.Submit(t, "job")
	if err := s.try(t, "job"); err == nil {
		t.Fatal("the refusal is no error, so the job would not come back")
	}
	for _, event := range s.Events.Take() {
		if strings.Contains(event, v1alpha1.ReasonWriteRefused) && strings.Contains(event, "no Dispatches here") {
			return
		}
	}
	t.Fatal("there is no Event")
}

// Whatever users and workers say, the Dispatch can be written: as many workers as the API has room for refuse a job of
// the largest demand with the longest words, in the letters that JSON writes longest.
func TestLargestStatus(t *testing.T) {
	for name, test := range map[string]struct {
		reason     string
		nameLength int
		refusals   int
	}{
		"Usual":     {reason: "names as people give them", nameLength: 24, refusals: 1000},
		"LongNames": {reason: "the oldest refusals go before the Dispatch cannot be written", nameLength: 253, refusals: 300},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.Submit(t, "job")
			d, _ := s.reconcile(t, "job")
			d = d.DeepCopy()
			for i := range 128 {
				d.Spec.PodSets[0].Tolerations = append(d.Spec.PodSets[0].Tolerations, corev1.Toleration{
					Key: fmt.Sprintf("%s/%d", strings.Repeat("k", 250), i), Value: strings.Repeat("v", 60), Operator: corev1.TolerationOpEqual,
				})
			}
			d.Spec.PodSets[0].NodeSelector = map[string]string{}
			for i := range 800 {
				d.Spec.PodSets[0].NodeSelector[fmt.Sprintf("example.com/%d", i)] = strings.Repeat("v", 63)
			}
			check.Must(t, s.Hub.Admin.Update(t.Context(), d))
			words := strings.Repeat("\x01", 5000)
			ender := records.Writer{Hub: s.Hub.Admin, Clock: s.Clock}
			lines := make([]v1alpha1.ClusterExplanation, 1000)
			for i := range test.refusals {
				worker := v1alpha1.ClusterName(fmt.Sprintf("%s%d", strings.Repeat("w", test.nameLength-4), 1000+i))
				lines[i] = v1alpha1.ClusterExplanation{Cluster: worker, Reason: v1alpha1.ReasonRejected, Message: words[:1024]}
			}
			check.Must(t, ender.UpdateStatus(t.Context(), d, func(status *v1alpha1.DispatchStatus) {
				for i := range test.refusals {
					status.Refusals = append(status.Refusals, v1alpha1.Refusal{
						Cluster: lines[i].Cluster, Outcome: v1alpha1.OutcomeRejected, Message: words[:1024], Count: 1,
						Last: metav1.NewTime(s.Clock.Now().Add(time.Duration(i) * time.Second)),
					})
				}
				status.Explanation = lines[:test.refusals]
				for range 16 {
					record.AddHistory(status, d, v1alpha1.OutcomeRejected, words, s.Clock.Now())
				}
				for _, kind := range []string{
					v1alpha1.DispatchPlaced, v1alpha1.DispatchMirrored, v1alpha1.DispatchEvicting, v1alpha1.DispatchWorkerLost,
				} {
					record.SetCondition(status, d, metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: "Some", Message: words}, s.Clock.Now())
				}
				for i := range 200 {
					status.Steps = append(status.Steps, v1alpha1.Step{Name: strings.Repeat("s", 249) + fmt.Sprint(i%150), State: v1alpha1.StepRunning})
				}
				status.Steps = append(status.Steps, v1alpha1.Step{State: v1alpha1.StepRunning})
			}))
			d = s.Dispatch(t, "job")
			if len(d.Status.Steps) != 100 {
				t.Errorf("%d steps", len(d.Status.Steps))
			}
			last := lines[test.refusals-1].Cluster
			if !slices.ContainsFunc(d.Status.Refusals, func(r v1alpha1.Refusal) bool { return r.Cluster == last }) {
				t.Errorf("the last of %d refusals is not on record: %s", test.refusals, test.reason)
			}
			if name == "Usual" && len(d.Status.Refusals) != test.refusals {
				t.Errorf("%d refusals of %d are left, so that workers that have refused are asked again and again", len(d.Status.Refusals), test.refusals)
			}
			// What it says is the same again: no write.
			check.Must(t, ender.UpdateStatus(t.Context(), d, func(status *v1alpha1.DispatchStatus) { status.Explanation = lines[:test.refusals] }))
			if again := s.Dispatch(t, "job"); again.ResourceVersion != d.ResourceVersion {
				t.Error("what is said already is written again")
			}
			next := d.DeepCopy()
			noteAsked(next, "0123456789abcdef")
			check.Must(t, s.Hub.Admin.Update(t.Context(), next))
		})
	}
}

// A job in which everything is as large as the Trainer admits has a Dispatch, which says what the job waits for.
func TestLargestJob(t *testing.T) {
	const key = "trainer.kubeflow.org/trainjob-ancestor-step"
	tolerations := make([]corev1.Toleration, 128)
	for i := range tolerations {
		tolerations[i] = corev1.Toleration{Key: fmt.Sprintf("example.com/%d", i), Operator: corev1.TolerationOpExists}
	}
	selector := map[string]string{}
	for i := range 100 {
		selector[fmt.Sprintf("example.com/%d", i)] = "v"
	}
	many := corev1.ResourceList{}
	for i := range 2000 {
		many[corev1.ResourceName(fmt.Sprintf("example.com/r%d", i))] = resource.MustParse("1")
	}
	for name, test := range map[string]struct {
		reason string
		jobs   int
		change func(*trainer.TrainJob)
		want   string
	}{
		"Tolerations": {
			reason: "as many as the Trainer admits", jobs: 1, want: v1alpha1.ReasonNoFit,
			change: func(job *trainer.TrainJob) {
				job.Spec.RuntimePatches = patchOf(trainer.PodSpecPatch{Tolerations: tolerations, NodeSelector: selector})
			},
		},
		"PodSets": {reason: "a hundred kinds of pods", jobs: 100, want: v1alpha1.ReasonPlaced, change: func(*trainer.TrainJob) {}},
		"Resources": {
			reason: "more than are counted", jobs: 1, want: v1alpha1.ReasonTooLarge,
			change: func(job *trainer.TrainJob) {
				job.Spec.Trainer.ResourcesPerNode = &corev1.ResourceRequirements{Requests: many}
			},
		},
		"Nodes": {
			reason: "more than there can be", jobs: 1, want: v1alpha1.ReasonTooLarge,
			change: func(job *trainer.TrainJob) { job.Spec.Trainer.NumNodes = new(int32(2147483647)) },
		},
		"CPU": {
			reason: "more than is a number", jobs: 1, want: v1alpha1.ReasonNoFit,
			change: func(job *trainer.TrainJob) {
				job.Spec.Trainer.ResourcesPerNode = &corev1.ResourceRequirements{Requests: list("cpu", "9000000000000000000")}
			},
		},
		"Pin": {
			reason: "longer than a message may be", jobs: 1, want: v1alpha1.ReasonInvalidPin,
			change: func(job *trainer.TrainJob) {
				job.Annotations = map[string]string{v1alpha1.AnnotationClusters: "region in (" + strings.Repeat("x", 200_000)}
			},
		},
		"PriorityClass": {
			reason: "longer than a message may be", jobs: 1, want: v1alpha1.ReasonPriorityClassNotFound,
			change: func(job *trainer.TrainJob) {
				job.Annotations = map[string]string{v1alpha1.AnnotationPriorityClass: strings.Repeat("x", 200_000)}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			runtime := &trainer.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "own"}}
			runtime.Spec.MLPolicy = &trainer.MLPolicy{NumNodes: new(int32(1))}
			for i := range test.jobs {
				job := jobsetv1alpha2.ReplicatedJob{Name: "node"}
				if i > 0 {
					job.Name = fmt.Sprintf("other-%d", i)
				} else {
					job.Template.Labels = map[string]string{key: "trainer"}
				}
				job.Template.Spec.Template.Spec.Containers = []corev1.Container{{Name: "node", Image: "none"}}
				runtime.Spec.Template.Spec.ReplicatedJobs = append(runtime.Spec.Template.Spec.ReplicatedJobs, job)
			}
			check.Must(t, s.Hub.Admin.Create(t.Context(), runtime))
			s.Submit(t, "job", func(job *trainer.TrainJob) {
				job.Spec.RuntimeRef = trainer.RuntimeRef{Name: "own", Kind: new("TrainingRuntime")}
				job.Spec.Trainer = &trainer.Trainer{}
			}, test.change)
			d, _ := s.reconcile(t, "job")
			if d == nil {
				t.Fatalf("there is no Dispatch: %s", test.reason)
			}
			placed := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchPlaced)
			switch {
			case test.want == v1alpha1.ReasonPlaced:
				if d.Spec.Cluster == "" {
					t.Errorf("the job is not placed: %+v", d.Status)
				}
			case placed == nil || placed.Reason != test.want || len(placed.Message) > 1024:
				t.Errorf("the Dispatch says %+v, want %s: %s", placed, test.want, test.reason)
			}
			if again, _ := s.reconcile(t, "job"); again.ResourceVersion != d.ResourceVersion {
				t.Error("the Dispatch is written again though nothing has changed")
			}
		})
	}
}

// patchOf is a patch of the pods of the trainer.
func patchOf(pod trainer.PodSpecPatch) []trainer.RuntimePatch {
	return []trainer.RuntimePatch{{
		Manager: "example.com/tests",
		TrainingRuntimeSpec: &trainer.TrainingRuntimeSpecPatch{Template: &trainer.JobSetTemplatePatch{Spec: &trainer.JobSetSpecPatch{
			ReplicatedJobs: []trainer.ReplicatedJobPatch{{
				Name:     "node",
				Template: &trainer.JobTemplatePatch{Spec: &trainer.JobSpecPatch{Template: &trainer.PodTemplatePatch{Spec: &pod}}},
			}},
		}}},
	}}
}

// The agents of workers remember the attempts of copies, and let no lower one run. So the count of attempts goes on
// when the Dispatch that had it is gone, also in a process that has not seen the deletion.
func TestAttemptsAreCountedOn(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		// tombstones are the attempts of Tombstones. waits: there is a Dispatch that waits and knows of none.
		tombstones []int32
		waits      bool
		want       int32
	}{
		"New":       {reason: "nothing is known of it", want: 1},
		"Tombstone": {reason: "its Dispatch was deleted, and the manager died", tombstones: []int32{3}, want: 4},
		"Twice":     {reason: "of two workers the later attempt counts", tombstones: []int32{5, 2}, want: 6},
		"AndWaited": {reason: "its copy was deleted while it waited for that", tombstones: []int32{3}, waits: true, want: 4},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.Submit(t, "job")
			job := s.TrainJob(t, "job")
			if test.waits {
				s.worker(t, east, cordon)
				s.worker(t, west, cordon)
				s.reconcile(t, "job")
			}
			for i, attempt := range test.tombstones {
				tombstone := &v1alpha1.Tombstone{
					ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", job.UID, i)},
					Spec: v1alpha1.TombstoneSpec{
						Cluster: west, ClusterID: "id", Namespace: job.Namespace, Attempt: attempt,
						TrainJob: v1alpha1.TrainJobReference{Name: job.Name, UID: job.UID},
					},
				}
				check.Must(t, s.Hub.Admin.Create(t.Context(), tombstone))
				t.Cleanup(func() { check.Must(t, s.Hub.Admin.Delete(context.Background(), tombstone)) })
			}
			if test.waits {
				s.worker(t, west, func(w *v1alpha1.WorkerCluster) { w.Spec.Unschedulable = false })
			}
			s.restart(t)
			d, _ := s.reconcile(t, "job")
			if d.Spec.Cluster == "" || d.Spec.Attempt != test.want {
				t.Errorf("placed on %q with attempt %d, want %d: %s", d.Spec.Cluster, d.Spec.Attempt, test.want, test.reason)
			}
		})
	}
}

// The count does not overflow: after the last possible attempt the job waits, and its Dispatch says what to do.
func TestLastAttemptIsTheLast(t *testing.T) {
	s := newScene(t)
	s.Submit(t, "job")
	s.worker(t, east, cordon)
	s.worker(t, west, cordon)
	d, _ := s.reconcile(t, "job")
	d.Spec.Attempt = math.MaxInt32
	check.Must(t, s.Hub.Admin.Update(t.Context(), d))
	s.worker(t, west, func(w *v1alpha1.WorkerCluster) { w.Spec.Unschedulable = false })
	s.restart(t)
	d, _ = s.reconcile(t, "job")
	placed := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchPlaced)
	if d.Spec.Cluster != "" || d.Spec.Attempt != math.MaxInt32 || placed == nil || placed.Reason != v1alpha1.ReasonAttemptsExhausted {
		t.Errorf("the Dispatch has %+v and says %+v, want that there is no attempt left", d.Spec, placed)
	}
	d.Spec.Cluster = east
	if answer := s.elsewhere(t, d); answer.Reason != v1alpha1.ReasonAttemptsExhausted {
		t.Errorf("asked for room elsewhere during the last attempt, the answer is %+v", answer)
	}
}
