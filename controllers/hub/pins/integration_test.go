// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package pins_test

import (
	"context"
	"errors"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/pins"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/stage"
)

const (
	workerName = v1alpha1.ClusterName("worker")
	version    = "uid.1"
)

var must, eventually = check.Must, check.Eventually

var shared = stage.Share(func(ctx context.Context, s *stage.Stage) error {
	return errors.Join(s.StartCaches(ctx), s.ConnectAsHub(ctx, "worker", "worker-pins"))
}, string(workerName))

func TestMain(m *testing.M) { shared.Main(m) }

// scene is a worker with one pinned runtime that nothing needs.
type scene struct {
	*stage.Scene
	worker     *stage.Server
	runtime    *trainer.TrainingRuntime
	options    pins.Options
	reconciler *pins.Reconciler
}

func newScene(t *testing.T, changes ...func(*trainer.TrainingRuntime)) *scene {
	t.Helper()
	all := shared.Get(t)
	s := &scene{Scene: all.Scene(t), worker: all.Workers[0]}
	stage.AwaitConnected(t, s.worker.Connection)
	s.options = pins.Options{
		Cluster: workerName, ClusterID: s.worker.ID, HubID: stage.HubID, Hub: s.Cached, HubReader: s.Hub.Admin,
		Worker: s.worker.Connection, Clock: s.Clock,
	}
	s.reconciler = pins.NewReconciler(s.options)
	s.Clock.Step(time.Minute) // The hub's caches are believed.
	s.runtime = &trainer.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{
		Namespace: s.Namespace, Name: "own-12345678",
		Labels:      map[string]string{v1alpha1.LabelPropagatedBy: stage.HubID, v1alpha1.LabelPinned: "1234567890"},
		Annotations: map[string]string{v1alpha1.AnnotationSource: version + ".replaced"},
	}}
	for _, change := range changes {
		change(s.runtime)
	}
	must(t, s.worker.Admin.Create(t.Context(), s.runtime))
	s.settleRuntime(t)
	return s
}

// settleRuntime waits until the worker's cache shows the runtime as it is, or that it is gone.
func (s *scene) settleRuntime(t *testing.T) {
	t.Helper()
	eventually(t, "runtime in the cache", func(g gomega.Gomega) {
		live, seen := &metav1.PartialObjectMetadata{}, &metav1.PartialObjectMetadata{}
		live.SetGroupVersionKind(trainer.SchemeGroupVersion.WithKind(trainer.TrainingRuntimeKind))
		seen.SetGroupVersionKind(live.GroupVersionKind())
		key := client.ObjectKeyFromObject(s.runtime)
		g.Expect(client.IgnoreNotFound(s.worker.Admin.Get(t.Context(), key, live))).To(gomega.Succeed())
		g.Expect(client.IgnoreNotFound(s.worker.Connection.Cache().Get(t.Context(), key, seen))).To(gomega.Succeed())
		g.Expect(seen.ResourceVersion).To(gomega.Equal(live.ResourceVersion))
	})
}

func (s *scene) reconcile(t *testing.T) reconcile.Result {
	t.Helper()
	result, err := s.reconciler.Reconcile(t.Context(), s.request())
	must(t, err)
	s.settleRuntime(t)
	return result
}

func (s *scene) request() reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: s.Namespace}}
}

// isThere says whether the worker has the runtime, after it has not been needed for long.
func (s *scene) isThere(t *testing.T) bool {
	t.Helper()
	s.reconcile(t)
	s.Clock.Step(time.Minute)
	s.reconcile(t)
	err := s.worker.Admin.Get(t.Context(), client.ObjectKeyFromObject(s.runtime), &trainer.TrainingRuntime{})
	must(t, client.IgnoreNotFound(err))
	return err == nil
}

// place has a Dispatch on the worker, as the hub's cache shows it.
func (s *scene) place(t *testing.T, change func(*v1alpha1.Dispatch)) *v1alpha1.Dispatch {
	t.Helper()
	d := s.Place(t, s.Submit(t, "job"), workerName, func(d *v1alpha1.Dispatch) {
		d.Spec.Runtime, d.Spec.Counted = v1alpha1.RuntimePin, &v1alpha1.Counted{Digest: "d", Runtime: version}
		change(d)
	})
	s.settleDispatch(t, d)
	return d
}

func (s *scene) settleDispatch(t *testing.T, d *v1alpha1.Dispatch) {
	t.Helper()
	eventually(t, "Dispatch in the cache", func(g gomega.Gomega) {
		seen, live := &v1alpha1.Dispatch{}, &v1alpha1.Dispatch{}
		g.Expect(client.IgnoreNotFound(s.Hub.Admin.Get(t.Context(), client.ObjectKeyFromObject(d), live))).To(gomega.Succeed())
		g.Expect(client.IgnoreNotFound(s.Cached.Get(t.Context(), client.ObjectKeyFromObject(d), seen))).To(gomega.Succeed())
		g.Expect(seen.ResourceVersion).To(gomega.Equal(live.ResourceVersion))
	})
}

