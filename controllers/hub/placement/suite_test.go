// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/stage"
)

const (
	// Both workers have two nodes with eight GPUs each. The nodes of west also have a nic.
	east, west = v1alpha1.ClusterName("east"), v1alpha1.ClusterName("west")
	gpu        = corev1.ResourceName("nvidia.com/gpu")
	nic        = corev1.ResourceName("example.com/nic")
	// patience is for things that are quick, on a machine that may be busy.
	patience = 60 * time.Second
)

// environment is a hub and two workers without controllers, and the connections to the workers.
type environment struct {
	hub     client.Client // the admin's, without a cache
	server  *clusters.Cluster
	config  *rest.Config // of the hub's admin
	scheme  *runtime.Scheme
	workers map[v1alpha1.ClusterName]client.Client
	servers map[v1alpha1.ClusterName]*stage.Server
	fleet   *remote.Fleet
}

var shared = stage.ShareEnvironment(newEnvironment, string(east), string(west))

func TestMain(m *testing.M) { shared.Main(m) }

func newEnvironment(ctx context.Context, set *stage.Stage) (*environment, error) {
	if err := set.Hub.InstallRuntime(ctx); err != nil {
		return nil, err
	}
	fleetCtx, end := context.WithCancel(context.Background())
	fleet, err := remote.NewFleet(fleetCtx, remote.Options{HubID: "hub-1", ProbeInterval: time.Second})
	if err != nil {
		end()
		return nil, err
	}
	set.Cleanup(func() error {
		end()
		fleet.Wait()
		return nil
	})
	e := &environment{hub: set.Hub.Admin, server: set.Hub.Cluster, config: set.Hub.Cluster.Config, scheme: set.Scheme, workers: map[v1alpha1.ClusterName]client.Client{}, fleet: fleet,
		servers: map[v1alpha1.ClusterName]*stage.Server{}}
	for _, worker := range set.Workers {
		if err := e.addWorker(ctx, worker); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// addWorker makes nodes on a worker, connects to it, and registers it on the hub as one that is Ready.
func (e *environment) addWorker(ctx context.Context, server *stage.Server) error {
	name, admin := v1alpha1.ClusterName(server.Cluster.Name), server.Admin
	e.workers[name], e.servers[name] = admin, server
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("96"), corev1.ResourceMemory: resource.MustParse("1Ti"),
		corev1.ResourcePods: resource.MustParse("110"), gpu: resource.MustParse("8"),
	}
	if name == west {
		capacity[nic] = resource.MustParse("8")
	}
	for i := range 2 {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", i)}}
		if err := admin.Create(ctx, node); err != nil {
			return err
		}
		node.Status.Capacity, node.Status.Allocatable = capacity, capacity
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		if err := admin.Status().Update(ctx, node); err != nil {
			return err
		}
	}
	e.fleet.Ensure(name, remote.Credentials{Config: server.Cluster.Config, Fingerprint: "admin"}, server.ID)
	worker := &v1alpha1.WorkerCluster{
		ObjectMeta: metav1.ObjectMeta{Name: server.Cluster.Name, Labels: map[string]string{"region": server.Cluster.Name}},
		Spec:       v1alpha1.WorkerClusterSpec{Connection: v1alpha1.Connection{KubeconfigPath: server.Cluster.KubeconfigPath}},
	}
	if err := e.hub.Create(ctx, worker); err != nil {
		return err
	}
	meta.SetStatusCondition(&worker.Status.Conditions, metav1.Condition{
		Type: v1alpha1.WorkerClusterReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonConnected,
	})
	return e.hub.Status().Update(ctx, worker)
}

// scene is a namespace for one test, and the reconciler that it calls. A reconciler knows only the Dispatches that it
// wrote and the Dispatches that the test tells it, so tests do not see the Dispatches of other tests.
type scene struct {
	*environment
	namespace  string
	clock      *clocktesting.FakeClock
	events     *events.FakeRecorder
	reconciler *Reconciler
	// woken has the jobs that the reconciler is to look at.
	woken requestQueue
	// unknown, kueue, trials and shown are options of the reconcilers that are made from then on.
	unknown UnknownCopies
	kueue   Kueue
	trials  Trials
	shown   func(v1alpha1.ClusterName) bool
}

var namespaces atomic.Int32

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{
		environment: shared.Get(t),
		namespace:   fmt.Sprintf("test-%d", namespaces.Add(1)),
		clock:       clocktesting.NewFakeClock(time.Now().Truncate(time.Second)), // The API has whole seconds.
		events:      events.NewFakeRecorder(1000),
	}
	for _, c := range []client.Client{s.hub, s.workers[east], s.workers[west]} {
		check.Must(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}))
	}
	s.awaitUsed(t, 0)
	s.restart(t)
	return s
}

