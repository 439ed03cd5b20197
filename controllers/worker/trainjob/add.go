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

	"github.com/trainyard/trainyard/internal/health"
)

const (
	// ControllerName is the controller's name in logs and metrics, and the reporting controller of its Events.
	ControllerName = "trainjob"

	defaultConcurrency = 10
	// maxRetryDelay is far below controller-runtime's 17 minutes. If the API server refuses objects (quota, a webhook that
	// is down), no event says when to retry. The controller also checks the job's deadline only when it retries.
	minRetryDelay = 50 * time.Millisecond
	maxRetryDelay = 2 * time.Minute
)

// Options configures the controller. A process with one controller can use the zero value.
type Options struct {
	// ExtendedConditions adds the conditions ResourcesCreated, Started and Stalled to TrainJobs. The Kubeflow Trainer has
	// none of them, and its Python SDK treats a job as running only while the job has no condition at all.
	ExtendedConditions bool
	// Health says after what time missing progress counts as trouble. nil: health.DefaultLimits.
	Health *health.Limits
	// Gate says whether a TrainJob without a JobSet may get one now. why changes only with the cause. nil: it may.
	Gate func(*trainer.TrainJob) (open bool, why string)
	// Rechecks sends TrainJobs whose Gate may have changed. nil: the controller checks Gate only at other events.
	Rechecks source.Source
	// Started is called when a step of a TrainJob has begun for the first time since the job's creation or last resumption,
	// if this process has seen the job wait. It must not change the objects. nil: nothing is called.
	Started func(ctx context.Context, job *trainer.TrainJob, jobSet *jobsetv1alpha2.JobSet)
	// MaxConcurrentReconciles is how many TrainJobs the controller handles at once. 0: 10.
	MaxConcurrentReconciles int
	// Clock stamps conditions and measures deadlines. nil: the real clock.
	Clock clock.PassiveClock
	// RateLimiter says when to retry after an error. nil: after 50 ms, doubling up to 2 min.
	RateLimiter workqueue.TypedRateLimiter[reconcile.Request]
	// SkipNameValidation allows several controllers in one process, for tests. Their metrics are sums.
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
	if o.Started == nil {
		o.Started = func(context.Context, *trainer.TrainJob, *jobsetv1alpha2.JobSet) {}
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.RateLimiter == nil {
		o.RateLimiter = workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](minRetryDelay, maxRetryDelay)
	}
}

// Add adds the controller to a manager that has AddToScheme's types in its scheme and CacheOptions in its cache. The
// CRDs of TrainJob, TrainingRuntime, ClusterTrainingRuntime and JobSet must exist when the manager starts.
func Add(ctx context.Context, mgr ctrl.Manager, opts Options) error {
	runtimes, err := NewRuntimes(ctx, mgr.GetClient(), mgr.GetFieldIndexer())
	if err != nil {
		return err
	}
	opts.setDefaults()
	clients := Clients{Cached: mgr.GetClient(), Live: mgr.GetAPIReader()}
	return newReconciler(clients, mgr.GetEventRecorder(ControllerName), runtimes, opts).watch(ctx, mgr, opts)
}

// watch registers the watches: TrainJobs, the objects that the framework builds for them, the runtimes that they may wait
// for, JobSets of other owners that have their names, and their pods.
func (r *Reconciler) watch(ctx context.Context, mgr ctrl.Manager, opts Options) error {
	if err := startInformers(ctx, mgr); err != nil {
		return err
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, health.JobSetIndex, health.IndexByJobSet); err != nil {
		return fmt.Errorf("index pods by JobSet: %w", err)
	}
	mapper := eventMapper{cached: r.clients.Cached}
	b := ctrl.NewControllerManagedBy(mgr).
		Named(ControllerName).
		For(&trainer.TrainJob{}, builder.WithPredicates(ours())).
		Watches(&trainer.ClusterTrainingRuntime{}, handler.EnqueueRequestsFromMapFunc(mapper.waitingForClusterRuntime),
			builder.WithPredicates(newSpec())).
		Watches(&trainer.TrainingRuntime{}, handler.EnqueueRequestsFromMapFunc(mapper.waitingForRuntime),
			builder.WithPredicates(newSpec())).
		Watches(&jobsetv1alpha2.JobSet{}, handler.EnqueueRequestsFromMapFunc(mapper.blockedBy), builder.WithPredicates(deletions())).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(jobOfPod), builder.WithPredicates(podChanges())).
		WithEventFilter(builtObjects(r.known)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: opts.MaxConcurrentReconciles,
			RateLimiter:             opts.RateLimiter,
			SkipNameValidation:      &opts.SkipNameValidation,
			// A replica that waits for the lease fills its caches, so that it takes over at once.
			EnableWarmup: new(true),
		})
	if opts.Rechecks != nil {
		b = b.WatchesRawSource(opts.Rechecks)
	}
	if err := r.framework.watch(b, mgr).Complete(r); err != nil {
		return fmt.Errorf("set up controller %s: %w", ControllerName, err)
	}
	return nil
}

