// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/stage"
)

// Both workers have two nodes with eight GPUs each. The nodes of west also have a nic.
const (
	east, west = v1alpha1.ClusterName("east"), v1alpha1.ClusterName("west")
	gpu        = stage.GPU
	nic        = corev1.ResourceName("example.com/nic")
)

var shared = stage.Share(func(ctx context.Context, s *stage.Stage) error {
	return errors.Join(s.Hub.InstallRuntime(ctx), s.Worker(east).AddNodes(ctx, nil), s.Worker(west).AddNodes(ctx, list(string(nic), "8")),
		s.Connect(remote.Options{}), s.Register(ctx))
}, string(east), string(west))

func TestMain(m *testing.M) { shared.Main(m) }

// scene has the reconciler that a test calls. A reconciler knows only the Dispatches that it wrote and the Dispatches
// that the test tells it, so tests do not see the Dispatches of other tests.
type scene struct {
	*stage.Scene
	reconciler *Reconciler
	// woken has the jobs that the reconciler is to look at.
	woken requestQueue
	// unknown, kueue, trials, runtimes and shown are options of the reconcilers that are made from then on.
	unknown  UnknownCopies
	kueue    Kueue
	trials   Trials
	runtimes Runtimes
	shown    func(v1alpha1.ClusterName) bool
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{Scene: shared.Get(t).Scene(t)}
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
		Hub: s.Hub.Admin, HubReader: s.Hub.Admin, ManagedBy: v1alpha1.ManagedByMultiKueue, Connections: s.Fleet, Recorder: s.Events, Clock: s.Clock,
		UnknownCopies: s.unknown, Shown: s.shown, Kueue: s.kueue, Trials: s.trials, Runtimes: s.runtimes,
	})
	check.Must(t, err)
	var dispatches v1alpha1.DispatchList
	check.Must(t, s.Hub.Admin.List(t.Context(), &dispatches, client.InNamespace(s.Namespace)))
	for i := range dispatches.Items {
		s.tell(&dispatches.Items[i])
	}
	s.woken = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(s.woken.ShutDown)
	check.Must(t, s.reconciler.inbox.Source().Start(t.Context(), s.woken))
	check.Must(t, s.reconciler.expectUnplaced(t.Context(), client.InNamespace(s.Namespace)))
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

// turn reconciles a job as a manager does. Something may have changed, so the decider does a pass, and the job is
// looked at again if the pass wakes it.
func (s *scene) turn(t *testing.T, name string) (reconcile.Result, error) {
	t.Helper()
	key := s.Key(name)
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
	result, err := s.turn(t, name)
	check.Must(t, err)
	return s.Dispatch(t, name), result
}

// report writes a Dispatch's status as mirror would, and brings the event to the reconciler.
func (s *scene) report(t *testing.T, d *v1alpha1.Dispatch, condition string, value metav1.ConditionStatus, outcome v1alpha1.Outcome) {
	t.Helper()
	meta.SetStatusCondition(&d.Status.Conditions, metav1.Condition{Type: condition, Status: value, Reason: string(outcome)})
	d.Status.Cluster, d.Status.Attempt = d.Spec.Cluster, d.Spec.Attempt
	d.Status.History = append(d.Status.History, v1alpha1.Attempt{
		Attempt: d.Spec.Attempt, Cluster: d.Spec.Cluster, To: metav1.NewTime(s.Clock.Now()), Outcome: outcome, Message: "by hand",
	})
	if condition == v1alpha1.DispatchMirrored {
		refusal := v1alpha1.Refusal{Cluster: d.Spec.Cluster, Outcome: outcome, Count: 1, Last: metav1.NewTime(s.Clock.Now())}
		if outcome == v1alpha1.OutcomeAdmissionTimeout {
			refusal.Domain = d.Spec.Domain
		}
		at := slices.IndexFunc(d.Status.Refusals, func(r v1alpha1.Refusal) bool { return r.Cluster == refusal.Cluster })
		if at < 0 {
			d.Status.Refusals = append(d.Status.Refusals, refusal)
		} else {
			refusal.Count += d.Status.Refusals[at].Count
			d.Status.Refusals[at] = refusal
		}
	}
	check.Must(t, s.Hub.Admin.Status().Update(t.Context(), d))
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
				Spec: corev1.PodSpec{NodeName: fmt.Sprintf("node-%d", i%2), HostNetwork: len(podSet.HostPorts) > 0, Containers: []corev1.Container{{
					Name: "node", Image: "none", Resources: corev1.ResourceRequirements{Requests: podSet.Requests, Limits: podSet.Requests},
				}}},
			}
			for _, port := range podSet.HostPorts { // The API server makes host ports of them.
				pod.Spec.Containers[0].Ports = append(pod.Spec.Containers[0].Ports, corev1.ContainerPort{ContainerPort: port.Port, Protocol: port.Protocol})
			}
			s.Worker(d.Spec.Cluster).Create(t, pod)
		}
	}
}

// awaitUsed waits until the connections have seen pods with so many GPUs in all.
func (s *scene) awaitUsed(t *testing.T, want int64) {
	t.Helper()
	gomega.NewWithT(t).Eventually(func() string {
		used := int64(0)
		for _, worker := range s.Workers {
			cluster := worker.Connection
			if status := cluster.Status(); status.State != remote.Connected {
				return status.State.String() + ": " + status.Message
			}
			for _, node := range cluster.Inventory().Snapshot().Nodes {
				used += node.Used[gpu]
			}
		}
		return fmt.Sprint(used)
	}, check.Patience, 10*time.Millisecond).Should(gomega.Equal(fmt.Sprint(want)), "GPUs used on both workers")
}

func list(pairs ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}
