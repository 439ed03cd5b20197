// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/garbagecollection"
	"github.com/trainyard/trainyard/internal/copies"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/stage"
)

const (
	workerName = v1alpha1.ClusterName("worker")
	otherName  = v1alpha1.ClusterName("other")
	jobName    = "job"
	retention  = 10 * time.Minute
)

var must, eventually, read = check.Must, check.Eventually, stage.ReadTrainJob

var shared = stage.Share(func(ctx context.Context, s *stage.Stage) error {
	return errors.Join(s.Connect(remote.Options{Scheme: s.Scheme}), s.Register(ctx))
}, string(workerName), string(otherName))

func TestMain(m *testing.M) { shared.Main(m) }

// scene has the key of a job, and the garbage collectors that a test calls.
type scene struct {
	*stage.Scene
	key client.ObjectKey
	// quarantine is shared by all collectors. brought has the keys that it has brought to them.
	quarantine *garbagecollection.Quarantine
	brought    *mailbox
	// options are the options of the collectors. A change by a test takes effect at the next restart.
	options    map[v1alpha1.ClusterName]*garbagecollection.Options
	collectors map[v1alpha1.ClusterName]reconcile.Reconciler
}

// demand returns the same demand for each job, in place of placement.
func demand(context.Context, *unstructured.Unstructured) (v1alpha1.DispatchSpec, error) {
	return v1alpha1.DispatchSpec{
		PodSets: []v1alpha1.PodSet{{Name: "node", Count: 2}}, Priority: 7, Dependencies: []v1alpha1.Dependency{{Kind: "Secret", Name: "hf"}},
	}, nil
}

// mailbox has the keys that the quarantine has brought to the collectors.
type mailbox struct {
	mu   sync.Mutex
	keys map[v1alpha1.ClusterName]map[types.NamespacedName]bool // under mu
}

func (m *mailbox) put(worker v1alpha1.ClusterName, key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.keys == nil {
		m.keys = map[v1alpha1.ClusterName]map[types.NamespacedName]bool{}
	}
	if m.keys[worker] == nil {
		m.keys[worker] = map[types.NamespacedName]bool{}
	}
	m.keys[worker][key] = true
}

func (m *mailbox) has(worker v1alpha1.ClusterName, key types.NamespacedName) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.keys[worker][key]
}

func newScene(t *testing.T) *scene {
	t.Helper()
	shared := shared.Get(t)
	s := &scene{Scene: shared.Scene(t), options: map[v1alpha1.ClusterName]*garbagecollection.Options{}}
	s.key = s.Key(jobName)
	for _, w := range shared.Workers {
		s.options[w.Name()] = &garbagecollection.Options{
			Cluster: w.Name(), ClusterID: w.ID, HubID: stage.HubID, ManagedBy: v1alpha1.ManagedByMultiKueue,
			Hub: s.Hub.Admin, HubReader: s.Hub.Admin, Worker: w.Connection, WorkerCache: w.Connection.Cache(),
			Recorder: s.Events, Clock: s.Clock,
			Retention: func(context.Context, *unstructured.Unstructured) (time.Duration, error) { return retention, nil },
			Demand:    demand,
			Others: func(name v1alpha1.ClusterName, _ types.UID) (copies.Connection, bool) {
				if w := shared.Worker(name); w != nil {
					return w.Connection, true
				}
				return nil, false
			},
		}
		t.Cleanup(func() { // The next test's controllers see the same WorkerClusters.
			s.ChangeWorker(t, w.Name(), func(worker *v1alpha1.WorkerCluster) {
				worker.Status.UnknownCopies, worker.Status.Conditions = nil, nil
			})
		})
	}
	s.restart()
	return s
}

// restart starts a new process without memory.
func (s *scene) restart() {
	s.brought = &mailbox{}
	s.quarantine = garbagecollection.NewQuarantine(garbagecollection.QuarantineOptions{
		Hub: s.Hub.Admin, Recorder: s.Events, Clock: s.Clock, Enqueue: s.brought.put,
	})
	s.collectors = map[v1alpha1.ClusterName]reconcile.Reconciler{}
	for name, options := range s.options {
		options.Quarantine = s.quarantine
		s.collectors[name] = garbagecollection.NewReconciler(*options)
	}
}

// finishDeletion does what a cluster's garbage collector does at the end of a deletion in the foreground.
func (s *scene) finishDeletion(t *testing.T, on v1alpha1.ClusterName) {
	t.Helper()
	if copy := s.copyOn(t, on); copy != nil {
		s.Worker(on).RemoveFinalizers(t, copy)
	}
}

func (s *scene) submit(t *testing.T) *trainer.TrainJob {
	t.Helper()
	return s.Submit(t, jobName)
}

// place creates a Dispatch of the TrainJob with this UID.
func (s *scene) place(t *testing.T, origin types.UID, cluster v1alpha1.ClusterName, attempt int32) *v1alpha1.Dispatch {
	t.Helper()
	job := s.newJob()
	job.SetUID(origin)
	return s.Place(t, job, cluster, func(d *v1alpha1.Dispatch) {
		d.Spec.Attempt = attempt
		if w := s.Worker(cluster); w != nil {
			d.Spec.ClusterID = w.ID
		}
	})
}

// finish sets the condition of a Dispatch that says that the job has finished now.
func (s *scene) finish(t *testing.T, d *v1alpha1.Dispatch) {
	t.Helper()
	s.SetCondition(t, d, v1alpha1.DispatchFinished, metav1.ConditionTrue, v1alpha1.ReasonComplete)
}