// restart is a new process. It sees the test's Dispatches, and knows what all waiting jobs need, before it decides
// anything, as the manager's start makes sure.
func (s *scene) restart(t *testing.T) {
	t.Helper()
	var err error
	s.reconciler, err = NewReconciler(t.Context(), Options{
		Hub: s.hub, HubReader: s.hub, ManagedBy: v1alpha1.ManagedByMultiKueue, Connections: s.fleet, Recorder: s.events, Clock: s.clock,
		UnknownCopies: s.unknown, Shown: s.shown, Kueue: s.kueue, Trials: s.trials,
	})
	check.Must(t, err)
	var dispatches v1alpha1.DispatchList
	check.Must(t, s.hub.List(t.Context(), &dispatches, client.InNamespace(s.namespace)))
	for i := range dispatches.Items {
		s.tell(&dispatches.Items[i])
	}
	s.woken = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(s.woken.ShutDown)
	check.Must(t, s.reconciler.inbox.Source().Start(t.Context(), s.woken))
	check.Must(t, s.reconciler.expectUnplaced(t.Context(), client.InNamespace(s.namespace)))
	for key := range s.drain() {
		s.reconcile(t, key.Name)
	}
}

// drain returns the jobs that have been woken.
func (s *scene) drain() map[types.NamespacedName]bool {
	keys := map[types.NamespacedName]bool{}
	for s.woken.Len() > 0 {
		request, _ := s.woken.Get()
		s.woken.Done(request)
		keys[request.NamespacedName] = true
	}
	return keys
}

// tell brings an event of the hub's Dispatches to the reconciler, as its watch does.
func (s *scene) tell(d *v1alpha1.Dispatch) {
	s.reconciler.watches.dispatches().Create(context.Background(), event.CreateEvent{Object: d}, nil)
}

// lose brings the deletion of a Dispatch to the reconciler.
func (s *scene) lose(d *v1alpha1.Dispatch) {
	s.reconciler.watches.dispatches().Delete(context.Background(), event.DeleteEvent{Object: d}, nil)
}

// job reads a TrainJob.
func (s *scene) job(t *testing.T, name string) *trainer.TrainJob {
	t.Helper()
	job := &trainer.TrainJob{}
	check.Must(t, s.hub.Get(t.Context(), client.ObjectKey{Namespace: s.namespace, Name: name}, job))
	return job
}

// submit creates a TrainJob of two pods with four GPUs each, which is half of a worker, changed by the given functions.
func (s *scene) submit(t *testing.T, name string, changes ...func(*trainer.TrainJob)) {
	t.Helper()
	requests := corev1.ResourceList{gpu: resource.MustParse("4")}
	job := &trainer.TrainJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec: trainer.TrainJobSpec{
			ManagedBy:  new(v1alpha1.ManagedByMultiKueue),
			RuntimeRef: trainer.RuntimeRef{Name: "torch-distributed"},
			Trainer: &trainer.Trainer{
				NumNodes: new(int32(2)), ResourcesPerNode: &corev1.ResourceRequirements{Requests: requests, Limits: requests},
			},
		},
	}
	for _, change := range changes {
		change(job)
	}
	check.Must(t, s.hub.Create(t.Context(), job))
}

// turn reconciles a job as a manager does. Something may have changed, so the decider does a pass, and the job is
// looked at again if the pass wakes it.
func (s *scene) turn(t *testing.T, name string) (reconcile.Result, error) {
	t.Helper()
	key := client.ObjectKey{Namespace: s.namespace, Name: name}
	s.drain()
	s.reconciler.decider.Changed()
	result, err := s.visit(t, key)
	check.Must(t, s.reconciler.decider.Pass(t.Context()))
	if s.drain()[key] && err == nil {
		return s.visit(t, key)
	}
	return result, err
}

