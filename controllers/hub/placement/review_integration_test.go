// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// showNodes writes into the status of a WorkerCluster that it has nodes with eight GPUs each, as its controller does.
func (s *scene) showNodes(t *testing.T, name v1alpha1.ClusterName, nodes int32) {
	t.Helper()
	worker := s.WorkerCluster(t, name)
	worker.Status.NodeGroups = []v1alpha1.NodeGroup{{Resource: gpu, Nodes: nodes, Allocatable: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("96"), corev1.ResourcePods: resource.MustParse("110"), gpu: resource.MustParse("8"),
	}}}
	if nodes == 0 {
		worker.Status.NodeGroups = nil
	}
	check.Must(t, s.Hub.Admin.Status().Update(t.Context(), worker))
}

// TestReview: what the hub says of a job before it is there. The workers are not asked, so a standby says the same.
func TestReview(t *testing.T) {
	s := newScene(t)
	for _, name := range []v1alpha1.ClusterName{east, west} {
		s.showNodes(t, name, 2)
		defer s.showNodes(t, name, 0)
	}
	annotated := func(key, value string) func(*trainer.TrainJob) {
		return func(j *trainer.TrainJob) { metav1.SetMetaDataAnnotation(&j.ObjectMeta, key, value) }
	}
	sized := func(nodes int32, gpus string) func(*trainer.TrainJob) {
		return func(j *trainer.TrainJob) {
			j.Spec.Trainer.NumNodes = new(nodes)
			j.Spec.Trainer.ResourcesPerNode = &corev1.ResourceRequirements{Limits: corev1.ResourceList{gpu: resource.MustParse(gpus)}}
		}
	}
	for name, tc := range map[string]struct {
		reason string
		change func(*trainer.TrainJob)
		// fault and warning are a part of the answer, empty for none.
		fault, warning string
	}{
		"Fits": {reason: "It fits on a worker.", change: sized(2, "8")},
		"TooManyPods": {
			reason: "Two nodes hold two such pods, whatever runs there.", change: sized(3, "8"),
			warning: `no worker could hold the job even if no other job ran there; nearest is worker "east": lacks 8 nvidia.com/gpu`,
		},
		"TooLargePods": {reason: "No node has so many.", change: sized(1, "16"), warning: "no worker could hold the job"},
		"BadPin": {
			reason: "It can never select a worker.", change: annotated(v1alpha1.AnnotationClusters, "region in east"),
			fault: `metadata.annotations[trainyard.dev/clusters]: Invalid value: "region in east": must be a label selector`,
		},
		"LongPin":  {reason: "It is checked against each worker.", change: annotated(v1alpha1.AnnotationClusters, strings.Repeat("a", 5000)), fault: "5000 bytes"},
		"GoodPin":  {reason: "It selects a worker.", change: annotated(v1alpha1.AnnotationClusters, "region=east")},
		"EmptyPin": {reason: "It selects all workers.", change: annotated(v1alpha1.AnnotationClusters, "")},
		"NoSuchWorker": {
			reason: "Such a worker may be registered.", change: annotated(v1alpha1.AnnotationClusters, "region=north"),
			warning: `metadata.annotations[trainyard.dev/clusters]: "region=north" matches none of the workers that the job's policy allows: east, west`,
		},
		"PriorityClass": {
			reason: "Such a class may be created.", change: annotated(v1alpha1.AnnotationPriorityClass, "urgent"),
			warning: `the hub has no PriorityClass "urgent"`,
		},
		"NoPriorityClass": {
			reason: "No class can have that name.", change: annotated(v1alpha1.AnnotationPriorityClass, "Very urgent"),
			fault: `metadata.annotations[trainyard.dev/priority-class]: Invalid value: "Very urgent"`,
		},
		"NoTopology": {
			reason: "Nobody knows how much it matters.", change: annotated(v1alpha1.AnnotationTopology, "rack"),
			fault: `metadata.annotations[trainyard.dev/topology]: Invalid value: "rack": must be required=LABEL or preferred=LABEL`,
		},
		"BadCheckpoint": {
			reason: "Nobody could find it.", change: annotated(v1alpha1.AnnotationCheckpoint, "/mnt"),
			fault: `metadata.annotations[trainyard.dev/checkpoint]: Invalid value: "/mnt": must be a URI such as s3://`,
		},
		"CheckpointWithoutPolicy": {
			reason: "Nobody tells the process.", change: annotated(v1alpha1.AnnotationCheckpoint, "s3://ckpt"),
			warning: "metadata.annotations[trainyard.dev/checkpoint]: has no effect, because no DispatchPolicy applies to the job",
		},
		"BadData": {
			reason: "Nobody knows how much it matters.", change: annotated(v1alpha1.AnnotationData, "s3://corpora"),
			fault: `metadata.annotations[trainyard.dev/data]: Invalid value: "s3://corpora": must be required=URI or preferred=URI`,
		},
		"DataNowhere": {
			reason: "An admin may list it.", change: annotated(v1alpha1.AnnotationData, "required=s3://corpora"),
			warning: "the job waits: no worker lists in spec.data all that the job requires by its annotation trainyard.dev/data: s3://corpora",
		},
		"UnscoredData": {
			reason: "No score brings the job there.", change: annotated(v1alpha1.AnnotationData, "preferred=s3://corpora"),
			warning: "metadata.annotations[trainyard.dev/data]: what it prefers has no effect, because no DispatchPolicy with the score DataLocality applies",
		},
		"Misspelt": {
			reason: "It has no effect.", change: annotated("trainyard.dev/cluster", "region=east"),
			warning: `metadata.annotations[trainyard.dev/cluster]: has no effect, because users may write only the annotations ` +
				`trainyard.dev/checkpoint, trainyard.dev/clusters, trainyard.dev/data, trainyard.dev/dispatch, trainyard.dev/priority-class, ` +
				`trainyard.dev/retry, trainyard.dev/topology, ` +
				`trainyard.dev/ttl-seconds-after-finished ` +
				`under trainyard.dev/; did you mean "trainyard.dev/clusters"?`,
		},
		"Flood": {
			reason: "The answer stays short.", change: func(j *trainer.TrainJob) {
				for i := range 1000 {
					annotated(fmt.Sprintf("trainyard.dev/%d", i), "")(j)
				}
			},
			warning: "990 more names under trainyard.dev/ have no effect",
		},
		"Huge":      {reason: "No hub counts so many pods.", change: sized(1<<30, "1"), fault: "the job is too large"},
		"NoRuntime": {reason: "The form of the job tells.", change: func(j *trainer.TrainJob) { j.Spec.RuntimeRef.Name = "none" }},
	} {
		t.Run(name, func(t *testing.T) {
			job := &trainer.TrainJob{
				ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "job"},
				Spec: trainer.TrainJobSpec{
					ManagedBy: new(v1alpha1.ManagedByMultiKueue), RuntimeRef: trainer.RuntimeRef{Name: "torch-distributed"}, Trainer: &trainer.Trainer{},
				},
			}
			tc.change(job)
			faults, warnings, err := NewReviewer(s.reconciler, nil).Review(t.Context(), job)
			check.Must(t, err)
			for _, answer := range []struct{ what, got, want string }{
				{"faults", textOf(faults), tc.fault}, {"warnings", strings.Join(warnings, "\n"), tc.warning},
			} {
				if (answer.want == "") != (answer.got == "") || !strings.Contains(answer.got, answer.want) {
					t.Errorf("%s The %s are %q, want %q", tc.reason, answer.what, answer.got, answer.want)
				}
			}
		})
	}
}

