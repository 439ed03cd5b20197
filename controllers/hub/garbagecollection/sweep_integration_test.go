// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/garbagecollection"
	"github.com/trainyard/trainyard/dispatch/judgement"
	"github.com/trainyard/trainyard/internal/copies"
	"github.com/trainyard/trainyard/internal/hubcache"
	"github.com/trainyard/trainyard/internal/perworker"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/stage"
)

// A sweep deletes a copy only if a record says that the copy is outdated, also if the cache does not show the copy yet.
func TestSweep(t *testing.T) {
	for name, test := range map[string]struct {
		reason  string
		prepare func(*testing.T, *scene)
		deleted bool
	}{
		"OldAttempt": {reason: "the job runs elsewhere", deleted: true, prepare: func(t *testing.T, s *scene) {
			s.place(t, "origin", otherName, 3)
		}},
		"Ended": {reason: "the attempt was ended while the worker was lost", deleted: true, prepare: func(t *testing.T, s *scene) {
			s.SetCondition(t, s.place(t, "origin", workerName, 2), v1alpha1.DispatchMirrored, metav1.ConditionFalse, v1alpha1.ReasonWorkerLost)
		}},
		"Tombstone": {reason: "the job was deleted while the worker was away", deleted: true, prepare: func(t *testing.T, s *scene) {
			s.addTombstone(t, types.UID("sweep-"+s.key.Namespace), workerName, 2)
		}},
		"TombstoneElsewhere": {reason: "the Tombstone is about another cluster", prepare: func(t *testing.T, s *scene) {
			s.addTombstone(t, types.UID("sweep-"+s.key.Namespace), otherName, 2)
		}},
		"Current": {reason: "it runs", prepare: func(t *testing.T, s *scene) { s.place(t, "origin", workerName, 2) }},
		"Unknown": {reason: "nobody knows it", prepare: func(*testing.T, *scene) {}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			test.prepare(t, s)
			origin := types.UID("origin")
			if s.dispatch(t) == nil {
				origin = types.UID("sweep-" + s.key.Namespace)
			}
			s.createCopy(t, origin, "2")
			s.sweep(t, workerName)
			if copy := s.copy(t); test.deleted {
				expectDeleted(t, copy)
			} else if copy == nil || copy.GetDeletionTimestamp() != nil {
				t.Errorf("the copy was deleted: %s", test.reason)
			}
		})
	}
}

// A manager that starts reads the Dispatches of finished jobs late. A sweep waits for them: their copies are retained, and
// neither unknown nor outdated.
func TestSweepAmongFinishedJobs(t *testing.T) {
	s := newScene(t)
	finish := func(d *v1alpha1.Dispatch) {
		d.Status.Phase = v1alpha1.PhaseFinished
		s.finish(t, d)
	}
	for i := range 30 {
		finish(s.Place(t, s.Submit(t, fmt.Sprintf("old-%02d", i)), otherName))
	}
	job := s.submit(t)
	finish(s.place(t, job.UID, workerName, 1))
	s.createCopy(t, job.UID, "1")

	hub, err := hubcache.New(hubcache.Options{Config: s.Hub.Cluster.Config, PageSize: 2})
	must(t, err)
	caches, err := cluster.New(s.Hub.Cluster.Config, func(o *cluster.Options) {
		o.Scheme, o.Client.Cache, o.NewClient = s.Scheme, &client.CacheOptions{Unstructured: true}, hub.NewClient
		o.Cache.NewInformer = hub.NewInformer
	})
	must(t, err)
	must(t, hubcache.Fill(t.Context(), caches.GetCache()))
	stop := stage.Run(caches)
	t.Cleanup(func() { must(t, stop()) })
	if !caches.GetCache().WaitForCacheSync(t.Context()) {
		t.Fatal("the caches do not begin")
	}
	for _, options := range s.options {
		options.Hub = caches.GetClient()
	}
	s.restart()
	s.sweep(t, workerName)
	if worker, held := s.quarantine.Of(s.key, job.UID); held {
		t.Errorf("the copy on worker %s counts as unknown", worker)
	}
	if copy := s.copy(t); copy == nil || copy.GetDeletionTimestamp() != nil {
		t.Error("the copy was deleted before its retention was over")
	}
}