// addTombstone writes the Tombstone of a job.
func (s *scene) addTombstone(t *testing.T, origin types.UID, on v1alpha1.ClusterName, attempt int32) *v1alpha1.Tombstone {
	t.Helper()
	return s.Tombstone(t, v1alpha1.TombstoneSpec{
		Cluster: "as-it-was-called", ClusterID: s.Worker(on).ID, Attempt: attempt,
		TrainJob: v1alpha1.TrainJobReference{Name: s.key.Name, UID: origin},
	})
}

// createCopy creates a copy of the TrainJob with this UID on the worker.
func (s *scene) createCopy(t *testing.T, origin types.UID, attempt string) *unstructured.Unstructured {
	t.Helper()
	return s.createCopyOn(t, workerName, origin, attempt)
}

func (s *scene) createCopyOn(t *testing.T, on v1alpha1.ClusterName, origin types.UID, attempt string) *unstructured.Unstructured {
	t.Helper()
	copy := s.newJob()
	copy.SetLabels(map[string]string{v1alpha1.LabelHub: stage.HubID, v1alpha1.LabelOriginUID: string(origin), "team": "a"})
	copy.SetAnnotations(map[string]string{
		v1alpha1.AnnotationAttempt: attempt, v1alpha1.AnnotationFailover: string(v1alpha1.FailoverFenced), "note": "b",
	})
	must(t, s.Worker(on).Admin.Create(t.Context(), copy))
	s.settle(t)
	return copy
}

// run creates a pod of the job on a worker, and returns how to end it.
func (s *scene) run(t *testing.T, on v1alpha1.ClusterName) (end func()) {
	t.Helper()
	admin := s.Worker(on).Admin
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.key.Namespace, Name: "pod", Labels: map[string]string{"jobset.sigs.k8s.io/jobset-name": s.key.Name},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	must(t, admin.Create(t.Context(), pod))
	seen := func(want int) {
		eventually(t, "worker's cache of pods", func(g gomega.Gomega) {
			var pods corev1.PodList
			g.Expect(s.Worker(on).Connection.Cache().List(t.Context(), &pods, client.InNamespace(s.key.Namespace))).To(gomega.Succeed())
			g.Expect(pods.Items).To(gomega.HaveLen(want))
		})
	}
	seen(1)
	return func() {
		must(t, admin.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
		seen(0)
	}
}

func (s *scene) newJob() *unstructured.Unstructured {
	job := trainjobs.New()
	job.SetNamespace(s.key.Namespace)
	job.SetName(s.key.Name)
	job.Object["spec"] = map[string]any{"runtimeRef": map[string]any{"name": "torch-distributed"}}
	return job
}

// collect calls the collector, which must not fail, and waits until the worker's cache shows what it did.
func (s *scene) collect(t *testing.T) reconcile.Result {
	t.Helper()
	return s.collectOn(t, workerName, s.key)
}

func (s *scene) collectOn(t *testing.T, on v1alpha1.ClusterName, key client.ObjectKey) reconcile.Result {
	t.Helper()
	result, err := s.collectors[on].Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
	must(t, err)
	s.settle(t)
	return result
}

func (s *scene) sweep(t *testing.T, on v1alpha1.ClusterName) {
	t.Helper()
	_, err := garbagecollection.Sweep(t.Context(), *s.options[on])
	must(t, err)
	s.settle(t)
}

// report calls the quarantine's Reconcile for a worker, and returns the WorkerCluster after that.
func (s *scene) report(t *testing.T, of v1alpha1.ClusterName) *v1alpha1.WorkerCluster {
	t.Helper()
	key := client.ObjectKey{Name: string(of)}
	_, err := s.quarantine.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
	must(t, err)
	return s.WorkerCluster(t, of)
}

// decide writes an admin's decision about a copy.
func (s *scene) decide(t *testing.T, copy *unstructured.Unstructured, decision string) {
	t.Helper()
	s.ChangeWorker(t, workerName, func(worker *v1alpha1.WorkerCluster) {
		metav1.SetMetaDataAnnotation(&worker.ObjectMeta, v1alpha1.AnnotationDecisionPrefix+string(copy.GetUID()), decision)
	})
}

// told counts the Events with this text, and forgets all Events so far.
func (s *scene) told(t *testing.T, text string) int {
	t.Helper()
	count := 0
	for _, event := range s.Events.Take() {
		if strings.Contains(event, text) {
			count++
		} else {
			t.Logf("another Event: %s", event)
		}
	}
	return count
}

// settle waits until the workers' caches show the present copies.
func (s *scene) settle(t *testing.T) {
	t.Helper()
	for _, w := range s.Workers {
		w.SettleCopy(t, s.key)
	}
}

// copy reads the copy from the worker. It returns nil if there is none.
func (s *scene) copy(t *testing.T) *unstructured.Unstructured { return s.copyOn(t, workerName) }

func (s *scene) copyOn(t *testing.T, on v1alpha1.ClusterName) *unstructured.Unstructured {
	t.Helper()
	return read(t, s.Worker(on).Admin, s.key)
}

// dispatch reads the Dispatch from the hub. It returns nil if there is none.
func (s *scene) dispatch(t *testing.T) *v1alpha1.Dispatch {
	t.Helper()
	return s.Dispatch(t, s.key.Name)
}
