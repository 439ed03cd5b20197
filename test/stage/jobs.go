// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// GPU is the resource of the nodes of AddNodes.
const GPU = corev1.ResourceName("nvidia.com/gpu")

// NewTrainJob returns a TrainJob of two nodes with the runtime torch-distributed, changed by the given functions.
func NewTrainJob(namespace, name string, changes ...func(*trainer.TrainJob)) *trainer.TrainJob {
	job := &trainer.TrainJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: trainer.TrainJobSpec{
			RuntimeRef: trainer.RuntimeRef{Name: "torch-distributed"},
			Trainer:    &trainer.Trainer{NumNodes: new(int32(2))},
		},
	}
	for _, change := range changes {
		change(job)
	}
	return job
}

// Managed makes a new TrainJob one that the manager dispatches.
func Managed(job *trainer.TrainJob) { job.Spec.ManagedBy = new(v1alpha1.ManagedByMultiKueue) }

// fourGPUs lets each node of a new TrainJob have four GPUs.
func fourGPUs(job *trainer.TrainJob) {
	requests := corev1.ResourceList{GPU: resource.MustParse("4")}
	job.Spec.Trainer.ResourcesPerNode = &corev1.ResourceRequirements{Requests: requests, Limits: requests}
}

// Submit creates a managed TrainJob of two pods with four GPUs each, which is half of a worker that has the nodes of
// AddNodes.
func (s *Scene) Submit(t testing.TB, name string, changes ...func(*trainer.TrainJob)) *trainer.TrainJob {
	t.Helper()
	job := NewTrainJob(s.Namespace, name, Managed, fourGPUs)
	for _, change := range changes {
		change(job)
	}
	check.Must(t, s.Hub.Admin.Create(t.Context(), job))
	return job
}

// TrainJob reads a TrainJob from the hub. It returns nil if there is none.
func (s *Scene) TrainJob(t testing.TB, name string) *trainer.TrainJob {
	t.Helper()
	job := &trainer.TrainJob{}
	if !exists(t, s.Hub.Admin, s.Key(name), job) {
		return nil
	}
	return job
}

// Place creates the Dispatch of a TrainJob, as placement does: it grants attempt 1 on a worker.
func (s *Scene) Place(
	t testing.TB, job client.Object, worker v1alpha1.ClusterName, changes ...func(*v1alpha1.Dispatch),
) *v1alpha1.Dispatch {
	t.Helper()
	d := &v1alpha1.Dispatch{
		ObjectMeta: metav1.ObjectMeta{Namespace: job.GetNamespace(), Name: job.GetName()},
		Spec: v1alpha1.DispatchSpec{
			TrainJob: v1alpha1.TrainJobReference{Name: job.GetName(), UID: job.GetUID()}, Cluster: worker, Attempt: 1,
		},
	}
	for _, change := range changes {
		change(d)
	}
	check.Must(t, s.Hub.Admin.Create(t.Context(), d))
	return d
}

// Dispatch reads a Dispatch from the hub. It returns nil if there is none.
func (s *Scene) Dispatch(t testing.TB, name string) *v1alpha1.Dispatch {
	t.Helper()
	d := &v1alpha1.Dispatch{}
	if !exists(t, s.Hub.Admin, s.Key(name), d) {
		return nil
	}
	return d
}

// ReadTrainJob reads a TrainJob from any cluster or cache. It returns nil if there is none.
func ReadTrainJob(t testing.TB, reader client.Reader, key client.ObjectKey) *unstructured.Unstructured {
	t.Helper()
	job := trainjobs.New()
	if !exists(t, reader, key, job) {
		return nil
	}
	return job
}

// exists reads an object, and returns false if there is none.
func exists(t testing.TB, reader client.Reader, key client.ObjectKey, object client.Object) bool {
	t.Helper()
	err := reader.Get(context.WithoutCancel(t.Context()), key, object)
	check.Must(t, client.IgnoreNotFound(err))
	return err == nil
}

// SetCondition writes a condition of a Dispatch about its present attempt.
func (s *Scene) SetCondition(t testing.TB, d *v1alpha1.Dispatch, condition string, value metav1.ConditionStatus, reason string) {
	t.Helper()
	d.Status.Attempt = d.Spec.Attempt
	meta.SetStatusCondition(&d.Status.Conditions, metav1.Condition{
		Type: condition, Status: value, Reason: reason, LastTransitionTime: metav1.NewTime(s.Clock.Now()),
	})
	check.Must(t, s.Hub.Admin.Status().Update(t.Context(), d))
}

// Copied writes what mirror writes about a copy that runs.
func (s *Scene) Copied(t testing.TB, d *v1alpha1.Dispatch) {
	t.Helper()
	d.Status.Cluster, d.Status.Phase = d.Spec.Cluster, v1alpha1.PhaseRunning
	s.SetCondition(t, d, v1alpha1.DispatchMirrored, metav1.ConditionTrue, v1alpha1.ReasonCopied)
}

// Report writes a TrainJob's status as its controller does: how many jobs of it run, and the condition that has ended
// it, or none.
func Report(t testing.TB, c client.Client, job *unstructured.Unstructured, end string, running int64) {
	t.Helper()
	status := map[string]any{"jobsStatus": []any{map[string]any{
		"name": "node", "active": running, "ready": int64(0), "succeeded": int64(0), "failed": int64(0), "suspended": int64(0),
	}}}
	if end != "" {
		status["conditions"] = []any{map[string]any{
			"type": end, "status": "True", "reason": "Because", "message": "it is " + end, "lastTransitionTime": "2026-01-02T03:04:05Z",
		}}
	}
	job.Object["status"] = status
	check.Must(t, c.Status().Update(t.Context(), job))
}

// Events is an EventRecorder that keeps Events as "type reason note". It is safe for concurrent use.
type Events struct {
	mu    sync.Mutex
	told  []event // under mu
	taken int     // under mu
}

type event struct{ about, text string }

// Eventf implements events.EventRecorder.
func (e *Events) Eventf(regarding, _ runtime.Object, kind, reason, _, note string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	text := fmt.Sprintf("%s %s %s", kind, reason, fmt.Sprintf(note, args...))
	e.told = append(e.told, event{about: regarding.(client.Object).GetName(), text: text})
}

// About returns all Events about the objects of a name.
func (e *Events) About(name string) (texts []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, event := range e.told {
		if event.about == name {
			texts = append(texts, event.text)
		}
	}
	return texts
}

// Take returns the Events since the last Take.
func (e *Events) Take() (texts []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, event := range e.told[e.taken:] {
		texts = append(texts, event.text)
	}
	e.taken = len(e.told)
	return texts
}

// Warnings collects the warnings that a client gets from an API server: it is a rest.WarningHandler.
type Warnings struct {
	mu    sync.Mutex
	texts []string // under mu
	taken int      // under mu
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *Warnings) HandleWarningHeader(_ int, _ string, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}

// All returns all warnings.
func (w *Warnings) All() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.texts)
}

// Take returns the warnings since the last Take, one a line.
func (w *Warnings) Take() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	texts := strings.Join(w.texts[w.taken:], "\n")
	w.taken = len(w.texts)
	return texts
}