// TestReviewOfUnknownWorkers: a worker of which no node has been seen may hold anything.
func TestReviewOfUnknownWorkers(t *testing.T) {
	s := newScene(t)
	s.showNodes(t, east, 1)
	defer s.showNodes(t, east, 0)
	s.Submit(t, "large", func(j *trainer.TrainJob) { j.Spec.Trainer.NumNodes = new(int32(100)) })
	_, warnings, err := NewReviewer(s.reconciler, nil).Review(t.Context(), s.TrainJob(t, "large"))
	check.Must(t, err)
	if len(warnings) > 0 {
		t.Errorf("warnings: %q", warnings)
	}
}

// TestReviewOfNodesToAdd: a worker may hold a job on nodes that it does not have yet.
func TestReviewOfNodesToAdd(t *testing.T) {
	s := newScene(t)
	for _, name := range []v1alpha1.ClusterName{east, west} {
		s.showNodes(t, name, 2)
		defer s.showNodes(t, name, 0)
	}
	s.worker(t, east, withPool(2))
	for pods, want := range map[int32]string{2: "", 3: `nearest is worker "east": lacks 4 example.com/tpu`} {
		name := fmt.Sprintf("tpus-%d", pods)
		s.Submit(t, name, tpus(pods))
		_, warnings, err := NewReviewer(s.reconciler, nil).Review(t.Context(), s.TrainJob(t, name))
		check.Must(t, err)
		if got := strings.Join(warnings, "\n"); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("the warnings about %d pods are %q, want %q", pods, got, want)
		}
	}
}

