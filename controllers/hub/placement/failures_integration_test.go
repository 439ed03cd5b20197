// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/test/check"
)

// worker changes a WorkerCluster until the test ends.
func (s *scene) worker(t *testing.T, name v1alpha1.ClusterName, change func(*v1alpha1.WorkerCluster)) {
	t.Helper()
	before := s.WorkerCluster(t, name)
	s.ChangeWorker(t, name, change)
	t.Cleanup(func() {
		s.ChangeWorker(t, name, func(worker *v1alpha1.WorkerCluster) { worker.Spec, worker.Status = before.Spec, before.Status })
	})
}

func drain(worker *v1alpha1.WorkerCluster) { worker.Spec.Drain = true }

func cordon(worker *v1alpha1.WorkerCluster) { worker.Spec.Unschedulable = true }

func withAgent(worker *v1alpha1.WorkerCluster) {
	meta.SetStatusCondition(&worker.Status.Conditions, metav1.Condition{
		Type: v1alpha1.WorkerClusterAgentReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAgentAnswers,
	})
}

func unreachable(worker *v1alpha1.WorkerCluster) {
	meta.SetStatusCondition(&worker.Status.Conditions, metav1.Condition{
		Type: v1alpha1.WorkerClusterReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonUnreachable, Message: "nobody answers",
	})
}

// Failover is decided together with the worker. It belongs to the attempt, and is removed with it.
func TestFailoverBelongsToTheAttempt(t *testing.T) {
	s := newScene(t)
	policy := s.Policy(t, v1alpha1.DispatchPolicySpec{})
	s.worker(t, east, withAgent)
	s.worker(t, west, cordon)
	s.Submit(t, "job")
	d, _ := s.reconcile(t, "job")
	if d.Spec.Cluster != east || d.Spec.Failover != v1alpha1.FailoverFenced {
		t.Fatalf("the job is on %q with failover %q, want east, where an agent answers, with Fenced", d.Spec.Cluster, d.Spec.Failover)
	}
	before := policy.DeepCopy()
	policy.Spec.Failover = v1alpha1.FailoverImmediate
	check.Must(t, s.Hub.Admin.Patch(t.Context(), policy, client.MergeFrom(before)))
	if d, _ = s.reconcile(t, "job"); d.Spec.Failover != v1alpha1.FailoverFenced {
		t.Errorf("failover of a placed job is %q, want what was decided", d.Spec.Failover)
	}
	s.worker(t, east, cordon)
	s.endsAttempt(t, d, v1alpha1.OutcomeDrained)
	if d, _ = s.reconcile(t, "job"); d.Spec.Cluster != "" || d.Spec.Failover != "" {
		t.Fatalf("the waiting job is on %q with failover %q, want neither", d.Spec.Cluster, d.Spec.Failover)
	}
	s.worker(t, west, func(worker *v1alpha1.WorkerCluster) { worker.Spec.Unschedulable = false })
	if d, _ = s.reconcile(t, "job"); d.Spec.Cluster != west || d.Spec.Failover != v1alpha1.FailoverImmediate || d.Spec.Attempt != 2 {
		t.Errorf("the job is on %q with failover %q in attempt %d, want what the policy says now", d.Spec.Cluster, d.Spec.Failover, d.Spec.Attempt)
	}
}

// A worker that is being drained takes no jobs, and the explanation says that it is drained.
func TestDrainedWorkerTakesNoJobs(t *testing.T) {
	s := newScene(t)
	s.worker(t, east, drain)
	s.worker(t, west, cordon)
	s.Submit(t, "job")
	d := s.expect(t, "job", v1alpha1.ReasonNoFit)
	want := []v1alpha1.ClusterExplanation{
		{Cluster: east, Reason: v1alpha1.ReasonCordoned, Message: "the worker is being drained (spec.drain)"},
		{Cluster: west, Reason: v1alpha1.ReasonCordoned, Message: "the worker is cordoned (spec.unschedulable)"},
	}
	check.Diff(t, want, d.Status.Explanation, "explanation")
	s.worker(t, east, func(worker *v1alpha1.WorkerCluster) { worker.Spec.Drain = false })
	if d, _ := s.reconcile(t, "job"); d.Spec.Cluster != east {
		t.Errorf("the job is on %q, want east, which takes jobs again", d.Spec.Cluster)
	}
}