// jobOnWorker creates a TrainJob on the worker that names the runtime.
func (s *scene) jobOnWorker(t *testing.T, change func(*trainer.TrainJob)) *trainer.TrainJob {
	t.Helper()
	job := stage.NewTrainJob(s.Namespace, "copy", func(job *trainer.TrainJob) {
		job.Spec.RuntimeRef = trainer.RuntimeRef{
			APIGroup: ptr.To(trainer.SchemeGroupVersion.Group), Kind: ptr.To(trainer.TrainingRuntimeKind), Name: s.runtime.Name,
		}
		change(job)
	})
	s.worker.Create(t, job)
	s.worker.SettleCopy(t, client.ObjectKeyFromObject(job))
	return job
}

// asCopy gives a TrainJob the marks of a copy.
func (s *scene) asCopy(job *trainer.TrainJob) {
	job.Labels = map[string]string{v1alpha1.LabelHub: stage.HubID, v1alpha1.LabelOriginUID: "uid"}
	job.Annotations = map[string]string{v1alpha1.AnnotationPinnedRuntime: s.runtime.Name}
}

// A runtime goes when nothing has needed it for half a minute, and not before.
func TestUnneededRuntimeGoes(t *testing.T) {
	s := newScene(t)
	result := s.reconcile(t)
	check.Equal(t, 30*time.Second, result.RequeueAfter, "when it looks again")
	s.Clock.Step(29 * time.Second)
	s.reconcile(t)
	must(t, s.worker.Admin.Get(t.Context(), client.ObjectKeyFromObject(s.runtime), &trainer.TrainingRuntime{}))
	s.Clock.Step(time.Second)
	s.reconcile(t)
	err := s.worker.Admin.Get(t.Context(), client.ObjectKeyFromObject(s.runtime), &trainer.TrainingRuntime{})
	check.Equal(t, true, apierrors.IsNotFound(err), "whether the runtime is gone: %v", err)
}

// What may need a runtime keeps it.
func TestRuntimeStays(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		need   func(t *testing.T, s *scene) (end func())
	}{
		"Dispatch": {"its copy may be under way", func(t *testing.T, s *scene) func() {
			t.Helper()
			d := s.place(t, func(*v1alpha1.Dispatch) {})
			return func() { must(t, s.Hub.Admin.Delete(t.Context(), d)); s.settleDispatch(t, d) }
		}},
		"NotCounted": {"nobody knows which runtime its copy names", func(t *testing.T, s *scene) func() {
			t.Helper()
			d := s.place(t, func(d *v1alpha1.Dispatch) { d.Spec.Counted = nil })
			return func() { must(t, s.Hub.Admin.Delete(t.Context(), d)); s.settleDispatch(t, d) }
		}},
		"Copy": {"the hub may have lost its record", func(t *testing.T, s *scene) func() {
			t.Helper()
			copy := s.jobOnWorker(t, s.asCopy)
			return func() {
				must(t, s.worker.Admin.Delete(t.Context(), copy))
				s.worker.SettleCopy(t, client.ObjectKeyFromObject(copy))
			}
		}},
		"Foreign": {"a TrainJob of somebody on the worker, which no cache shows", func(t *testing.T, s *scene) func() {
			t.Helper()
			job := s.jobOnWorker(t, func(*trainer.TrainJob) {})
			return func() { must(t, s.worker.Admin.Delete(t.Context(), job)); s.Clock.Step(10 * time.Minute) }
		}},
		"Held": {"a copy is being created", func(_ *testing.T, s *scene) func() {
			release, _ := s.reconciler.Hold(client.ObjectKeyFromObject(s.runtime))
			return release
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			end := tc.need(t, s)
			check.Equal(t, true, s.isThere(t), "whether the runtime is there: %s", tc.reason)
			end()
			check.Equal(t, false, s.isThere(t), "whether the runtime is there when nothing needs it any more")
		})
	}
}

// What does not need a runtime does not keep it.
func TestWhatKeepsNoRuntime(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.Dispatch){
		"OtherVersion": func(d *v1alpha1.Dispatch) { d.Spec.Counted.Runtime = "uid.2" },
		"OtherPolicy":  func(d *v1alpha1.Dispatch) { d.Spec.Runtime = "" },
		"OtherCluster": func(d *v1alpha1.Dispatch) { d.Spec.ClusterID = "another" },
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.place(t, change)
			check.Equal(t, false, s.isThere(t), "whether the runtime is there")
		})
	}
}

// What the hub has not made as a pinned runtime stays.
func TestOtherRuntimesStay(t *testing.T) {
	for name, change := range map[string]func(*trainer.TrainingRuntime){
		"NotPinned":    func(r *trainer.TrainingRuntime) { delete(r.Labels, v1alpha1.LabelPinned) },
		"OfAnotherHub": func(r *trainer.TrainingRuntime) { r.Labels[v1alpha1.LabelPropagatedBy] = "hub-2" },
		"OfNoHub":      func(r *trainer.TrainingRuntime) { delete(r.Labels, v1alpha1.LabelPropagatedBy) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, change)
			check.Equal(t, true, s.isThere(t), "whether the runtime is there")
		})
	}
}