// TestPlacedOn: only a job with a live attempt has, or will have, a copy.
func TestPlacedOn(t *testing.T) {
	s := newScene(t)
	s.Submit(t, "job")
	at := func() v1alpha1.ClusterName {
		t.Helper()
		job := s.TrainJob(t, "job")
		worker, err := NewReviewer(s.reconciler, nil).PlacedOn(t.Context(), client.ObjectKeyFromObject(job), job.UID)
		check.Must(t, err)
		return worker
	}
	if worker := at(); worker != "" {
		t.Errorf("before it is placed: %q", worker)
	}
	s.reconcile(t, "job")
	if worker := at(); worker != east && worker != west {
		t.Errorf("placed: %q", worker)
	}
	worker, err := NewReviewer(s.reconciler, nil).PlacedOn(t.Context(), types.NamespacedName{Namespace: s.Namespace, Name: "job"}, "another")
	if check.Must(t, err); worker != "" {
		t.Errorf("an earlier job of the name: %q", worker)
	}
}

func textOf(faults field.ErrorList) string {
	if len(faults) == 0 {
		return ""
	}
	return faults.ToAggregate().Error()
}

// displaced has a job on east, which is being drained, and room for one more on west.
func (s *scene) displaced(t *testing.T) *v1alpha1.Dispatch {
	t.Helper()
	s.Submit(t, "moved", pinned("region=east"))
	s.Submit(t, "filler", pinned("region=west"))
	s.reconcile(t, "filler")
	d, _ := s.reconcile(t, "moved")
	if d.Spec.Cluster != east {
		t.Fatalf("the job is on %q: %v", d.Spec.Cluster, reasonsOf(d))
	}
	before := d.DeepCopy()
	job := s.TrainJob(t, "moved")
	old := job.DeepCopy()
	job.Annotations = nil // It may go anywhere now.
	check.Must(t, s.Hub.Admin.Patch(t.Context(), job, client.MergeFrom(old)))
	s.worker(t, east, drain)
	return before
}

// elsewhere asks while the decider does its passes.
func (s *scene) elsewhere(t *testing.T, d *v1alpha1.Dispatch) v1alpha1.ClusterExplanation {
	t.Helper()
	return s.elsewhereBeside(t, d, nil)
}

func (s *scene) elsewhereBeside(t *testing.T, d *v1alpha1.Dispatch, full map[string]v1alpha1.ClusterExplanation) v1alpha1.ClusterExplanation {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.reconciler.decider.Run(ctx) }()
	answer, err := s.reconciler.Elsewhere(t.Context(), d, full)
	stop()
	check.Must(t, err)
	check.Must(t, <-ended)
	return answer
}

// The room for a job that moves is kept until the job comes. It is on another worker than the job's present worker.
func TestRoomElsewhereIsPromised(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		// then is what happens to the promise. other and want are where the other job and the moved job are in the end.
		then        func(t *testing.T, s *scene, d *v1alpha1.Dispatch)
		other, want v1alpha1.ClusterName
	}{
		"Comes": {
			reason: "it was evicted, and comes", want: west,
			then: func(t *testing.T, s *scene, d *v1alpha1.Dispatch) {
				t.Helper()
				s.endsAttempt(t, d, v1alpha1.OutcomeDrained)
			},
		},
		"Released": {
			reason: "it was not evicted after all", other: west, want: east,
			then: func(_ *testing.T, s *scene, d *v1alpha1.Dispatch) { s.reconciler.Release(d.Spec.TrainJob.UID) },
		},
		"Finished": {
			reason: "it has ended before it could be stopped", other: west, want: east,
			then: func(t *testing.T, s *scene, d *v1alpha1.Dispatch) {
				t.Helper()
				s.finish(t, d)
			},
		},
		"Deleted": {
			reason: "it is gone", other: west, want: "gone",
			then: func(t *testing.T, s *scene, d *v1alpha1.Dispatch) {
				t.Helper()
				check.Must(t, s.Hub.Admin.Delete(t.Context(), s.TrainJob(t, "moved")))
				s.lose(d)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			d := s.displaced(t)
			for range 2 {
				if got := s.elsewhere(t, d); got.Cluster != west || got.Reason != v1alpha1.ReasonFits {
					t.Fatalf("Elsewhere() = %+v, want west to fit", got)
				}
			}
			if again, _ := s.reconcile(t, "moved"); again.ResourceVersion != d.ResourceVersion {
				t.Errorf("a question has changed the Dispatch")
			}
			s.Submit(t, "other", s.priorityClass(t, -1)) // Waiting jobs come first.
			s.expect(t, "other", v1alpha1.ReasonNoFit)
			test.then(t, s, d)
			other, _ := s.reconcile(t, "other")
			where := v1alpha1.ClusterName("gone")
			if moved, _ := s.reconcile(t, "moved"); test.want != "gone" && moved != nil {
				where = moved.Spec.Cluster
			}
			if other.Spec.Cluster != test.other || where != test.want {
				t.Errorf("the other job is on %q and the moved one on %q, want %q and %q: %s", other.Spec.Cluster, where, test.other, test.want, test.reason)
			}
		})
	}
}