// If an attempt ended without a fault of the worker, the next attempt follows at once, and the room of the first is
// free.
func TestOutcomesWithoutRefusal(t *testing.T) {
	for _, outcome := range []v1alpha1.Outcome{
		v1alpha1.OutcomeWorkerLost, v1alpha1.OutcomeDrained, v1alpha1.OutcomeCopyChanged, v1alpha1.OutcomePreempted,
	} {
		t.Run(string(outcome), func(t *testing.T) {
			s := newScene(t)
			s.worker(t, west, cordon)
			s.Submit(t, "job", large)
			d, _ := s.reconcile(t, "job")
			s.Submit(t, "next", large, pinned("region=east")) // Or it might take west first.
			s.expect(t, "next", v1alpha1.ReasonNoFit)
			s.worker(t, east, unreachable)
			s.worker(t, west, func(worker *v1alpha1.WorkerCluster) { worker.Spec.Unschedulable = false })
			s.endsAttempt(t, d, outcome)
			if outcome == v1alpha1.OutcomeWorkerLost {
				s.restart(t)
			}
			d, _ = s.reconcile(t, "job")
			if d.Spec.Cluster != west || d.Spec.Attempt != 2 {
				t.Fatalf("the job is on %q in attempt %d, want west in attempt 2", d.Spec.Cluster, d.Spec.Attempt)
			}
			s.worker(t, east, func(worker *v1alpha1.WorkerCluster) {
				worker.Status.Conditions[0].Status, worker.Status.Conditions[0].Reason = metav1.ConditionTrue, v1alpha1.ReasonConnected
			})
			if next, _ := s.reconcile(t, "next"); next.Spec.Cluster != east {
				t.Errorf("the next job is on %q, want east, which is empty", next.Spec.Cluster)
			}
		})
	}
}

// A worker that has not let a copy run is asked again later.
func TestAdmissionTimeoutIsARefusal(t *testing.T) {
	s := newScene(t)
	s.worker(t, west, cordon)
	s.Submit(t, "job")
	d, _ := s.reconcile(t, "job")
	s.report(t, d, v1alpha1.DispatchMirrored, metav1.ConditionFalse, v1alpha1.OutcomeAdmissionTimeout)
	s.expect(t, "job", string(v1alpha1.OutcomeAdmissionTimeout))
	s.Clock.Step(record.MinBackoff)
	if d, _ = s.reconcile(t, "job"); d.Spec.Cluster != east || d.Spec.Attempt != 2 {
		t.Errorf("the job is on %q in attempt %d, want east again after the back-off", d.Spec.Cluster, d.Spec.Attempt)
	}
}

