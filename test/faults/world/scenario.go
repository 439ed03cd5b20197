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
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/trainjobs"
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

// Job is a TrainJob of the hub.
type Job struct {
	Key types.NamespacedName
	UID types.UID
}

// Ended says whether a job has ended, or why not. It returns an error for a job that has not ended and does not say
// why.
func (w *World) Ended(ctx context.Context, job Job) (ended bool, why string, err error) {
	object := trainjobs.New()
	if err := w.Hub.Get(ctx, job.Key, object); err != nil {
		return false, "", fmt.Errorf("get TrainJob %s: %w", job.Key, err)
	}
	if trainjobs.Terminal(object) != nil {
		return true, "", nil
	}
	d := &v1alpha1.Dispatch{}
	if err := w.Hub.Get(ctx, job.Key, d); err != nil {
		return false, "", fmt.Errorf("the TrainJob %s has not ended: get its Dispatch: %w", job.Key, err)
	}
	if w.Recorder.CanRun(job.UID) {
		return false, "it runs", nil
	}
	why = reasonOf(d)
	if why == "" {
		return false, "", fmt.Errorf("the TrainJob %s has not ended, and its Dispatch does not say why: %+v", job.Key, d.Status.Conditions)
	}
	return false, why, nil
}

// reasonOf is why a job has not ended: it waits, its worker is lost, or it runs.
func reasonOf(d *v1alpha1.Dispatch) string {
	for _, want := range []struct {
		kind   string
		status metav1.ConditionStatus
	}{
		{v1alpha1.DispatchWorkerLost, metav1.ConditionTrue},
		{v1alpha1.DispatchEvicting, metav1.ConditionTrue},
		{v1alpha1.DispatchPlaced, metav1.ConditionFalse},
		{v1alpha1.DispatchMirrored, metav1.ConditionTrue},
	} {
		c := meta.FindStatusCondition(d.Status.Conditions, want.kind)
		if c != nil && c.Status == want.status && c.ObservedGeneration == d.Generation && c.Message != "" {
			return fmt.Sprintf("%s=%s/%s: %s", c.Type, c.Status, c.Reason, c.Message)
		}
	}
	return ""
}

// Faults returns what has gone wrong with a job so far: copies that could run at the same time, wrong transitions,
// writes after the end, and a status that is not the copy's status.
func (w *World) Faults(job Job) []string {
	var faults []string
	for _, overlap := range w.Recorder.Overlaps(job.UID) {
		faults = append(faults, overlap.String())
	}
	return append(faults, w.otherFaults(job)...)
}

// otherFaults are the Faults but overlaps.
func (w *World) otherFaults(job Job) []string {
	faults := w.Recorder.Wrong(job.UID)
	if diff := w.statusDiffers(job); diff != "" {
		faults = append(faults, "the hub's status is not the copy's last word (-copy +hub):\n"+diff)
	}
	return faults
}

// statusDiffers is what is still wrong with the status after the recorder has had time to see all writes. The recorder
// may see the last status of the copy later than the hub does, for instance when the worker's API server is away.
func (w *World) statusDiffers(job Job) string {
	ticker, late := time.NewTicker(100*time.Millisecond), time.After(recorderLag)
	defer ticker.Stop()
	for {
		diff := w.Recorder.StatusDiffers(job.UID)
		if diff == "" {
			return ""
		}
		select {
		case <-late:
			return diff
		case <-ticker.C:
		}
	}
}

// recorderLag is longer than any API server is away.
const recorderLag = 30 * time.Second

// Left returns the objects that deleted jobs have left.
func (w *World) Left(ctx context.Context, jobs ...Job) ([]string, error) {
	wanted := map[types.NamespacedName]bool{}
	origins := map[types.UID]bool{}
	for _, job := range jobs {
		wanted[job.Key], origins[job.UID] = true, true
	}
	var left []string
	find := func(cluster string, c client.Reader, list client.ObjectList, named func(client.Object) bool) error {
		if err := c.List(ctx, list); err != nil {
			return fmt.Errorf("list %T on %s: %w", list, cluster, err)
		}
		items, err := meta.ExtractList(list)
		for _, item := range items {
			if object, ok := item.(client.Object); ok && named(object) {
				left = append(left, fmt.Sprintf("%s: %T %s", cluster, object, client.ObjectKeyFromObject(object)))
			}
		}
		return err
	}
	byName := func(o client.Object) bool { return wanted[client.ObjectKeyFromObject(o)] }
	bySet := func(o client.Object) bool {
		return wanted[types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetLabels()[jobsetv1alpha2.JobSetNameKey]}]
	}
	byOrigin := func(o client.Object) bool {
		return origins[types.UID(o.GetLabels()[v1alpha1.LabelOriginUID])] || origins[types.UID(o.GetName())]
	}
	if err := find("hub", w.Hub, &v1alpha1.DispatchList{}, byName); err != nil {
		return nil, err
	}
	if err := find("hub", w.Hub, &v1alpha1.TombstoneList{}, byOrigin); err != nil {
		return nil, err
	}
	for name, worker := range w.Workers {
		for _, kind := range []struct {
			list  client.ObjectList
			named func(client.Object) bool
		}{
			{trainjobs.NewList(), byOrigin}, {&jobsetv1alpha2.JobSetList{}, byName}, {&batchv1.JobList{}, bySet}, {&corev1.PodList{}, bySet},
		} {
			if err := find(name, worker, kind.list, kind.named); err != nil {
				return nil, err
			}
		}
	}
	return left, nil
}
