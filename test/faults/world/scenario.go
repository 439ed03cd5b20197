// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/yard"
)

// Scenario is one test with its jobs. When it ends it calls Delete, Gone and Report.
type Scenario struct {
	*testing.T
	World *World
	// Overlaps are allowed, as for jobs whose failover is Immediate.
	Overlaps bool

	mu   sync.Mutex
	jobs []Job // under mu
}

// Change is something about a job that yard.Job does not say.
type Change func(*trainer.TrainJob)

// On pins a job to workers.
func On(workers ...string) Change {
	return func(job *trainer.TrainJob) {
		metav1.SetMetaDataAnnotation(&job.ObjectMeta, v1alpha1.AnnotationClusters, labelWorker+" in ("+strings.Join(workers, ",")+")")
	}
}

// Failover chooses a job's policy.
func Failover(f v1alpha1.Failover) Change {
	return func(job *trainer.TrainJob) { metav1.SetMetaDataLabel(&job.ObjectMeta, LabelFailover, string(f)) }
}

// Terminating lets a job's pods go on for a while when they are deleted. The job must have a RunFor.
func Terminating(d string) Change {
	return func(job *trainer.TrainJob) {
		pod := job.Spec.RuntimePatches[0].TrainingRuntimeSpec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template
		pod.Metadata.Annotations[clusters.TerminateForAnnotation] = d
	}
}

// Jobs are the jobs that were created so far.
func (s *Scenario) Jobs() []Job {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.jobs)
}

// Create creates a job on the hub, as soon as the hub takes it: its webhooks are away while its only agent is.
func (s *Scenario) Create(ctx context.Context, job *trainer.TrainJob) error {
	for {
		err := s.World.Hub.Create(ctx, job)
		if apierrors.IsAlreadyExists(err) { // The answer to an earlier request was lost.
			err = s.World.Hub.Get(ctx, client.ObjectKeyFromObject(job), job)
		}
		if err == nil {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("create TrainJob %q: %w", job.Name, err)
		case <-time.After(s.World.Poll):
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs = append(s.jobs, Job{Key: client.ObjectKeyFromObject(job), UID: job.UID})
	return nil
}

// Submit creates a job as Create does. A job without a name gets one that begins with the test's.
func (s *Scenario) Submit(job yard.Job, changes ...Change) *trainer.TrainJob {
	s.Helper()
	if job.Name == "" {
		name := strings.ToLower(strings.TrimPrefix(s.Name(), "TestFault"))
		job.Name = fmt.Sprintf("%s-%d", strings.NewReplacer("/", "-", "_", "-").Replace(name), len(s.Jobs()))
	}
	object := job.TrainJob()
	for _, change := range changes {
		change(object)
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.World.Timeout)
	defer cancel()
	s.Must(s.Create(ctx, object))
	return object
}

// Must ends the test if there is an error.
func (s *Scenario) Must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// Eventually fails the test unless check succeeds in time.
func (s *Scenario) Eventually(check func(gomega.Gomega)) {
	s.Helper()
	s.World.Eventually(s, check)
}

// Runs waits until a job has a running pod on a worker, in an attempt that the hub knows of.
func (s *Scenario) Runs(job *trainer.TrainJob, worker string, attempt int32) {
	s.Helper()
	s.Eventually(func(g gomega.Gomega) {
		d := s.World.DispatchOf(g, job)
		g.Expect(d.Spec.Cluster).To(gomega.BeEquivalentTo(worker))
		g.Expect(d.Spec.Attempt).To(gomega.Equal(attempt))
		g.Expect(s.World.PodsOf(g, worker, job)).To(gomega.ContainElement(gomega.HaveField("Status.Phase", corev1.PodRunning)))
	})
}

// Attempt fails the test if a job is in another attempt now.
func (s *Scenario) Attempt(job *trainer.TrainJob, want int32) {
	s.Helper()
	if d := s.World.DispatchOf(gomega.NewWithT(s), job); d.Spec.Attempt != want {
		s.Errorf("%s is in attempt %d, want %d:\n%s", job.Name, d.Spec.Attempt, want, s.World.Recorder.Describe(job.UID))
	}
}

// Ends waits until jobs have a condition.
func (s *Scenario) Ends(kind string, jobs ...*trainer.TrainJob) {
	s.Helper()
	for _, job := range jobs {
		s.Eventually(func(g gomega.Gomega) {
			g.Expect(s.World.Hub.Get(s.Context(), client.ObjectKeyFromObject(job), job)).To(gomega.Succeed())
			g.Expect(meta.IsStatusConditionTrue(job.Status.Conditions, kind)).To(gomega.BeTrue(), "%s: %v", job.Name, job.Status.Conditions)
		})
	}
}

// Delete deletes the jobs.
func (s *Scenario) Delete() {
	s.Helper()
	for _, job := range s.Jobs() {
		object := &trainer.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: job.Key.Namespace, Name: job.Key.Name}}
		if err := client.IgnoreNotFound(s.World.Hub.Delete(context.Background(), object)); err != nil {
			s.Error(err)
		}
	}
}

// Gone waits until nothing is left of the deleted jobs.
func (s *Scenario) Gone() {
	s.Helper()
	s.Eventually(func(g gomega.Gomega) {
		left, err := s.World.Left(context.Background(), s.Jobs()...)
		g.Expect(err).NotTo(gomega.HaveOccurred())
		g.Expect(left).To(gomega.BeEmpty(), "what is left of deleted jobs")
	})
}

// described is how many jobs of a failed test are described although nothing was found wrong with them.
const described = 3

// Report fails the test if something has gone wrong with a job.
func (s *Scenario) Report() {
	s.Helper()
	failed := s.Failed()
	for i, job := range s.Jobs() {
		faults := s.World.Faults(job)
		if s.Overlaps {
			faults = s.World.otherFaults(job)
			s.Logf("TrainJob %s could run twice, as is allowed: %v", job.Key, s.World.Recorder.Overlaps(job.UID))
		}
		for _, fault := range faults {
			s.Errorf("TrainJob %s: %s", job.Key, fault)
		}
		if len(faults) > 0 || failed && i < described {
			s.Logf("TrainJob %s (%s):\n%s", job.Key, job.UID, s.World.Recorder.Describe(job.UID))
		}
	}
}
