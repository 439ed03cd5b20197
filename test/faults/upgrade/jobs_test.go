// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/faults/world"
	"github.com/trainyard/trainyard/test/yard"
)

// submitted are all jobs of the test.
type submitted struct {
	mu   sync.Mutex
	jobs []world.Job // under mu
}

func (s *submitted) all() []world.Job {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.jobs)
}

// create creates a job on the hub, as soon as the hub takes it: its webhooks are away while its only agent is replaced.
func (s *submitted) create(ctx context.Context, job *trainer.TrainJob) error {
	for {
		err := w.Hub.Create(ctx, job)
		if err == nil {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("create TrainJob %q: %w", job.Name, err)
		case <-time.After(poll):
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs = append(s.jobs, world.Job{Key: client.ObjectKeyFromObject(job), UID: job.UID})
	return nil
}

func (s *submitted) submit(t *testing.T, job yard.Job, changes ...func(*trainer.TrainJob)) *trainer.TrainJob {
	t.Helper()
	object := job.TrainJob()
	for _, change := range changes {
		change(object)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if err := s.create(ctx, object); err != nil {
		t.Fatal(err)
	}
	return object
}

// on pins a job to a worker.
func on(worker string) func(*trainer.TrainJob) {
	return func(job *trainer.TrainJob) {
		metav1.SetMetaDataAnnotation(&job.ObjectMeta, v1alpha1.AnnotationClusters, "worker="+worker)
	}
}

// failover chooses a job's policy.
func failover(f v1alpha1.Failover) func(*trainer.TrainJob) {
	return func(job *trainer.TrainJob) { metav1.SetMetaDataLabel(&job.ObjectMeta, world.LabelFailover, string(f)) }
}

// terminating lets a job's pods go on when they are deleted.
func terminating(job *trainer.TrainJob) {
	pod := job.Spec.RuntimePatches[0].TrainingRuntimeSpec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template
	pod.Metadata.Annotations[clusters.TerminateForAnnotation] = "1h"
}

func suspended(job *trainer.TrainJob) {
	suspend := true
	job.Spec.Suspend = &suspend
}

func dispatchOf(ctx context.Context, g gomega.Gomega, job client.Object) *v1alpha1.Dispatch {
	d := &v1alpha1.Dispatch{}
	g.Expect(w.Hub.Get(ctx, client.ObjectKeyFromObject(job), d)).To(gomega.Succeed())
	return d
}

// runs waits until a job has as many running pods as nodes on a worker, and returns its attempt. A worker on a busy
// machine may have refused earlier attempts, whose copies were never created.
func runs(t *testing.T, job *trainer.TrainJob, worker string) (attempt int32) {
	t.Helper()
	eventually(t, func(g gomega.Gomega) {
		d := dispatchOf(t.Context(), g, job)
		g.Expect(d.Spec.Cluster).To(gomega.BeEquivalentTo(worker))
		attempt = d.Spec.Attempt
		g.Expect(d.Status.Phase).To(gomega.Equal(v1alpha1.PhaseRunning))
		running := gomega.HaveField("Status.Phase", corev1.PodRunning)
		g.Expect(podsOf(t.Context(), g, worker, job)).To(gomega.And(gomega.HaveLen(int(*job.Spec.Trainer.NumNodes)), gomega.HaveEach(running)))
	})
	return attempt
}

func podsOf(ctx context.Context, g gomega.Gomega, worker string, job client.Object) []corev1.Pod {
	var pods corev1.PodList
	g.Expect(w.Workers[worker].List(ctx, &pods, client.InNamespace(job.GetNamespace()),
		client.MatchingLabels{jobsetv1alpha2.JobSetNameKey: job.GetName()})).To(gomega.Succeed())
	return pods.Items
}

// ends waits until jobs have a condition.
func ends(t *testing.T, kind string, jobs ...*trainer.TrainJob) {
	t.Helper()
	for _, job := range jobs {
		eventually(t, func(g gomega.Gomega) {
			g.Expect(w.Hub.Get(t.Context(), client.ObjectKeyFromObject(job), job)).To(gomega.Succeed())
			g.Expect(meta.IsStatusConditionTrue(job.Status.Conditions, kind)).To(gomega.BeTrue(), "%s: %v", job.Name, job.Status.Conditions)
		})
	}
}

// settles waits until a job's Dispatch says that the job has ended, so that nothing is left to write.
func settles(t *testing.T, job *trainer.TrainJob) {
	t.Helper()
	eventually(t, func(g gomega.Gomega) {
		g.Expect(dispatchOf(t.Context(), g, job).Status.Phase).To(gomega.Equal(v1alpha1.PhaseFinished))
	})
}

// waits waits until a job's Dispatch says why the job has no worker.
func waits(t *testing.T, job *trainer.TrainJob) {
	t.Helper()
	eventually(t, func(g gomega.Gomega) {
		d := dispatchOf(t.Context(), g, job)
		g.Expect(d.Spec.Cluster).To(gomega.BeEmpty())
		g.Expect(meta.IsStatusConditionFalse(d.Status.Conditions, v1alpha1.DispatchPlaced)).To(gomega.BeTrue(), "%v", d.Status.Conditions)
	})
}

// objectsOf are the UIDs of what a running job has on a worker: copy, JobSet and pods. None of them survives a restart
// of the job.
func objectsOf(t *testing.T, job *trainer.TrainJob, worker string) map[string]types.UID {
	t.Helper()
	g := gomega.NewWithT(t)
	uids := map[string]types.UID{}
	for kind, object := range map[string]client.Object{"copy": &trainer.TrainJob{}, "JobSet": &jobsetv1alpha2.JobSet{}} {
		g.Expect(w.Workers[worker].Get(t.Context(), client.ObjectKeyFromObject(job), object)).To(gomega.Succeed())
		uids[kind] = object.GetUID()
	}
	for _, pod := range podsOf(t.Context(), g, worker, job) {
		uids["Pod "+pod.Name] = pod.UID
	}
	return uids
}

// versionsOf are the versions of everything that a job that has ended has: nothing writes it any more.
func versionsOf(t *testing.T, job *trainer.TrainJob) map[string]string {
	t.Helper()
	g := gomega.NewWithT(t)
	d := dispatchOf(t.Context(), g, job)
	versions := map[string]string{"Dispatch": string(d.UID) + " " + d.ResourceVersion}
	key := client.ObjectKeyFromObject(job)
	for name, c := range map[string]client.Reader{"TrainJob": w.Hub, "copy": w.Workers[string(d.Spec.Cluster)]} {
		object := &trainer.TrainJob{}
		g.Expect(c.Get(t.Context(), key, object)).To(gomega.Succeed())
		versions[name] = string(object.UID) + " " + object.ResourceVersion
	}
	return versions
}