// A sweep that cannot delete a copy returns an error: then the manager must create nothing new on the worker.
func TestSweepFails(t *testing.T) {
	s := newScene(t)
	s.place(t, "origin", otherName, 3)
	s.createCopy(t, "origin", "2")
	refused := errors.New("refused")
	s.options[workerName].Worker = refusing{Cluster: s.Worker(workerName).Connection, err: refused}
	if _, err := garbagecollection.Sweep(t.Context(), *s.options[workerName]); !errors.Is(err, refused) {
		t.Errorf("Sweep() = %v, want that the worker has refused", err)
	}
}

// refusing is a connection to a worker that refuses deletions.
type refusing struct {
	*remote.Cluster
	err error
}

func (r refusing) Client() (client.Client, error) {
	cached, err := r.Cluster.Client()
	return refusingClient{Client: cached, err: r.err}, err
}

type refusingClient struct {
	client.Client
	err error
}

func (r refusingClient) Delete(context.Context, client.Object, ...client.DeleteOption) error {
	return r.err
}

// The collector deletes the copy that a Tombstone names, and the Tombstone when no pod of the copy is alive.
func TestTombstone(t *testing.T) {
	s := newScene(t)
	origin := types.UID("tombstone-" + s.key.Namespace)
	s.createCopy(t, origin, "2")
	endPod := s.run(t, workerName)
	tombstone := s.addTombstone(t, origin, workerName, 2)
	key := client.ObjectKey{Name: tombstone.Name}
	stands := func() bool {
		err := s.Hub.Admin.Get(t.Context(), key, &v1alpha1.Tombstone{})
		must(t, client.IgnoreNotFound(err))
		return err == nil
	}

	for _, step := range []struct {
		when string
		do   func()
	}{
		{"the copy is there", func() {}},
		{"the copy is going", func() {}},
		{"a pod of it is alive", func() { s.finishDeletion(t, workerName) }},
	} {
		step.do()
		s.settle(t)
		if result := s.collectOn(t, workerName, key); result.RequeueAfter == 0 || !stands() {
			t.Fatalf("while %s: looked at again after %s, the Tombstone stands: %t", step.when, result.RequeueAfter, stands())
		}
		if copy := s.copy(t); copy != nil {
			expectDeleted(t, copy)
		}
	}
	endPod()
	s.collectOn(t, otherName, key)
	if !stands() {
		t.Error("a worker that it is not about has taken the Tombstone away")
	}
	s.collectOn(t, workerName, key)
	if stands() {
		t.Error("the Tombstone stands although the worker has nothing of the job")
	}
}

// No cache shows a copy without our label. A Tombstone finds it by name, and recognises it by the UID of its TrainJob.
func TestTombstoneOfUnlabelledCopy(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		label  string
		goes   bool
	}{
		"TakenOff":   {"it would be left there for ever, and keep its name from other jobs", "", true},
		"AnotherHub": {"it was restored from the same backup as this hub", "hub-2", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			origin := types.UID("unlabelled-" + s.key.Namespace)
			copy := s.createCopy(t, origin, "2")
			labels := copy.GetLabels()
			if delete(labels, v1alpha1.LabelHub); test.label != "" {
				labels[v1alpha1.LabelHub] = test.label
			}
			copy.SetLabels(labels)
			must(t, s.Worker(workerName).Admin.Update(t.Context(), copy))
			tombstone := s.addTombstone(t, origin, workerName, 2)
			s.collectOn(t, workerName, client.ObjectKeyFromObject(tombstone))
			check.Equal(t, test.goes, s.copy(t).GetDeletionTimestamp() != nil, "the copy goes: %s", test.reason)
			err := s.Hub.Admin.Get(t.Context(), client.ObjectKeyFromObject(tombstone), tombstone)
			check.Equal(t, test.goes, err == nil, "the Tombstone stands (%v)", err)
		})
	}
}