// A job that fits nowhere else is told which worker is the nearest and what it lacks there, and waiting jobs come
// first.
func TestNoRoomElsewhere(t *testing.T) {
	s := newScene(t)
	d := s.displaced(t)
	s.Submit(t, "first", s.priorityClass(t, 5), pinned("region=west"))
	if first, _ := s.reconcile(t, "first"); first.Spec.Cluster != west {
		t.Fatalf("the first job is on %q, want west", first.Spec.Cluster)
	}
	got := s.elsewhere(t, d)
	if got.Cluster != west || got.Reason != v1alpha1.ReasonInsufficientResources || !strings.Contains(got.Message, "lacks 8 nvidia.com/gpu") {
		t.Errorf("Elsewhere() = %+v, want what west lacks", got)
	}
	s.worker(t, west, cordon)
	if got := s.elsewhere(t, d); got.Reason != v1alpha1.ReasonCordoned {
		t.Errorf("Elsewhere() = %+v, want west cordoned", got)
	}
	job := s.TrainJob(t, "moved")
	before := job.DeepCopy()
	pinned("region in (")(job)
	check.Must(t, s.Hub.Admin.Patch(t.Context(), job, client.MergeFrom(before)))
	if got := s.elsewhere(t, d); got.Cluster != "" || got.Reason != v1alpha1.ReasonInvalidPin {
		t.Errorf("Elsewhere() = %+v, want no worker and %s", got, v1alpha1.ReasonInvalidPin)
	}
}

// Of jobs that fit nowhere else and are alike, one is tried. A job that differs in anything that counts is tried for itself.
func TestAlikeJobsAreTriedOnce(t *testing.T) {
	s := newScene(t)
	d := s.displaced(t)
	s.Submit(t, "first", s.priorityClass(t, 5), pinned("region=west"))
	if first, _ := s.reconcile(t, "first"); first.Spec.Cluster != west {
		t.Fatalf("the first job is on %q, want west", first.Spec.Cluster)
	}
	full := map[string]v1alpha1.ClusterExplanation{}
	answer := s.elsewhereBeside(t, d, full)
	if answer.Reason != v1alpha1.ReasonInsufficientResources || len(full) != 1 {
		t.Fatalf("Elsewhere() = %+v, and %d answers are known, want one about a lack", answer, len(full))
	}
	for class := range full {
		full[class] = v1alpha1.ClusterExplanation{Reason: v1alpha1.ReasonInsufficientResources, Message: "the answer about the other"}
	}
	check.Equal(t, "the answer about the other", s.elsewhereBeside(t, d, full).Message, "about a job that is alike")
	job := s.TrainJob(t, "moved")
	before := job.DeepCopy()
	reads("required=s3://corpora/en")(job)
	check.Must(t, s.Hub.Admin.Patch(t.Context(), job, client.MergeFrom(before)))
	check.Equal(t, v1alpha1.ReasonDataElsewhere, s.elsewhereBeside(t, d, full).Reason, "about a job that requires data")
	check.Equal(t, 2, len(full), "answers")
	check.Must(t, s.Hub.Admin.Patch(t.Context(), before.DeepCopy(), client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"annotations":null,"labels":{"kueue.x-k8s.io/queue-name":"of-a-team"}}}`))))
	s.elsewhereBeside(t, d, full)
	check.Equal(t, 3, len(full), "answers, with one about a job in a queue")
}

// Elsewhere says nothing that is not known yet. Subscribers are called when it is known, and when a worker changes.
func TestElsewhereIsNotKnownAtFirst(t *testing.T) {
	s := newScene(t)
	d := s.displaced(t)
	shown := false
	s.shown = func(v1alpha1.ClusterName) bool { return shown }
	s.restart(t)
	told := 0
	cancel := s.reconciler.Subscribe(func() { told++ })
	if got := s.elsewhere(t, d); got != (v1alpha1.ClusterExplanation{}) {
		t.Errorf("Elsewhere() = %+v before workers have shown what they have, want nothing", got)
	}
	expect := func(what string, more bool) {
		t.Helper()
		before := told
		check.Must(t, s.reconciler.decider.Pass(t.Context()))
		if (told > before) != more {
			t.Errorf("subscribers were told: %t, want %t: %s", told > before, more, what)
		}
	}
	expect("nothing is known", false)
	shown = true
	expect("now it is", true)
	if got := s.elsewhere(t, d); got.Cluster != west {
		t.Errorf("Elsewhere() = %+v, want west", got)
	}
	expect("room has been promised", true)
	expect("nothing has changed", false)
	s.worker(t, west, cordon)
	expect("a worker has changed", true)
	cancel()
	s.worker(t, west, func(worker *v1alpha1.WorkerCluster) { worker.Spec.Unschedulable = false })
	expect("it was cancelled", false)
}
