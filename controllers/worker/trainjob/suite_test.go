// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/stage"
)

// waitLimit is how long a test waits for anything, on a busy machine.
const waitLimit = 60 * time.Second

// environment is one API server with the controller, shared by the tests of the package. No other controllers run: the
// tests write what JobSet's controller would write, and no garbage is collected.
//
// The controller works on one job at a time and retries only after an hour. So an event has caused whatever a test
// sees, and when the controller has handled a later event, it has handled the earlier ones (see fence).
type environment struct {
	client.Client // without a cache
	cached        client.Client
	clock         *clocktesting.FakePassiveClock
	cluster       *clusters.Cluster
}

var shared = stage.ShareWith(startEnvironment)

func TestMain(m *testing.M) { stage.Main(m, shared, sharedLife) }

// env returns the shared environment. The first test that asks for it starts it.
func env(t *testing.T) *environment {
	t.Helper()
	return shared.Get(t)
}

func startEnvironment(ctx context.Context, cleanup func(func() error)) (*environment, error) {
	server, err := stage.StartServer(ctx, cleanup, clusters.Options{Name: "trainjob"}, clusters.JobSetCRDs)
	if err != nil {
		return nil, err
	}
	e := &environment{Client: server.Admin, cluster: server.Cluster, clock: clocktesting.NewFakePassiveClock(time.Now())}
	return e, e.startController(ctx, cleanup)
}

func (e *environment) startController(ctx context.Context, cleanup func(func() error)) error {
	scheme := apiruntime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(e.cluster.Config, ctrl.Options{
		Scheme:  scheme,
		Cache:   CacheOptions(),
		Metrics: metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		return err
	}
	e.cached = mgr.GetClient()
	err = Add(ctx, mgr, Options{
		MaxConcurrentReconciles: 1,
		Clock:                   e.clock,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Hour, time.Hour),
	})
	if err != nil {
		return err
	}
	cleanup(stage.Run(mgr))
	return nil
}

var namespaces atomic.Int32

// namespace makes a namespace for one test. The cluster has upstream's torch-distributed runtime.
func (e *environment) namespace(t *testing.T) string {
	t.Helper()
	check.Must(t, e.cluster.ApplyTrainerRuntimes(t.Context(), "torch_distributed.yaml"))
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("test-%d", namespaces.Add(1))}}
	e.create(t, ns)
	return ns.Name
}

func (e *environment) create(t *testing.T, object client.Object) {
	t.Helper()
	check.Must(t, e.Create(t.Context(), object))
}

// createJob creates a TrainJob of two nodes that uses torch-distributed, changed by the given functions.
func (e *environment) createJob(t *testing.T, namespace, name string, changes ...func(*trainer.TrainJob)) *trainer.TrainJob {
	t.Helper()
	j := stage.NewTrainJob(namespace, name, changes...)
	e.create(t, j)
	return j
}

func (e *environment) get(t *testing.T, j *trainer.TrainJob) *trainer.TrainJob {
	t.Helper()
	got := &trainer.TrainJob{}
	check.Must(t, e.Get(t.Context(), client.ObjectKeyFromObject(j), got))
	return got
}

// update changes an object in the cluster. It tries again after a conflict.
func update[T client.Object](t *testing.T, e *environment, object T, change func(T)) {
	t.Helper()
	eventually(t, "update "+object.GetName(), func(g gomega.Gomega) {
		g.Expect(e.Get(t.Context(), client.ObjectKeyFromObject(object), object)).To(gomega.Succeed())
		change(object)
		g.Expect(e.Update(t.Context(), object)).To(gomega.Succeed())
	})
}

// awaitJobSet waits for a JobSet that the TrainJob controls.
func (e *environment) awaitJobSet(t *testing.T, j *trainer.TrainJob) *jobsetv1alpha2.JobSet {
	t.Helper()
	js := &jobsetv1alpha2.JobSet{}
	eventually(t, "JobSet of "+j.Name, func(g gomega.Gomega) {
		g.Expect(e.Get(t.Context(), client.ObjectKeyFromObject(j), js)).To(gomega.Succeed())
		g.Expect(metav1.IsControlledBy(js, j)).To(gomega.BeTrue(), "owners: %v", js.OwnerReferences)
	})
	return js
}

// setJobSetStatus does what JobSet's controller would do.
func (e *environment) setJobSetStatus(t *testing.T, j *trainer.TrainJob, status jobsetv1alpha2.JobSetStatus) {
	t.Helper()
	eventually(t, "status of JobSet "+j.Name, func(g gomega.Gomega) {
		js := &jobsetv1alpha2.JobSet{}
		g.Expect(e.Get(t.Context(), client.ObjectKeyFromObject(j), js)).To(gomega.Succeed())
		js.Status = status
		g.Expect(e.Status().Update(t.Context(), js)).To(gomega.Succeed())
	})
}

// fence returns when the controller has handled all earlier events. It sends a new job through all watches (TrainJob,
// JobSet) and through the queue, which keeps its order.
func (e *environment) fence(t *testing.T, namespace string) {
	t.Helper()
	j := e.createJob(t, namespace, fmt.Sprintf("fence-%d", namespaces.Add(1)))
	e.awaitJobSet(t, j)
	e.setJobSetStatus(t, j, jobSetCompleted())
	eventually(t, "fence", func(g gomega.Gomega) {
		g.Expect(hasEnded(&e.get(t, j).Status)).To(gomega.BeTrue())
	})
}

// events returns the Events of an object as "reason: note".
func (e *environment) events(t *testing.T, j *trainer.TrainJob) []string {
	t.Helper()
	var list corev1.EventList
	check.Must(t, e.List(t.Context(), &list, client.InNamespace(j.Namespace)))
	var notes []string
	for _, event := range list.Items {
		if event.InvolvedObject.UID == j.UID {
			notes = append(notes, event.Reason+": "+event.Message)
			if event.Series != nil {
				notes = append(notes, fmt.Sprintf("%s: %d times", event.Reason, event.Series.Count))
			}
		}
	}
	return notes
}

// awaitEvent waits for the only Event of a job and checks that it has the reason and contains the words.
func (e *environment) awaitEvent(t *testing.T, j *trainer.TrainJob, reason string, words ...string) {
	t.Helper()
	eventually(t, "Event "+reason, func(g gomega.Gomega) {
		g.Expect(e.events(t, j)).To(gomega.HaveLen(1))
	})
	note := e.events(t, j)[0]
	for _, part := range append([]string{reason + ": "}, words...) {
		if !strings.Contains(note, part) {
			t.Errorf("the Event does not say %q:\n%s", part, note)
		}
	}
}

func (e *environment) jobSetExists(t *testing.T, j *trainer.TrainJob) bool {
	t.Helper()
	err := e.Get(t.Context(), client.ObjectKeyFromObject(j), &jobsetv1alpha2.JobSet{})
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return err == nil
}

// awaitConditions waits until a TrainJob has exactly these conditions, in this order. Times are not compared.
func (e *environment) awaitConditions(t *testing.T, j *trainer.TrainJob, want ...metav1.Condition) {
	t.Helper()
	eventually(t, "conditions of "+j.Name, func(g gomega.Gomega) {
		g.Expect(timeless(e.get(t, j).Status.Conditions)).To(gomega.Equal(timeless(want)))
	})
}

func timeless(cs []metav1.Condition) []metav1.Condition {
	var out []metav1.Condition
	for _, c := range cs {
		c.LastTransitionTime = metav1.Time{}
		out = append(out, c)
	}
	return out
}

var eventually = check.Within(waitLimit, 20*time.Millisecond)