// A Tombstone is done if there is no copy, or if another TrainJob has its name by now.
func TestTombstoneWithoutCopy(t *testing.T) {
	for name, test := range map[string]struct{ origin, attempt string }{
		"Nothing":      {},
		"OtherJob":     {origin: "other", attempt: "1"},
		"LaterAttempt": {attempt: "3"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			origin := types.UID("never-" + s.key.Namespace)
			tombstone := s.addTombstone(t, origin, workerName, 2)
			if test.origin != "" {
				origin = types.UID(test.origin)
			}
			if test.attempt != "" {
				s.createCopy(t, origin, test.attempt)
			}
			s.collectOn(t, workerName, client.ObjectKey{Name: tombstone.Name})
			if err := s.Hub.Admin.Get(t.Context(), client.ObjectKeyFromObject(tombstone), tombstone); !apierrors.IsNotFound(err) {
				t.Errorf("get Tombstone: %v, want that it is gone", err)
			}
			if copy := s.copy(t); copy != nil && copy.GetDeletionTimestamp() != nil {
				t.Error("a copy was deleted that the Tombstone is not about")
			}
		})
	}
}

// creator stands for mirror: it has the collector do its part, and creates the missing copy of a Dispatch.
type creator struct {
	*plant
	hub        client.Client
	here       judgement.Worker
	connection *remote.Cluster
	collector  *garbagecollection.Collector
}

func (c creator) Reconcile(ctx context.Context, request reconcile.Request) (result reconcile.Result, err error) {
	key := request.NamespacedName
	worker, err := copies.Connect(c.here.Name, c.connection)
	switch {
	case err != nil:
		return result, nil //nolint:nilerr // As mirror does.
	case key.Namespace == "":
		result.RequeueAfter, err = c.collector.Execute(ctx, worker, key.Name)
		return result, err
	}
	seen := judgement.Seen{Here: c.here}
	if seen.Dispatch, err = records.Dispatch(ctx, c.hub, key); err != nil {
		return result, err
	}
	copy, err := worker.Cached(ctx, key)
	if err != nil {
		return result, err
	}
	if copy != nil {
		seen.Copy = copy
	}
	if seen.Dispatch != nil { // The job is there.
		seen.Job = (&scene{key: key}).newJob()
		seen.Job.SetUID(seen.Dispatch.Spec.TrainJob.UID)
	}
	if err := c.collector.See(ctx, &seen); err != nil {
		return result, err
	}
	what := judgement.Of(seen)
	if result.RequeueAfter, err = c.collector.Collect(ctx, worker, key, copy, seen, what.Copy); err != nil {
		return result, err
	}
	switch what.Attempt {
	case judgement.HeldBack:
		c.held.Add(1)
		result.RequeueAfter = time.Second
	case judgement.Absent:
		made := (&scene{key: key}).newJob()
		made.SetLabels(map[string]string{v1alpha1.LabelHub: stage.HubID, v1alpha1.LabelOriginUID: string(seen.Job.GetUID())})
		made.SetAnnotations(map[string]string{v1alpha1.AnnotationAttempt: fmt.Sprint(seen.Dispatch.Spec.Attempt)})
		err = client.IgnoreAlreadyExists(worker.Create(ctx, made))
	default: // Mirror serves it.
	}
	if what.Attempt != judgement.Waiting {
		c.served.Add(1)
	}
	return result, err
}

// plant is a manager with the controllers of all workers.
type plant struct {
	*scene
	members *perworker.Set[*remote.Cluster]
	// blocked refuses each sweep of the first worker while it is true. failures is how many sweeps it has refused.
	blocked  atomic.Bool
	failures atomic.Int32
	// served is how many keys did not have to wait for the sweep, and held how often the quarantine has made one wait.
	served, held atomic.Int32
}