// If all workers refuse, the explanation has the words of each worker. If the job or its runtime changes, the workers
// that refused are asked again at once. If a worker changes, only this worker is.
func TestRefusalsAreOfTheirCircumstances(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		change func(t *testing.T, s *scene)
		// want is where the job may be then.
		want []v1alpha1.ClusterName
	}{
		"Nothing": {reason: "the back-off counts", change: func(*testing.T, *scene) {}, want: []v1alpha1.ClusterName{""}},
		"Job": {
			reason: "it is another question", want: []v1alpha1.ClusterName{east, west},
			change: func(t *testing.T, s *scene) {
				t.Helper()
				job := s.TrainJob(t, "job")
				before := job.DeepCopy()
				metav1.SetMetaDataLabel(&job.ObjectMeta, "team", "research")
				check.Must(t, s.Hub.Admin.Patch(t.Context(), job, client.MergeFrom(before)))
			},
		},
		"Pin": {
			reason: "it is another question", want: []v1alpha1.ClusterName{east, west},
			change: annotate(v1alpha1.AnnotationClusters, "nowhere!=here"),
		},
		"Annotation": {
			reason: "the copy has it, and an admission policy there may read it", want: []v1alpha1.ClusterName{east, west},
			change: annotate("team", "research"),
		},
		"Tracking": {
			reason: "a tool writes it when it applies the job again, and it stays on the hub", want: []v1alpha1.ClusterName{""},
			change: annotate("argocd.argoproj.io/tracking-id", "another"),
		},
		"TTL": {
			reason: "it stays on the hub", want: []v1alpha1.ClusterName{""},
			change: annotate(v1alpha1.AnnotationTTL, "1h"),
		},
		"AdmissionTimeout": {
			reason: "it stays on the hub", want: []v1alpha1.ClusterName{""},
			change: func(t *testing.T, s *scene) {
				t.Helper()
				s.Policy(t, v1alpha1.DispatchPolicySpec{AdmissionTimeout: &metav1.Duration{Duration: time.Minute}})
			},
		},
		"Failover": {
			reason: "the copy says it", want: []v1alpha1.ClusterName{east, west},
			change: func(t *testing.T, s *scene) {
				t.Helper()
				s.Policy(t, v1alpha1.DispatchPolicySpec{Failover: v1alpha1.FailoverImmediate})
			},
		},
		"Runtime": {
			reason: "the copy would be another one", want: []v1alpha1.ClusterName{east, west},
			change: func(t *testing.T, s *scene) {
				t.Helper()
				runtime := &trainer.TrainingRuntime{}
				check.Must(t, s.Hub.Admin.Get(t.Context(), s.Key("own"), runtime))
				before := runtime.DeepCopy()
				metav1.SetMetaDataAnnotation(&runtime.Spec.Template.ObjectMeta, "repaired", "yes")
				check.Must(t, s.Hub.Admin.Patch(t.Context(), runtime, client.MergeFrom(before)))
			},
		},
		"Worker": {
			reason: "it may answer differently, and only it", want: []v1alpha1.ClusterName{west},
			change: func(t *testing.T, s *scene) {
				t.Helper()
				s.worker(t, west, func(worker *v1alpha1.WorkerCluster) {
					worker.Status.Trainer = &v1alpha1.TrainerAPI{Version: "v1alpha1", Fields: []string{"runtimePatches"}}
				})
			},
		},
		"WorkerWasAway": {
			reason: "it may have other credentials, or be another version", want: []v1alpha1.ClusterName{east},
			change: func(t *testing.T, s *scene) {
				t.Helper()
				s.worker(t, east, func(worker *v1alpha1.WorkerCluster) {
					worker.Status.Conditions[0].LastTransitionTime = metav1.NewTime(s.Clock.Now())
				})
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			shared, own := &trainer.ClusterTrainingRuntime{}, &trainer.TrainingRuntime{}
			check.Must(t, s.Hub.Admin.Get(t.Context(), client.ObjectKey{Name: "torch-distributed"}, shared))
			own.Namespace, own.Name, own.Labels, own.Spec = s.Namespace, "own", shared.Labels, shared.Spec
			check.Must(t, s.Hub.Admin.Create(t.Context(), own))
			s.Submit(t, "job", func(job *trainer.TrainJob) {
				job.Spec.RuntimeRef = trainer.RuntimeRef{Name: "own", Kind: new(trainer.TrainingRuntimeKind)}
			})
			words := map[v1alpha1.ClusterName]string{}
			for range 2 {
				d, _ := s.reconcile(t, "job")
				words[d.Spec.Cluster] = v1alpha1.ReasonRejected
				s.report(t, d, v1alpha1.DispatchMirrored, metav1.ConditionFalse, v1alpha1.OutcomeRejected)
			}
			explained := map[v1alpha1.ClusterName]string{}
			for _, line := range s.expect(t, "job", v1alpha1.ReasonRejected).Status.Explanation {
				explained[line.Cluster] = line.Reason
			}
			check.Diff(t, words, explained, "explanation")
			s.restart(t) // What the circumstances were is on record.
			s.expect(t, "job", v1alpha1.ReasonRejected)
			test.change(t, s)
			d, _ := s.reconcile(t, "job")
			if !strings.Contains(fmt.Sprintf("%q", test.want), fmt.Sprintf("%q", d.Spec.Cluster)) {
				t.Errorf("the job is on %q, want one of %q: %s", d.Spec.Cluster, test.want, test.reason)
			}
		})
	}
}

