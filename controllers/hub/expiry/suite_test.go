// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/expiry"
	"github.com/trainyard/trainyard/controllers/hub/placement"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/stage"
)

// environment is a hub, and the manager's account with the rights of config/rbac.
type environment struct {
	hub     *stage.Server
	scheme  *runtime.Scheme
	account *rest.Config
}

var shared = stage.ShareEnvironment(newEnvironment)

func TestMain(m *testing.M) { shared.Main(m) }

func newEnvironment(ctx context.Context, set *stage.Stage) (*environment, error) {
	module, err := clusters.ModuleDir(ctx, "github.com/trainyard/trainyard")
	if err != nil {
		return nil, err
	}
	for _, part := range []string{"namespace", "rbac"} {
		if err := set.Hub.Cluster.ApplyKustomization(ctx, filepath.Join(module, "config", part)); err != nil {
			return nil, err
		}
	}
	account := rest.CopyConfig(set.Hub.Cluster.Config)
	account.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:trainyard-system:trainyard-manager",
		Groups:   []string{"system:serviceaccounts", "system:authenticated"},
	}
	return &environment{hub: set.Hub, scheme: set.Scheme, account: account}, nil
}

// scene has a namespace for one test, and the parts of a manager that sees only that namespace.
type scene struct {
	*environment
	*testing.T
	namespace string
	clock     *clocktesting.FakePassiveClock
	told      *events
	options   expiry.Options
	// reconciler is what the test calls.
	reconciler *expiry.Reconciler
	stop       func()
}

var scenes atomic.Int32

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{
		environment: shared.Get(t), T: t, namespace: fmt.Sprintf("test-%d", scenes.Add(1)), told: &events{},
		clock: clocktesting.NewFakePassiveClock(time.Now().Truncate(time.Second)), // The API has times in whole seconds.
	}
	s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}})
	s.start(false)
	t.Cleanup(func() { s.stop() })
	return s
}

// start starts a new process, with only the caches and the clock of the test, or with the controller and a real clock.
func (s *scene) start(watches bool) {
	s.Helper()
	if s.stop != nil {
		s.stop()
	}
	mgr, err := ctrl.NewManager(s.account, ctrl.Options{
		Scheme: s.scheme, Metrics: server.Options{BindAddress: "0"}, Logger: logr.Discard(),
		Cache: cache.Options{
			DefaultNamespaces: map[string]cache.Config{s.namespace: {}},
			ByObject: map[client.Object]cache.ByObject{
				trainjobs.New(): {Transform: trainjobs.StripOf(v1alpha1.ManagedByMultiKueue)},
			},
		},
		Client:     client.Options{Cache: &client.CacheOptions{Unstructured: true}},
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	check.Must(s, err)
	s.options.Hub, s.options.HubReader, s.options.Recorder = mgr.GetClient(), mgr.GetAPIReader(), s.told
	s.options.ManagedBy, s.options.Clock = v1alpha1.ManagedByMultiKueue, s.clock
	s.options.Policy = placement.Policies{Hub: mgr.GetClient()}.For
	if watches {
		s.options.Clock = clock.RealClock{}
	}
	s.reconciler = expiry.NewReconciler(s.options)
	if watches {
		check.Must(s, s.reconciler.Add(mgr))
	}
	end := stage.Run(mgr)
	s.stop = sync.OnceFunc(func() {
		if err := end(); err != nil {
			s.Error(err)
		}
	})
}

func (s *scene) create(object client.Object) {
	s.Helper()
	check.Must(s, s.hub.Admin.Create(context.Background(), object))
}

func (s *scene) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: s.namespace, Name: name}
}

// submit creates a TrainJob.
func (s *scene) submit(name string, change ...func(*trainer.TrainJob)) *trainer.TrainJob {
	s.Helper()
	job := &trainer.TrainJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name, Annotations: map[string]string{"note": "a\nb"}},
		Spec: trainer.TrainJobSpec{
			ManagedBy: new(v1alpha1.ManagedByMultiKueue), RuntimeRef: trainer.RuntimeRef{Name: "torch-distributed"},
			Trainer: &trainer.Trainer{NumNodes: new(int32(2))},
		},
	}
	for _, c := range change {
		c(job)
	}
	s.create(job)
	s.create(&v1alpha1.Dispatch{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec: v1alpha1.DispatchSpec{
			TrainJob: v1alpha1.TrainJobReference{Name: name, UID: job.UID}, Cluster: "east", Attempt: 1,
			PodSets: []v1alpha1.PodSet{{Name: "node", Count: 2}},
		},
	})
	return job
}

func ttl(value string) func(*trainer.TrainJob) {
	return func(job *trainer.TrainJob) { job.Annotations[v1alpha1.AnnotationTTL] = value }
}

