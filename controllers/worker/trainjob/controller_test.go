// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/test/check"
)

func jobSetCompleted() jobsetv1alpha2.JobSetStatus {
	return jobSetStatus("Completed", "AllJobsCompleted", "jobset completed successfully")
}

func jobSetStatus(condition, reason, message string) jobsetv1alpha2.JobSetStatus {
	return jobsetv1alpha2.JobSetStatus{
		Conditions: []metav1.Condition{{
			Type: condition, Status: "True", Reason: reason, Message: message,
			LastTransitionTime: metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Local()),
		}},
		ReplicatedJobsStatus: []jobsetv1alpha2.ReplicatedJobStatus{
			{Name: "node", Ready: 1, Succeeded: 2, Failed: 3, Active: 4, Suspended: 5},
		},
	}
}

func TestTorchJobBecomesJobSet(t *testing.T) {
	e := env(t)
	j := e.createJob(t, e.namespace(t), "torch", func(j *trainer.TrainJob) {
		j.Spec.Trainer.Image = new("example.com/llm:1")
		j.Spec.Trainer.Command = []string{"torchrun", "train.py"}
		j.Spec.Trainer.Env = []corev1.EnvVar{{Name: "EPOCHS", Value: "3"}}
		j.Spec.Trainer.ResourcesPerNode = &corev1.ResourceRequirements{
			Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")},
		}
	})
	js := e.awaitJobSet(t, j)

	wantOwners := []metav1.OwnerReference{{
		APIVersion: "trainer.kubeflow.org/v1alpha1", Kind: "TrainJob", Name: "torch", UID: j.UID,
		Controller: new(true), BlockOwnerDeletion: new(true),
	}}
	check.Diff(t, wantOwners, js.OwnerReferences, "owners")
	if js.Spec.Suspend == nil || *js.Spec.Suspend {
		t.Errorf("suspend: got %v, want false", js.Spec.Suspend)
	}
	if len(js.Spec.ReplicatedJobs) != 1 {
		t.Fatalf("got %d replicated jobs, want 1", len(js.Spec.ReplicatedJobs))
	}
	node := js.Spec.ReplicatedJobs[0]
	counts := []int32{node.Replicas, *node.Template.Spec.Parallelism, *node.Template.Spec.Completions}
	if diff := cmp.Diff([]int32{1, 2, 2}, counts); node.Name != "node" || diff != "" {
		t.Errorf("job %q, want \"node\"; replicas, parallelism, completions (-want +got):\n%s", node.Name, diff)
	}
	wantContainer := corev1.Container{
		Name:      "node",
		Image:     "example.com/llm:1",
		Command:   []string{"torchrun", "train.py"},
		Ports:     []corev1.ContainerPort{{ContainerPort: 29500, Protocol: "TCP"}},
		Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}},
		Env: []corev1.EnvVar{
			{Name: "EPOCHS", Value: "3"},
			{Name: "PET_NNODES", Value: "2"},
			{Name: "PET_NPROC_PER_NODE", Value: "auto"},
			{Name: "PET_NODE_RANK", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{
				FieldPath: "metadata.annotations['batch.kubernetes.io/job-completion-index']",
			}}},
			{Name: "PET_MASTER_ADDR", Value: "torch-node-0-0.torch"},
			{Name: "PET_MASTER_PORT", Value: "29500"},
		},
	}
	check.Diff(t, []corev1.Container{wantContainer}, node.Template.Spec.Template.Spec.Containers, "containers")
	snapshot := &corev1.ConfigMap{}
	if err := e.Get(t.Context(), client.ObjectKey{Namespace: j.Namespace, Name: "torch-runtime-snapshot"}, snapshot); err != nil {
		t.Error(err)
	} else if !metav1.IsControlledBy(snapshot, j) {
		t.Errorf("the snapshot of the runtime has the owners %v", snapshot.OwnerReferences)
	}
	e.fence(t, j.Namespace)
	check.Diff(t, trainer.TrainJobStatus{}, e.get(t, j).Status, "status of a job that has just begun")
	if got := e.events(t, j); len(got) > 0 {
		t.Errorf("Events: got %q, want none", got)
	}
}

func TestForeignJobIsLeftAlone(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	j := e.createJob(t, ns, "dispatched", managedBy("kueue.x-k8s.io/multikueue"))
	// A missing runtime would cause an Event, and suspension a condition.
	k := e.createJob(t, ns, "dispatched-and-broken", managedBy("kueue.x-k8s.io/multikueue"), suspend, func(j *trainer.TrainJob) {
		j.Spec.RuntimeRef.Name = "missing"
	})
	update(t, e, j, func(j *trainer.TrainJob) { j.Spec.Suspend = new(true) })
	e.fence(t, ns)
	for _, j := range []*trainer.TrainJob{j, k} {
		if e.jobSetExists(t, j) {
			t.Errorf("%s has a JobSet", j.Name)
		}
		check.Equal(t, j.ResourceVersion, e.get(t, j).ResourceVersion, "%s was written", j.Name)
		if got := e.events(t, j); len(got) > 0 {
			t.Errorf("Events of %s: got %q, want none", j.Name, got)
		}
	}
}