func annotate(key, value string) func(*testing.T, *scene) {
	return func(t *testing.T, s *scene) {
		t.Helper()
		job := s.TrainJob(t, "job")
		before := job.DeepCopy()
		metav1.SetMetaDataAnnotation(&job.ObjectMeta, key, value)
		check.Must(t, s.Hub.Admin.Patch(t.Context(), job, client.MergeFrom(before)))
	}
}

// A worker lets a job wait. Meanwhile its policy and the worker change, and then the attempt ends. The refusal is of that
// moment, so the job does not go to the same worker first.
func TestRefusalIsOfItsEnd(t *testing.T) {
	for name, waits := range map[string]bool{"RoomElsewhere": false, "NoRoomElsewhere": true} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.Submit(t, "job")
			first, _ := s.reconcile(t, "job")
			if first.Spec.Cluster == "" {
				t.Fatal("the job was not placed")
			}
			s.Policy(t, v1alpha1.DispatchPolicySpec{
				Failover: v1alpha1.FailoverImmediate, AdmissionTimeout: &metav1.Duration{Duration: time.Minute},
			})
			s.worker(t, first.Spec.Cluster, func(worker *v1alpha1.WorkerCluster) {
				worker.Status.Trainer = &v1alpha1.TrainerAPI{Version: "v1alpha1", Fields: []string{"runtimePatches"}}
			})
			other := map[v1alpha1.ClusterName]v1alpha1.ClusterName{east: west, west: east}[first.Spec.Cluster]
			if waits {
				s.worker(t, other, cordon)
			}
			s.report(t, first, v1alpha1.DispatchMirrored, metav1.ConditionFalse, v1alpha1.OutcomeAdmissionTimeout)
			if !waits {
				if d, _ := s.reconcile(t, "job"); d.Spec.Cluster != other {
					t.Errorf("the job is on %q, want %q", d.Spec.Cluster, other)
				}
				return
			}
			s.expect(t, "job", string(v1alpha1.OutcomeAdmissionTimeout))
			s.restart(t) // It is on record.
			s.expect(t, "job", string(v1alpha1.OutcomeAdmissionTimeout))
		})
	}
}

// copies are unknown copies that a test makes up.
type copies struct {
	mu sync.Mutex
	on map[types.NamespacedName]v1alpha1.ClusterName // Under mu.
	// asked is called with each question, before the answer.
	asked func()
}

// Of implements UnknownCopies.
func (c *copies) Of(key types.NamespacedName, _ types.UID) (v1alpha1.ClusterName, bool) {
	if c.asked != nil {
		c.asked()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	worker, ok := c.on[key]
	return worker, ok
}

func (c *copies) set(key types.NamespacedName, worker v1alpha1.ClusterName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.on == nil {
		c.on = map[types.NamespacedName]v1alpha1.ClusterName{}
	}
	if c.on[key] = worker; worker == "" {
		delete(c.on, key)
	}
}

// A job that may be running already waits for somebody to decide, whenever its copy shows itself before the decision is
// written.
func TestUnknownCopyHoldsItsJob(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		// after so many questions the copy shows itself.
		after int
	}{
		"Before":  {reason: "it does not come to the waiting list", after: 0},
		"Between": {reason: "the pass has given it a worker, which is not written", after: 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.worker(t, west, cordon)
			key, unknown, asked := types.NamespacedName{Namespace: s.Namespace, Name: "job"}, &copies{}, 0
			unknown.asked = func() {
				if asked == test.after {
					unknown.set(key, west)
				}
				asked++
			}
			s.unknown = unknown
			s.restart(t)
			s.Submit(t, "job", large)
			d := s.expect(t, "job", v1alpha1.ReasonUnknownCopy)
			message := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchPlaced).Message
			for _, want := range []string{
				"kubectl trainyard adopt west " + key.String(), "kubectl trainyard release west " + key.String(),
			} {
				if !strings.Contains(message, want) {
					t.Errorf("the message is %q, want %q in it", message, want)
				}
			}
			s.Submit(t, "other", large)
			if other, _ := s.reconcile(t, "other"); other.Spec.Cluster != east {
				t.Fatalf("the other job is on %q, want east: what the first was given is free (%s)", other.Spec.Cluster, test.reason)
			}
			s.worker(t, west, func(worker *v1alpha1.WorkerCluster) { worker.Spec.Unschedulable = false })
			s.expect(t, "job", v1alpha1.ReasonUnknownCopy)
			unknown.set(key, "")
			if d, _ = s.reconcile(t, "job"); d.Spec.Cluster != west || d.Spec.Attempt != 1 {
				t.Errorf("the job is on %q in attempt %d, want west: the copy is gone", d.Spec.Cluster, d.Spec.Attempt)
			}
		})
	}
}

