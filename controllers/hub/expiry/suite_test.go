// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry_test

import (
	"context"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/expiry"
	"github.com/trainyard/trainyard/controllers/hub/placement"
	"github.com/trainyard/trainyard/internal/hubcache"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/stage"
)

var shared = stage.Share(func(ctx context.Context, s *stage.Stage) error { return s.InstallConfig(ctx, "namespace", "rbac") })

func TestMain(m *testing.M) { shared.Main(m) }

// scene has a manager with the rights of config/rbac, and the reconciler that the test calls.
type scene struct {
	*stage.Scene
	// options are the options of the reconciler. A change by a test takes effect at the next start.
	options    expiry.Options
	reconciler *expiry.Reconciler
	// stop ends the manager.
	stop func()
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{Scene: shared.Get(t).Scene(t), stop: func() {}}
	s.start(t, false)
	return s
}

// start starts a manager in place of the one that runs. With watches it has the controller, and the real clock. Else
// the test calls the reconciler.
func (s *scene) start(t *testing.T, watches bool) {
	t.Helper()
	s.stop()
	hub, err := hubcache.New(hubcache.Options{Config: s.ManagerAccount(), PageSize: 2})
	check.Must(t, err)
	mgr := s.NewManager(t, s.ManagerAccount(), func(o *ctrl.Options) {
		o.NewClient, o.Cache.NewInformer = hub.NewClient, hub.NewInformer
		o.Cache.DefaultNamespaces = map[string]cache.Config{s.Namespace: {}}
		o.Cache.ByObject = map[client.Object]cache.ByObject{
			trainjobs.New(): {Transform: trainjobs.StripOf(v1alpha1.ManagedByMultiKueue)}, // As in cmd/manager.
		}
	})
	check.Must(t, hubcache.Fill(t.Context(), mgr.GetCache()))
	s.options.Hub, s.options.HubReader, s.options.Recorder = mgr.GetClient(), mgr.GetAPIReader(), s.Events
	s.options.ManagedBy, s.options.Clock = v1alpha1.ManagedByMultiKueue, s.Clock
	s.options.Policy = placement.Policies{Hub: mgr.GetClient()}.For
	if watches {
		s.options.Clock = clock.RealClock{}
	}
	s.reconciler = expiry.NewReconciler(s.options)
	if watches {
		check.Must(t, s.reconciler.Add(mgr))
	}
	s.stop = stage.RunFor(t, mgr)
}

// submit creates a job and its Dispatch.
func (s *scene) submit(t *testing.T, name string, change ...func(*trainer.TrainJob)) *trainer.TrainJob {
	t.Helper()
	noted := func(job *trainer.TrainJob) { job.Annotations = map[string]string{"note": "a\nb"} }
	job := s.Submit(t, name, append([]func(*trainer.TrainJob){noted}, change...)...)
	s.Place(t, job, "east", func(d *v1alpha1.Dispatch) { d.Spec.PodSets = []v1alpha1.PodSet{{Name: "node", Count: 2}} })
	return job
}

func ttl(value string) func(*trainer.TrainJob) {
	return func(job *trainer.TrainJob) {
		metav1.SetMetaDataAnnotation(&job.ObjectMeta, v1alpha1.AnnotationTTL, value)
	}
}

// finish writes what mirror writes about a job that has ended now.
func (s *scene) finish(t *testing.T, name string) {
	t.Helper()
	job, dispatch, now := s.TrainJob(t, name), s.Dispatch(t, name), metav1.NewTime(s.Clock.Now())
	meta.SetStatusCondition(&job.Status.Conditions, metav1.Condition{
		Type: trainer.TrainJobComplete, Status: metav1.ConditionTrue, Reason: "AllJobsCompleted", LastTransitionTime: now,
	})
	check.Must(t, s.Hub.Admin.Status().Update(t.Context(), job))
	dispatch.Status.Phase = v1alpha1.PhaseFinished
	dispatch.Status.History = []v1alpha1.Attempt{{Attempt: 1, Cluster: "east", To: now, Outcome: v1alpha1.OutcomeComplete}}
	s.SetCondition(t, dispatch, v1alpha1.DispatchFinished, metav1.ConditionTrue, v1alpha1.ReasonComplete)
}

func (s *scene) ended(t *testing.T, name string, change ...func(*trainer.TrainJob)) {
	t.Helper()
	s.submit(t, name, change...)
	s.finish(t, name)
}

// policy creates the scene's DispatchPolicy.
func (s *scene) policy(t *testing.T, seconds *int32) {
	t.Helper()
	s.Policy(t, v1alpha1.DispatchPolicySpec{TTLSecondsAfterFinished: seconds})
}

// reconcile calls the reconciler with caches that are up to date.
func (s *scene) reconcile(t *testing.T, name string) (reconcile.Result, error) {
	t.Helper()
	s.Settle(t, s.options.Hub)
	return s.reconciler.Reconcile(t.Context(), request(s.Key(name)))
}

// pass calls the reconciler, which must not fail, and returns when the job is to come again.
func (s *scene) pass(t *testing.T, name string) time.Duration {
	t.Helper()
	result, err := s.reconcile(t, name)
	check.Must(t, err)
	return result.RequeueAfter
}

// wantThere fails if a job is not there, or not gone.
func (s *scene) wantThere(t *testing.T, name string, want bool, why string) {
	t.Helper()
	check.Equal(t, want, stage.ReadTrainJob(t, s.Hub.Admin, s.Key(name)) != nil, "TrainJob %s is there: %s", name, why)
}

// awaitGone waits for the deletion of a job.
func (s *scene) awaitGone(t *testing.T, name string) {
	t.Helper()
	check.Eventually(t, "TrainJob "+name+" to be deleted", func(g gomega.Gomega) {
		g.Expect(stage.ReadTrainJob(t, s.Hub.Admin, s.Key(name))).To(gomega.BeNil())
	})
}

func request(key client.ObjectKey) reconcile.Request { return reconcile.Request{NamespacedName: key} }