func TestEndIsCopiedAndFinal(t *testing.T) {
	cases := map[string]struct {
		reason string
		jobSet jobsetv1alpha2.JobSetStatus
		want   metav1.Condition
	}{
		"complete": {
			reason: "Reason, message and time are the JobSet's.",
			jobSet: jobSetCompleted(),
			want:   metav1.Condition{Type: "Complete", Reason: "AllJobsCompleted", Message: "jobset completed successfully"},
		},
		"failed": {
			reason: "A failed JobSet that is deleted does not run again.",
			jobSet: jobSetStatus("Failed", "ReachedMaxRestarts", "jobset failed due to reaching max number of restarts"),
			want: metav1.Condition{
				Type: "Failed", Reason: "ReachedMaxRestarts", Message: "jobset failed due to reaching max number of restarts",
			},
		},
	}
	e := env(t)
	ns := e.namespace(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			j := e.createJob(t, ns, name)
			js := e.awaitJobSet(t, j)
			e.setJobSetStatus(t, j, tc.jobSet)
			eventually(t, "end", func(g gomega.Gomega) { g.Expect(e.get(t, j).Status.Conditions).NotTo(gomega.BeEmpty()) })

			tc.want.Status, tc.want.LastTransitionTime = "True", tc.jobSet.Conditions[0].LastTransitionTime
			want := trainer.TrainJobStatus{
				Conditions: []metav1.Condition{tc.want},
				JobsStatus: []trainer.JobStatus{{
					Name: "node", Ready: new(int32(1)), Succeeded: new(int32(2)), Failed: new(int32(3)),
					Active: new(int32(4)), Suspended: new(int32(5)),
				}},
			}
			ended := e.get(t, j)
			check.Diff(t, want, ended.Status, fmt.Sprintf("%s\nstatus", tc.reason))

			check.Must(t, e.Delete(t.Context(), js))
			update(t, e, j, func(j *trainer.TrainJob) { j.Spec.Suspend = new(true) })
			e.fence(t, ns)
			if e.jobSetExists(t, j) {
				t.Errorf("%s\nthe JobSet was built again", tc.reason)
			}
			check.Diff(t, ended.Status, e.get(t, j).Status, fmt.Sprintf("%s\nstatus after the end", tc.reason))
		})
	}
}

func TestJobsStatusFollowsJobSet(t *testing.T) {
	e := env(t)
	j := e.createJob(t, e.namespace(t), "progress")
	e.awaitJobSet(t, j)
	for _, ready := range []int32{0, 2, 1} {
		e.setJobSetStatus(t, j, jobsetv1alpha2.JobSetStatus{
			ReplicatedJobsStatus: []jobsetv1alpha2.ReplicatedJobStatus{{Name: "node", Ready: ready}},
		})
		eventually(t, "jobsStatus", func(g gomega.Gomega) {
			g.Expect(e.get(t, j).Status).To(gomega.Equal(trainer.TrainJobStatus{JobsStatus: jobsStatus(ready)}))
		})
	}
}

func TestDeletingBuildsNothing(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	j := e.createJob(t, ns, "deleted", suspend)
	js := e.awaitJobSet(t, j)
	e.awaitConditions(t, j, suspended)
	// Foreground deletion keeps the TrainJob until its JobSet is gone. The test must delete the JobSet itself.
	check.Must(t, e.Delete(t.Context(), j, client.PropagationPolicy(metav1.DeletePropagationForeground)))
	update(t, e, j, func(j *trainer.TrainJob) { j.Spec.Suspend = new(false) })
	check.Must(t, e.Delete(t.Context(), js))
	e.fence(t, ns)
	if e.jobSetExists(t, j) {
		t.Error("a JobSet was built for a TrainJob that is being deleted")
	}
	check.Equal(t, j.ResourceVersion, e.get(t, j).ResourceVersion,
		"a TrainJob that is being deleted was written")
}

func TestSuspendAndResume(t *testing.T) {
	e := env(t)
	j := e.createJob(t, e.namespace(t), "queued", suspend)
	for _, step := range []struct {
		suspend   bool
		condition metav1.Condition
	}{{true, suspended}, {false, resumed}, {true, suspended}, {false, resumed}} {
		update(t, e, j, func(j *trainer.TrainJob) { j.Spec.Suspend = &step.suspend })
		e.awaitConditions(t, j, step.condition)
		eventually(t, "JobSet to follow", func(g gomega.Gomega) {
			g.Expect(e.awaitJobSet(t, j).Spec.Suspend).To(gomega.HaveValue(gomega.Equal(step.suspend)))
		})
	}
	e.setJobSetStatus(t, j, jobSetCompleted())
	e.awaitConditions(t, j, resumed, complete)
}