// Nothing is placed before workers that were Ready have shown what they have, or half a minute is over.
func TestNothingIsPlacedBeforeCopiesAreShown(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		opens  func(s *scene, shown map[v1alpha1.ClusterName]bool)
	}{
		"Shown": {reason: "all have", opens: func(_ *scene, shown map[v1alpha1.ClusterName]bool) { shown[west] = true }},
		"Late":  {reason: "it is not waited for any longer", opens: func(s *scene, _ map[v1alpha1.ClusterName]bool) { s.Clock.Step(records.StartupTime) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			shown := map[v1alpha1.ClusterName]bool{east: true}
			s.shown = func(worker v1alpha1.ClusterName) bool { return shown[worker] }
			s.restart(t)
			s.Submit(t, "job")
			if d, _ := s.reconcile(t, "job"); d != nil {
				t.Fatalf("the Dispatch is %+v, want none: west has not shown what it has", d.Spec)
			}
			test.opens(s, shown)
			if d, _ := s.reconcile(t, "job"); d == nil || d.Spec.Cluster == "" {
				t.Errorf("the Dispatch is %+v, want the job placed: %s", d, test.reason)
			}
		})
	}
}

// With its watches: jobs are looked at again when a copy is gone, when workers have shown what they have, and when a
// worker that has refused them changes.
func TestFailuresWakeJobs(t *testing.T) {
	s := newScene(t)
	unknown, shown := &copies{}, sync.Map{}
	key := types.NamespacedName{Namespace: s.Namespace, Name: "copied"}
	unknown.set(key, west)
	s.unknown = unknown
	s.shown = func(worker v1alpha1.ClusterName) bool {
		_, is := shown.Load(worker)
		return is
	}
	s.run(t)
	s.Submit(t, "refused", cpus, pinned("region=west"))
	s.Submit(t, "copied", cpus, pinned("region=west"))
	s.eventually(t, "copied", "with an unknown copy", "/UnknownCopy")
	shown.Store(east, true)
	shown.Store(west, true)
	s.reconciler.Wake()
	s.eventually(t, "refused", "when all is shown", "west/")
	s.eventually(t, "copied", "when all is shown", "/UnknownCopy")
	unknown.set(key, "")
	s.reconciler.Wake(key)
	s.eventually(t, "copied", "when the copy is gone", "west/")

	d := &v1alpha1.Dispatch{}
	check.Must(t, s.Hub.Admin.Get(t.Context(), s.Key("refused"), d))
	s.report(t, d, v1alpha1.DispatchMirrored, metav1.ConditionFalse, v1alpha1.OutcomeRejected)
	s.eventually(t, "refused", "after the refusal", "/Rejected")
	s.worker(t, west, func(worker *v1alpha1.WorkerCluster) { worker.Status.KubernetesVersion = "v1.99.0" })
	s.eventually(t, "refused", "when the worker has changed", "west/")
}