// startInformers makes sure that the cache counts as synced only when it has all that Reconcile reads.
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

// ours passes events of TrainJobs that may need work. It drops TrainJobs that another controller manages and, on a
// restart, finished jobs, unless the job failed by its deadline (its JobSet may still exist) or has a TTL.
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

// newSpec passes runtimes that are new or whose spec has changed.
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

// podChanges passes pod events that can change the health of a job.
func podChanges() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		old, ok := e.ObjectOld.(*corev1.Pod)
		pod, isPod := e.ObjectNew.(*corev1.Pod)
		return ok && isPod && health.Changed(old, pod)
	}}
}

// builtObjects sees the events of all watches. It handles the objects that the framework makes besides the JobSet: it
// notes a change or deletion of such an object, and the next pass builds the object again. It drops creations, which
// are the controller's own: each would cause one more build of its job.
func builtObjects(known *knownJobs) predicate.Predicate {
	note := func(object client.Object) bool {
		if owner := metav1.GetControllerOfNoCopy(object); owner != nil && owner.Kind == trainer.TrainJobKind && !isJobSet(object) {
			known.noteChange(types.NamespacedName{Namespace: object.GetNamespace(), Name: owner.Name})
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

// jobOfPod returns the TrainJob that a pod may belong to. A JobSet has the name of its TrainJob.
func jobOfPod(_ context.Context, pod client.Object) []reconcile.Request {
	if key, ok := health.JobSetOf(pod); ok {
		return []reconcile.Request{{NamespacedName: key}}
	}
	return nil
}

// eventMapper finds the TrainJobs that may go on after an event of another object.
type eventMapper struct {
	cached client.Reader
}

func (m eventMapper) waitingForClusterRuntime(ctx context.Context, runtime client.Object) []reconcile.Request {
	return m.waiting(ctx, client.MatchingFields{indexer.TrainJobClusterRuntimeRefKey: runtime.GetName()})
}

func (m eventMapper) waitingForRuntime(ctx context.Context, runtime client.Object) []reconcile.Request {
	return m.waiting(ctx,
		client.InNamespace(runtime.GetNamespace()), client.MatchingFields{indexer.TrainJobRuntimeRefKey: runtime.GetName()})
}

// waiting returns the listed TrainJobs that want a JobSet and have none.
func (m eventMapper) waiting(ctx context.Context, opts ...client.ListOption) []reconcile.Request {
	var jobs trainer.TrainJobList
	if err := m.cached.List(ctx, &jobs, opts...); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "List TrainJobs that wait for a runtime")
		return nil
	}
	var requests []reconcile.Request
	for i := range jobs.Items {
		key := client.ObjectKeyFromObject(&jobs.Items[i])
		if resting(&jobs.Items[i]) {
			continue
		}
		if err := m.cached.Get(ctx, key, &jobsetv1alpha2.JobSet{}); apierrors.IsNotFound(err) {
			requests = append(requests, reconcile.Request{NamespacedName: key})
		}
	}
	return requests
}

// blockedBy returns the TrainJob that may wait for the deletion of the JobSet. Owned JobSets have their own handler.
func (m eventMapper) blockedBy(ctx context.Context, jobSet client.Object) []reconcile.Request {
	if owner := metav1.GetControllerOf(jobSet); owner != nil && owner.Kind == trainer.TrainJobKind && owner.Name == jobSet.GetName() {
		return nil
	}
	var job trainer.TrainJob
	key := client.ObjectKeyFromObject(jobSet)
	if err := m.cached.Get(ctx, key, &job); err != nil || resting(&job) {
		return nil
	}
	return []reconcile.Request{{NamespacedName: key}}
}
