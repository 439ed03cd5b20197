// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"context"
	"fmt"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/kubeflow/trainer/v2/pkg/runtime/indexer"
	trainjobutil "github.com/kubeflow/trainer/v2/pkg/util/trainjob"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/controllers/worker/trainjob/health"
)

const (
	// ControllerName is the name in logs, in metrics and as the reporting controller of Events.
	ControllerName = "trainjob"

	defaultConcurrency = 10
	// The longest delay is far below controller-runtime's 17 minutes, because a job whose objects are refused (quota, a webhook
	// that is down) has no event that tells when to try again, and because its deadline is looked at only when it is tried.
	minRetryDelay = 50 * time.Millisecond
	maxRetryDelay = 2 * time.Minute
)

// Options of the controller. The zero value is what a process with one controller needs.
type Options struct {
	// ExtendedConditions adds ResourcesCreated, Started and Stalled to a TrainJob's conditions. The Kubeflow Trainer has none of them,
	// and its Python SDK takes a job for running only while it has no condition at all.
	ExtendedConditions bool
	// Health says from when on it is trouble if a job does not get on. nil: health.DefaultLimits.
	Health *health.Limits
	// Gate says whether a TrainJob that has no JobSet may get one now and, if not, why: a sentence that is the same as long as the cause
	// is. nil: all may.
	Gate func(*trainer.TrainJob) (open bool, why string)
	// Rechecks are TrainJobs for which Gate may say something else now. nil: they come with an event of their own only.
	Rechecks source.Source
	// MaxConcurrentReconciles is how many TrainJobs are worked on at once. 0: 10.
	MaxConcurrentReconciles int
	// Clock stamps conditions and measures deadlines. nil: the real one.
	Clock clock.PassiveClock
	// RateLimiter says when to try again after an error. nil: after 50 ms to 2 min, doubling.
	RateLimiter workqueue.TypedRateLimiter[reconcile.Request]
	// SkipNameValidation allows more than one controller in a process, whose metrics then are the sum. For tests.
	SkipNameValidation bool
}

func (o *Options) setDefaults() {
	if o.Health == nil {
		o.Health = new(health.DefaultLimits())
	}
	if o.MaxConcurrentReconciles == 0 {
		o.MaxConcurrentReconciles = defaultConcurrency
	}
	if o.Gate == nil {
		o.Gate = func(*trainer.TrainJob) (bool, string) { return true, "" }
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.RateLimiter == nil {
		o.RateLimiter = workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](minRetryDelay, maxRetryDelay)
	}
}

// Add adds the controller to a manager whose scheme has AddToScheme's types and whose cache has CacheOptions. The CRDs of
// TrainJob, TrainingRuntime, ClusterTrainingRuntime and JobSet must exist when the manager starts.
func Add(ctx context.Context, mgr ctrl.Manager, opts Options) error {
	runtimes, err := NewRuntimes(ctx, mgr.GetClient(), mgr.GetFieldIndexer())
	if err != nil {
		return err
	}
	clients := Clients{Cached: mgr.GetClient(), Live: mgr.GetAPIReader()}
	r := NewReconciler(clients, mgr.GetEventRecorder(ControllerName), runtimes, opts)
	return r.Add(ctx, mgr, opts)
}

// Add registers the watches: TrainJobs, what the runtime framework builds of them, the runtimes that they may wait
// for, JobSets in their way, and their pods.
func (r *Reconciler) Add(ctx context.Context, mgr ctrl.Manager, opts Options) error {
	opts.setDefaults()
	if err := startInformers(ctx, mgr); err != nil {
		return err
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, health.JobSetIndex, health.IndexByJobSet); err != nil {
		return fmt.Errorf("index pods by JobSet: %w", err)
	}
	b := ctrl.NewControllerManagedBy(mgr).
		Named(ControllerName).
		For(&trainer.TrainJob{}, builder.WithPredicates(ours())).
		Watches(&trainer.ClusterTrainingRuntime{}, handler.EnqueueRequestsFromMapFunc(r.waitingForClusterRuntime),
			builder.WithPredicates(newSpec())).
		Watches(&trainer.TrainingRuntime{}, handler.EnqueueRequestsFromMapFunc(r.waitingForRuntime),
			builder.WithPredicates(newSpec())).
		Watches(&jobsetv1alpha2.JobSet{}, handler.EnqueueRequestsFromMapFunc(r.blockedBy), builder.WithPredicates(deletions())).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(jobOfPod), builder.WithPredicates(podChanges())).
		WithEventFilter(r.builtObjects()).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: opts.MaxConcurrentReconciles,
			RateLimiter:             opts.RateLimiter,
			SkipNameValidation:      &opts.SkipNameValidation,
			// A replica that waits for the lease has its caches full and takes over at once.
			EnableWarmup: new(true),
		})
	if opts.Rechecks != nil {
		b = b.WatchesRawSource(opts.Rechecks)
	}
	for _, runtime := range r.runtimes {
		for _, register := range runtime.EventHandlerRegistrars() {
			if register != nil {
				b = register(b, mgr.GetClient(), mgr.GetCache())
			}
		}
	}
	if err := b.Complete(r); err != nil {
		return fmt.Errorf("set up controller %s: %w", ControllerName, err)
	}
	return nil
}