// newPlant starts creators with collectors as the manager does. A test lets the workers join.
func newPlant(t *testing.T) *plant {
	t.Helper()
	return newPlantIn(t, newScene(t))
}

// newPlantIn is newPlant for a scene that the test has prepared.
func newPlantIn(t *testing.T, s *scene) *plant {
	t.Helper()
	p := &plant{scene: s}
	mgr := p.NewManager(t, p.Hub.Cluster.Config)
	p.quarantine = garbagecollection.NewQuarantine(garbagecollection.QuarantineOptions{
		Hub: mgr.GetClient(), Recorder: &events.FakeRecorder{}, Clock: clock.RealClock{},
		Enqueue: func(worker v1alpha1.ClusterName, key types.NamespacedName) {
			p.members.Enqueue("creator", worker, key)
		},
	})
	options := func(worker v1alpha1.ClusterName, connection *remote.Cluster) garbagecollection.Options {
		return garbagecollection.Options{
			Cluster: worker, ClusterID: connection.Status().ClusterID, HubID: stage.HubID, ManagedBy: v1alpha1.ManagedByMultiKueue,
			Hub: mgr.GetClient(), HubReader: mgr.GetAPIReader(), Quarantine: p.quarantine,
			Worker: connection, WorkerCache: connection.Cache(),
			Retention: func(context.Context, *unstructured.Unstructured) (time.Duration, error) { return retention, nil },
			Demand:    demand, Recorder: &events.FakeRecorder{}, Clock: clock.RealClock{},
		}
	}
	p.members = perworker.NewSet(mgr.GetCache(), logr.Discard(), perworker.Kind[*remote.Cluster]{
		Name: "creator", Concurrency: 2,
		New: func(_ context.Context, worker v1alpha1.ClusterName, connection *remote.Cluster, swept func() bool) (reconcile.Reconciler, error) {
			o := options(worker, connection)
			o.Swept = swept
			return creator{
				plant: p, hub: mgr.GetClient(), here: judgement.Worker{Name: worker, ClusterID: o.ClusterID}, connection: connection,
				collector: garbagecollection.NewCollector(o),
			}, nil
		},
		Sweep: func(ctx context.Context, worker v1alpha1.ClusterName, connection *remote.Cluster) (bool, error) {
			if worker == workerName && p.blocked.Load() {
				p.failures.Add(1)
				return false, errors.New("blocked")
			}
			return garbagecollection.Sweep(ctx, options(worker, connection))
		},
	})
	must(t, mgr.Add(p.members))
	must(t, p.quarantine.Add(mgr))
	stage.RunFor(t, mgr)
	if !mgr.GetCache().WaitForCacheSync(t.Context()) {
		t.Fatal("the hub's caches do not fill")
	}
	return p
}

// On a worker that is connected again, outdated copies are deleted before anything new is created, also if that takes
// several tries. Other workers do not wait for this worker.
func TestNothingNewBeforeTheSweep(t *testing.T) {
	s := newScene(t)
	// The worker has a copy of an old attempt of one job. Other jobs have been placed meanwhile.
	s.place(t, "moved", otherName, 2)
	s.createCopy(t, "moved", "1")
	fresh, elsewhere := s.sibling(t, "fresh"), s.sibling(t, "elsewhere")
	fresh.place(t, "fresh", workerName, 1)
	elsewhere.place(t, "elsewhere", otherName, 1)
	p := newPlantIn(t, s)

	p.blocked.Store(true)
	must(t, p.members.Join(workerName, p.Worker(workerName).Connection)) // Join does not wait for the sweep.
	eventually(t, "attempts to sweep", func(g gomega.Gomega) { g.Expect(p.failures.Load()).To(gomega.BeNumerically(">=", 2)) })
	p.touch(t, fresh) // This makes an event of the hub.
	p.touchCopy(t)
	eventually(t, "attempts to sweep", func(g gomega.Gomega) { g.Expect(p.failures.Load()).To(gomega.BeNumerically(">=", 4)) })
	if copy := fresh.copyOn(t, workerName); copy != nil {
		t.Fatal("a copy was created although the worker has not been swept")
	}
	check.Equal(t, 0, p.served.Load(), "keys that did not wait for the sweep")
	must(t, p.members.Join(otherName, p.Worker(otherName).Connection))
	eventually(t, "copy on the other worker", func(g gomega.Gomega) { g.Expect(elsewhere.copyOn(t, otherName)).NotTo(gomega.BeNil()) })

	p.blocked.Store(false)
	eventually(t, "new copy", func(g gomega.Gomega) { g.Expect(fresh.copyOn(t, workerName)).NotTo(gomega.BeNil()) })
	if old := p.copy(t); old != nil {
		expectDeleted(t, old)
	}
}