// visit reconciles a job while the decider does a pass whenever something changes.
func (s *scene) visit(t *testing.T, key client.ObjectKey) (reconcile.Result, error) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.reconciler.decider.Run(ctx) }()
	result, err := s.reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
	stop()
	check.Must(t, <-ended)
	return result, err
}

// reconcile reconciles a job, without an error, and returns its Dispatch, nil if there is none.
func (s *scene) reconcile(t *testing.T, name string) (*v1alpha1.Dispatch, reconcile.Result) {
	t.Helper()
	key := client.ObjectKey{Namespace: s.namespace, Name: name}
	result, err := s.turn(t, name)
	check.Must(t, err)
	d := &v1alpha1.Dispatch{}
	if err := s.hub.Get(t.Context(), key, d); err != nil {
		check.Must(t, client.IgnoreNotFound(err))
		return nil, result
	}
	return d, result
}

// report writes a Dispatch's status as mirror would, and brings the event to the reconciler.
func (s *scene) report(t *testing.T, d *v1alpha1.Dispatch, condition string, value metav1.ConditionStatus, outcome v1alpha1.Outcome) {
	t.Helper()
	meta.SetStatusCondition(&d.Status.Conditions, metav1.Condition{Type: condition, Status: value, Reason: string(outcome)})
	d.Status.Cluster, d.Status.Attempt = d.Spec.Cluster, d.Spec.Attempt
	d.Status.History = append(d.Status.History, v1alpha1.Attempt{
		Attempt: d.Spec.Attempt, Cluster: d.Spec.Cluster, To: metav1.NewTime(s.clock.Now()), Outcome: outcome, Message: "by hand",
	})
	if condition == v1alpha1.DispatchMirrored {
		refusal := v1alpha1.Refusal{Cluster: d.Spec.Cluster, Outcome: outcome, Count: 1, Last: metav1.NewTime(s.clock.Now())}
		at := slices.IndexFunc(d.Status.Refusals, func(r v1alpha1.Refusal) bool { return r.Cluster == refusal.Cluster })
		if at < 0 {
			d.Status.Refusals = append(d.Status.Refusals, refusal)
		} else {
			refusal.Count += d.Status.Refusals[at].Count
			d.Status.Refusals[at] = refusal
		}
	}
	check.Must(t, s.hub.Status().Update(t.Context(), d))
	s.tell(d)
}

// bind creates the pods of a job on its worker, on the nodes by turns, and returns when the connection has seen them.
func (s *scene) bind(t *testing.T, d *v1alpha1.Dispatch) {
	t.Helper()
	for _, podSet := range d.Spec.PodSets {
		for i := range podSet.Count {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: d.Namespace, Name: fmt.Sprintf("%s-%s-%d", d.Name, podSet.Name, i),
					Labels: map[string]string{jobsetv1alpha2.JobSetNameKey: d.Name, jobsetv1alpha2.ReplicatedJobNameKey: podSet.Name},
				},
				Spec: corev1.PodSpec{NodeName: fmt.Sprintf("node-%d", i%2), Containers: []corev1.Container{{
					Name: "node", Image: "none", Resources: corev1.ResourceRequirements{Requests: podSet.Requests, Limits: podSet.Requests},
				}}},
			}
			admin := s.workers[d.Spec.Cluster]
			check.Must(t, admin.Create(t.Context(), pod))
			t.Cleanup(func() {
				check.Must(t, client.IgnoreNotFound(admin.Delete(context.Background(), pod, client.GracePeriodSeconds(0))))
			})
		}
	}
}

// awaitUsed waits until the connections have seen pods with so many GPUs in all.
func (s *scene) awaitUsed(t *testing.T, want int64) {
	t.Helper()
	gomega.NewWithT(t).Eventually(func() string {
		used := int64(0)
		for _, name := range []v1alpha1.ClusterName{east, west} {
			cluster, _ := s.fleet.Get(name)
			if status := cluster.Status(); status.State != remote.Connected {
				return status.State.String() + ": " + status.Message
			}
			for _, node := range cluster.Inventory().Snapshot().Nodes {
				used += node.Used[gpu]
			}
		}
		return fmt.Sprint(used)
	}, patience, 10*time.Millisecond).Should(gomega.Equal(fmt.Sprint(want)), "GPUs used on both workers")
}

func list(pairs ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}