// startInformers makes sure that the cache counts as synced only when all that Reconcile reads is there.
func startInformers(ctx context.Context, mgr ctrl.Manager) error {
	for _, object := range []client.Object{
		&trainer.TrainJob{}, &trainer.TrainingRuntime{}, &trainer.ClusterTrainingRuntime{},
		&jobsetv1alpha2.JobSet{}, &corev1.ConfigMap{}, &corev1.Secret{}, &corev1.Pod{},
	} {
		if _, err := mgr.GetCache().GetInformer(ctx, object); err != nil {
			return fmt.Errorf("watch %T: %w", object, err)
		}
	}
	return nil
}

// ours lets pass TrainJobs for which there can be something to do. What somebody else manages costs no queue work, and on a
// restart neither do finished jobs, except that one which failed by its deadline may still have its JobSet, and one may have a TTL.
func ours() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return !resting(e.Object.(*trainer.TrainJob)) },
		UpdateFunc: func(e event.UpdateEvent) bool { return isOurs(e.ObjectNew) },
		DeleteFunc: func(e event.DeleteEvent) bool { return isOurs(e.Object) },
	}
}

func isOurs(object client.Object) bool {
	job, ok := object.(*trainer.TrainJob)
	return ok && !trainjobutil.IsManagedByExternalController(job)
}

// newSpec lets pass runtimes that are new or have another spec.
func newSpec() predicate.Predicate {
	return predicate.And(predicate.GenerationChangedPredicate{}, predicate.Funcs{
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	})
}

func deletions() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(event.UpdateEvent) bool { return false },
	}
}

// podChanges lets pass what can be news about a job's health.
func podChanges() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		old, ok := e.ObjectOld.(*corev1.Pod)
		pod, isPod := e.ObjectNew.(*corev1.Pod)
		return ok && isPod && health.Changed(old, pod)
	}}
}

// builtObjects sees all events of all watches, and is about those of the objects that the framework makes beside the JobSet. They
// are watched so that one which was deleted or changed is made again, which is noted here. That one of them exists is no news:
// its creation was ours, and every job would be built once more for each.
func (r *Reconciler) builtObjects() predicate.Predicate {
	note := func(object client.Object) bool {
		if owner := metav1.GetControllerOfNoCopy(object); owner != nil && owner.Kind == trainer.TrainJobKind && !isJobSet(object) {
			r.memory.noteChange(types.NamespacedName{Namespace: object.GetNamespace(), Name: owner.Name})
		}
		return true
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool {
			switch e.Object.(type) {
			case *corev1.ConfigMap, *corev1.Secret:
				return false
			}
			return true
		},
		UpdateFunc: func(e event.UpdateEvent) bool { return note(e.ObjectNew) },
		DeleteFunc: func(e event.DeleteEvent) bool { return note(e.Object) },
	}
}

func isJobSet(object client.Object) bool {
	_, ok := object.(*jobsetv1alpha2.JobSet)
	return ok
}

// jobOfPod returns the TrainJob that a pod may belong to: a JobSet has its TrainJob's name.
func jobOfPod(_ context.Context, pod client.Object) []reconcile.Request {
	if key, ok := health.JobSetOf(pod); ok {
		return []reconcile.Request{{NamespacedName: key}}
	}
	return nil
}

func (r *Reconciler) waitingForClusterRuntime(ctx context.Context, runtime client.Object) []reconcile.Request {
	return r.waiting(ctx, client.MatchingFields{indexer.TrainJobClusterRuntimeRefKey: runtime.GetName()})
}

func (r *Reconciler) waitingForRuntime(ctx context.Context, runtime client.Object) []reconcile.Request {
	return r.waiting(ctx,
		client.InNamespace(runtime.GetNamespace()), client.MatchingFields{indexer.TrainJobRuntimeRefKey: runtime.GetName()})
}

// waiting returns the TrainJobs among those listed that want a JobSet and have none.
func (r *Reconciler) waiting(ctx context.Context, opts ...client.ListOption) []reconcile.Request {
	var jobs trainer.TrainJobList
	if err := r.client.List(ctx, &jobs, opts...); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "List TrainJobs that wait for a runtime")
		return nil
	}
	var requests []reconcile.Request
	for i := range jobs.Items {
		key := client.ObjectKeyFromObject(&jobs.Items[i])
		if resting(&jobs.Items[i]) {
			continue
		}
		if err := r.client.Get(ctx, key, &jobsetv1alpha2.JobSet{}); apierrors.IsNotFound(err) {
			requests = append(requests, reconcile.Request{NamespacedName: key})
		}
	}
	return requests
}

// blockedBy returns the TrainJob that may have waited for the JobSet to go. Those that a TrainJob owns have their own handler.
func (r *Reconciler) blockedBy(ctx context.Context, jobSet client.Object) []reconcile.Request {
	if owner := metav1.GetControllerOf(jobSet); owner != nil && owner.Kind == trainer.TrainJobKind && owner.Name == jobSet.GetName() {
		return nil
	}
	var job trainer.TrainJob
	key := client.ObjectKeyFromObject(jobSet)
	if err := r.client.Get(ctx, key, &job); err != nil || resting(&job) {
		return nil
	}
	return []reconcile.Request{{NamespacedName: key}}
}