// A Dispatch that only the API server shows keeps the runtime, and so does a start: caches may lag behind an earlier leader.
func TestAbsenceInACacheDeletesNothing(t *testing.T) {
	s := newScene(t)
	s.options.Hub = behind{s.Cached}
	s.reconciler = pins.NewReconciler(s.options)
	s.Clock.Step(time.Minute)
	s.place(t, func(*v1alpha1.Dispatch) {})
	check.Equal(t, true, s.isThere(t), "whether the runtime is there")

	s = newScene(t)
	s.reconcile(t)
	s.Clock.Step(time.Hour)
	s.reconciler = pins.NewReconciler(s.options)
	if result := s.reconcile(t); result.RequeueAfter <= 0 {
		t.Error("a process that has just started does not look again")
	}
	must(t, s.worker.Admin.Get(t.Context(), client.ObjectKeyFromObject(s.runtime), &trainer.TrainingRuntime{}))
}

// behind is a cache that shows no Dispatches.
type behind struct{ client.Client }

// List implements client.Reader.
func (behind) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// While a runtime is being deleted, nobody holds it, and a new one of the name may be held.
func TestNobodyHoldsWhatGoes(t *testing.T) {
	s := newScene(t, func(r *trainer.TrainingRuntime) { r.Finalizers = []string{"example.com/slow"} })
	t.Cleanup(func() { s.worker.RemoveFinalizers(t, s.runtime) })
	key := client.ObjectKeyFromObject(s.runtime)
	check.Equal(t, true, s.isThere(t), "whether the runtime waits for its finalizer")
	if _, ok := s.reconciler.Hold(key); ok {
		t.Error("a runtime that is being deleted is held")
	}
	s.reconcile(t) // The cache shows the deletion, which the mirror sees too.
	release, ok := s.reconciler.Hold(key)
	check.Equal(t, true, ok, "whether it may be held when the cache shows the deletion")
	release()
}

// Without the right to delete, runtimes stay, and nobody tries again and again.
func TestWithoutTheRight(t *testing.T) {
	s := newScene(t)
	reader := &counting{Reader: s.Hub.Admin}
	s.options.Worker, s.options.HubReader = forbidding{s.worker.Connection}, reader
	s.reconciler = pins.NewReconciler(s.options)
	s.reconcile(t)
	s.Clock.Step(time.Minute)
	_, err := s.reconciler.Reconcile(t.Context(), s.request())
	if !errors.Is(err, reconcile.TerminalError(nil)) || !apierrors.IsForbidden(err) {
		t.Errorf("it ends with %v, want a terminal error that it is forbidden", err)
	}
	release, ok := s.reconciler.Hold(client.ObjectKeyFromObject(s.runtime))
	check.Equal(t, true, ok, "whether copies may name it")
	release()
	check.Equal(t, 1, reader.lists, "how often the hub was asked")
	s.reconcile(t) // Another job of the namespace has ended.
	s.Clock.Step(time.Minute)
	s.reconcile(t)
	check.Equal(t, 1, reader.lists, "how often the hub was asked, after other jobs have ended")
}

// A runtime that a TrainJob of somebody on the worker names costs no requests when other jobs end.
func TestForeignJobIsLookedForSeldom(t *testing.T) {
	s := newScene(t)
	reader := &counting{Reader: s.Hub.Admin}
	s.options.HubReader = reader
	s.reconciler = pins.NewReconciler(s.options)
	s.jobOnWorker(t, func(*trainer.TrainJob) {})
	check.Equal(t, true, s.isThere(t), "whether the runtime is there")
	check.Equal(t, true, s.isThere(t), "whether the runtime is there after other jobs have ended")
	check.Equal(t, 1, reader.lists, "how often the hub was asked")
}

// However many pinned runtimes a namespace has, the caches are asked once for all of them.
func TestOneLookForAllRuntimes(t *testing.T) {
	s := newScene(t)
	first := s.runtime
	s.runtime = &trainer.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{
		Namespace: s.Namespace, Name: "own-87654321", Labels: first.Labels, Annotations: first.Annotations,
	}}
	must(t, s.worker.Admin.Create(t.Context(), s.runtime))
	s.settleRuntime(t)
	cached := &counting{Reader: s.Cached}
	s.options.Hub = cached
	s.reconciler = pins.NewReconciler(s.options)
	s.reconcile(t)
	check.Equal(t, 1, cached.lists, "lists of Dispatches for two runtimes")
}

// counting counts the lists that are read.
type counting struct {
	client.Reader
	lists int
}

// List implements client.Reader.
func (c *counting) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	c.lists++
	return c.Reader.List(ctx, list, options...)
}

// forbidding is a connection that forbids deletions.
type forbidding struct{ *remote.Cluster }

// Client implements copies.Connection.
func (f forbidding) Client() (client.Client, error) {
	c, err := f.Cluster.Client()
	return undeleting{c}, err
}

type undeleting struct{ client.Client }

// Delete implements client.Writer.
func (undeleting) Delete(context.Context, client.Object, ...client.DeleteOption) error {
	return apierrors.NewForbidden(trainer.Resource("trainingruntimes"), "own", errors.New("no right"))
}