// finish says of a job what mirror says when the copy is Complete.
func (s *scene) finish(name string) {
	s.Helper()
	job, dispatch := &trainer.TrainJob{}, check.Dispatch(s, s.hub.Admin, s.key(name))
	check.Must(s, s.hub.Admin.Get(s.Context(), s.key(name), job))
	now := metav1.NewTime(s.clock.Now())
	meta.SetStatusCondition(&job.Status.Conditions, metav1.Condition{
		Type: trainer.TrainJobComplete, Status: metav1.ConditionTrue, Reason: "AllJobsCompleted", LastTransitionTime: now,
	})
	check.Must(s, s.hub.Admin.Status().Update(s.Context(), job))
	dispatch.Status.Attempt = dispatch.Spec.Attempt
	dispatch.Status.History = []v1alpha1.Attempt{{Attempt: 1, Cluster: "east", To: now, Outcome: v1alpha1.OutcomeComplete}}
	meta.SetStatusCondition(&dispatch.Status.Conditions, metav1.Condition{
		Type: v1alpha1.DispatchFinished, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonComplete, LastTransitionTime: now,
	})
	check.Must(s, s.hub.Admin.Status().Update(s.Context(), dispatch))
}

// ended is a job that has just finished.
func (s *scene) ended(name string, change ...func(*trainer.TrainJob)) {
	s.Helper()
	s.submit(name, change...)
	s.finish(name)
}

// policy creates a policy for the jobs of the scene, until the test ends. seconds nil: without a TTL.
func (s *scene) policy(seconds *int32) *v1alpha1.DispatchPolicy {
	s.Helper()
	policy := &v1alpha1.DispatchPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace},
		Spec: v1alpha1.DispatchPolicySpec{
			Jobs: v1alpha1.JobSelector{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.namespace}},
			},
			TTLSecondsAfterFinished: seconds,
		},
	}
	s.create(policy)
	s.Cleanup(func() { check.Must(s, client.IgnoreNotFound(s.hub.Admin.Delete(context.Background(), policy))) })
	return policy
}

// reconcile reconciles a job when the caches are up to date.
func (s *scene) reconcile(name string) (reconcile.Result, error) {
	s.Helper()
	s.sync()
	return s.reconciler.Reconcile(s.Context(), reconcile.Request{NamespacedName: s.key(name)})
}

// pass reconciles without an error, and returns after how long the job is looked at again.
func (s *scene) pass(name string) time.Duration {
	s.Helper()
	result, err := s.reconcile(name)
	check.Must(s, err)
	return result.RequeueAfter
}

// sync waits until the caches show what the API server has.
func (s *scene) sync() {
	s.Helper()
	versions := func(from client.Reader, list client.ObjectList, options ...client.ListOption) []string {
		var all []string
		check.Must(s, from.List(s.Context(), list, options...))
		check.Must(s, meta.EachListItem(list, func(object runtime.Object) error {
			all = append(all, object.(client.Object).GetName()+" "+object.(client.Object).GetResourceVersion())
			return nil
		}))
		slices.Sort(all)
		return all
	}
	check.Eventually(s, "the caches to show everything", func(g gomega.Gomega) {
		for _, list := range []func() client.ObjectList{
			func() client.ObjectList { return trainjobs.NewList() },
			func() client.ObjectList { return &v1alpha1.DispatchList{} },
		} {
			in := client.InNamespace(s.namespace)
			g.Expect(versions(s.options.Hub, list(), in)).To(gomega.Equal(versions(s.hub.Admin, list(), in)))
		}
		g.Expect(versions(s.options.Hub, &v1alpha1.DispatchPolicyList{})).
			To(gomega.Equal(versions(s.hub.Admin, &v1alpha1.DispatchPolicyList{})))
	})
}

// wantThere fails if a job is not there, or not gone.
func (s *scene) wantThere(name string, want bool, why string) {
	s.Helper()
	if got := check.TrainJob(s, s.hub.Admin, s.key(name)) != nil; got != want {
		s.Errorf("TrainJob %s is there: %t, want %t: %s", name, got, want, why)
	}
}

// awaitGone waits for the deletion of a job.
func (s *scene) awaitGone(name string) {
	s.Helper()
	check.Eventually(s, "TrainJob "+name+" to be deleted", func(g gomega.Gomega) {
		g.Expect(check.TrainJob(s, s.hub.Admin, s.key(name))).To(gomega.BeNil())
	})
}

// events collects Events as "name reason: note".
type events struct {
	mu  sync.Mutex
	all []string
}

// Eventf implements events.EventRecorder.
func (e *events) Eventf(regarding, _ runtime.Object, _, reason, _, note string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	name := regarding.(client.Object).GetName()
	e.all = append(e.all, fmt.Sprintf("%s %s: %s", name, reason, fmt.Sprintf(note, args...)))
}

// about returns the Events about a job.
func (e *events) about(name string) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(e.all), func(event string) bool { return !strings.HasPrefix(event, name+" ") })
}

func request(key client.ObjectKey) reconcile.Request { return reconcile.Request{NamespacedName: key} }