// sibling is another job in the same namespace.
func (s *scene) sibling(t *testing.T, name string) *scene {
	t.Helper()
	return &scene{Scene: s.Scene, key: s.Key(name)}
}

// touch causes an event of a Dispatch.
func (p *plant) touch(t *testing.T, of *scene) {
	t.Helper()
	d := of.dispatch(t)
	metav1.SetMetaDataAnnotation(&d.ObjectMeta, "touched", "yes")
	must(t, p.Hub.Admin.Update(t.Context(), d))
}

// touchCopy causes an event of the copy on the worker.
func (p *plant) touchCopy(t *testing.T) {
	t.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"touched":"yes"}}}`))
	must(t, p.Worker(workerName).Admin.Patch(t.Context(), p.copy(t), patch))
}

// While a sweep does not finish, the status of current copies still reaches the hub.
func TestCurrentCopiesGoOnDuringASweep(t *testing.T) {
	p := newPlant(t)
	p.place(t, "origin", workerName, 1)
	p.createCopy(t, "origin", "1")
	p.blocked.Store(true)
	must(t, p.members.Join(workerName, p.Worker(workerName).Connection))
	eventually(t, "key of the copy", func(g gomega.Gomega) { g.Expect(p.served.Load()).To(gomega.BeNumerically(">", 0)) })
}

// While a sweep does not finish, deletions on the hub do not wait for it, and nothing is created for a deleted job.
func TestDeletionsGoOnDuringASweep(t *testing.T) {
	p := newPlant(t)
	d := p.place(t, "origin", workerName, 1)
	d.Finalizers = []string{v1alpha1.FinalizerCopy}
	must(t, p.Hub.Admin.Update(t.Context(), d))
	p.blocked.Store(true)
	must(t, p.members.Join(workerName, p.Worker(workerName).Connection))
	eventually(t, "sweep", func(g gomega.Gomega) { g.Expect(p.failures.Load()).To(gomega.BeNumerically(">", 1)) })
	check.Equal(t, 0, p.served.Load(), "keys before the sweep")
	must(t, p.Hub.Admin.Delete(t.Context(), d))
	eventually(t, "key of the Dispatch", func(g gomega.Gomega) { g.Expect(p.served.Load()).To(gomega.BeNumerically(">", 0)) })
	d.Finalizers = nil
	must(t, p.Hub.Admin.Patch(t.Context(), d, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
}

// A Dispatch from a backup may name a worker that its job has left since. The manager creates no copy there while
// another worker has a copy of this attempt or a later one, nor before it has looked at all workers that it expects.
func TestRestoredDispatchCreatesNoSecondCopy(t *testing.T) {
	s := newScene(t)
	s.place(t, "origin", workerName, 2)
	other := s.createCopyOn(t, otherName, "origin", "2")
	s.ChangeWorker(t, otherName, s.Ready(v1alpha1.ReasonConnected))
	p := newPlantIn(t, s)
	waits := func(what string) {
		t.Helper()
		before := p.held.Load()
		eventually(t, what, func(g gomega.Gomega) { g.Expect(p.held.Load()).To(gomega.BeNumerically(">=", before+2)) })
		check.Equal(t, nil, p.copy(t), "a second copy was created while %s", what)
	}

	must(t, p.members.Join(workerName, p.Worker(workerName).Connection))
	waits("the other worker has not been looked at")
	must(t, p.members.Join(otherName, p.Worker(otherName).Connection))
	waits("the other worker has a copy of the same attempt")
	eventually(t, "why it waits", func(g gomega.Gomega) {
		d := p.dispatch(t)
		g.Expect(d.Status.Reason).To(gomega.Equal(v1alpha1.ReasonUnknownCopy))
		mirrored := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchMirrored)
		g.Expect(mirrored.Message).To(gomega.ContainSubstring("kubectl trainyard adopt|release other " + p.key.String()))
	})
	said := p.dispatch(t)
	waits("that has been said")
	check.Equal(t, said.ResourceVersion, p.dispatch(t).ResourceVersion, "why it waits was written again")
	must(t, p.Worker(otherName).Admin.Delete(t.Context(), other))
	eventually(t, "copy", func(g gomega.Gomega) { g.Expect(p.copy(t)).NotTo(gomega.BeNil()) })
}

// A Tombstone that appears for a connected worker is executed there, whatever the worker is called.
func TestTombstoneAppears(t *testing.T) {
	p := newPlant(t)
	must(t, p.members.Join(workerName, p.Worker(workerName).Connection))
	origin := types.UID("appears-" + p.key.Namespace)
	p.createCopy(t, origin, "1")
	tombstone := p.addTombstone(t, origin, workerName, 1)
	eventually(t, "deletion of the copy", func(g gomega.Gomega) {
		copy := p.copy(t)
		g.Expect(copy == nil || copy.GetDeletionTimestamp() != nil).To(gomega.BeTrue())
	})
	p.finishDeletion(t, workerName)
	eventually(t, "end of the Tombstone", func(g gomega.Gomega) {
		g.Expect(apierrors.IsNotFound(p.Hub.Admin.Get(t.Context(), client.ObjectKeyFromObject(tombstone), tombstone))).To(gomega.BeTrue())
	})
}

// An unknown copy is reported, decided on and adopted. Only watches trigger these steps.
func TestUnknownCopyIsAdoptedByDecision(t *testing.T) {
	p := newPlant(t)
	copy := p.createCopy(t, "before-the-restore", "2")
	must(t, p.members.Join(workerName, p.Worker(workerName).Connection))
	eventually(t, "status of the worker", func(g gomega.Gomega) {
		registration := &v1alpha1.WorkerCluster{}
		g.Expect(p.Hub.Admin.Get(t.Context(), client.ObjectKey{Name: string(workerName)}, registration)).To(gomega.Succeed())
		g.Expect(registration.Status.UnknownCopies).To(gomega.HaveLen(1))
	})
	p.decide(t, copy, "Adopt")
	job := p.submit(t) // The hub TrainJob appears after the decision.
	eventually(t, "adoption", func(g gomega.Gomega) {
		d := p.dispatch(t)
		g.Expect(d).NotTo(gomega.BeNil())
		g.Expect(d.Spec.TrainJob.UID).To(gomega.Equal(job.GetUID()))
		g.Expect(d.Spec.Cluster).To(gomega.Equal(workerName))
		g.Expect(d.Spec.Attempt).To(gomega.BeEquivalentTo(2))
	})
	eventually(t, "status of the worker", func(g gomega.Gomega) {
		registration := &v1alpha1.WorkerCluster{}
		g.Expect(p.Hub.Admin.Get(t.Context(), client.ObjectKey{Name: string(workerName)}, registration)).To(gomega.Succeed())
		g.Expect(registration.Status.UnknownCopies).To(gomega.BeEmpty())
		g.Expect(registration.Status.Conditions).To(gomega.BeEmpty())
	})
}
