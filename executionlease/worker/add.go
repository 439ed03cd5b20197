// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"fmt"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/internal/inbox"
)

const (
	// LeaseName is the Lease that elects the leader among the replicas.
	LeaseName = "fencing.trainyard.dev"

	fieldOwner = client.FieldOwner("trainyard-fencing")
	podIndex   = "trainyard.dev/fencing-jobset"
	// requestTimeout bounds each request. A request that is interrupted is sent again.
	requestTimeout = 5 * time.Second
	minRetryDelay  = 50 * time.Millisecond
	maxRetryDelay  = 2 * time.Second
	// concurrency is how many copies the agent stops at the same time.
	concurrency = 16
)

// Options configure fencing.
type Options struct {
	// Identity names this process. No other process has the same name.
	Identity string
	// Election elects the replica that writes. nil: this process always leads.
	Election *Election
	// Clock measures deadlines. Its times must be monotonic. nil: the real clock.
	Clock clock.WithDelayedExecution
	// CRDInterval is how often to look for the CRD while it is missing. 0: 30 s.
	CRDInterval time.Duration
	// SkipNameValidation allows several fencers in one process. It is for tests.
	SkipNameValidation bool
}

func (o *Options) setDefaults() {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.CRDInterval == 0 {
		o.CRDInterval = 30 * time.Second
	}
}

// Fencer answers Gate for the TrainJob controller of this process.
type Fencer struct {
	tracker *tracker
	waiting *inbox.Inbox
}

// Add adds fencing to a manager whose scheme has TrainJobs, JobSets and Trainyard's types. The manager's cache needs
// only the pods of JobSets, and only the fields of them that package health keeps.
func Add(ctx context.Context, mgr ctrl.Manager, opts Options) (*Fencer, error) {
	opts.setDefaults()
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, podIndex, jobSetOf); err != nil {
		return nil, fmt.Errorf("index pods by JobSet: %w", err)
	}
	waiting, stops, leases := &inbox.Inbox{}, &inbox.Inbox{}, &inbox.Inbox{}
	recorder := mgr.GetEventRecorder("fencing")
	tracker, copies := newFencing(opts.Clock, inboxes{waiting: waiting, stops: stops, leases: leases}, mgr.GetClient(), recorder)
	fencer := &Fencer{tracker: tracker, waiting: waiting}

	shown.Store(tracker)
	seen, err := tracker.watchCopies(ctx, mgr.GetCache())
	if err != nil {
		return nil, err
	}
	if err := copies.setUp(mgr, stops, opts); err != nil {
		return nil, fmt.Errorf("set up controller of fenced copies: %w", err)
	}
	elector := &elector{
		Options: opts, tracker: tracker, inbox: leases, seen: seen, config: mgr.GetConfig(), http: mgr.GetHTTPClient(),
		recorder: recorder, cached: mgr.GetClient(), live: mgr.GetAPIReader(), mapper: mgr.GetRESTMapper(),
		scheme: mgr.GetScheme(),
		log:    mgr.GetLogger().WithName("fencing"),
	}
	if err := mgr.Add(elector); err != nil {
		return nil, fmt.Errorf("add elector of execution leases: %w", err)
	}
	return fencer, nil
}

// newFencing returns the tracker, and the reconciler that stops copies.
func newFencing(
	clock clock.WithDelayedExecution, in inboxes, client client.Client, recorder events.EventRecorder,
) (*tracker, *copies) {
	t := newTracker(clock, in)
	return t, &copies{tracker: t, alarms: newAlarms(clock, in.stops), client: client, recorder: recorder, clock: clock}
}

// Rechecks brings the TrainJobs for which Gate was shut and may be open now.
func (f *Fencer) Rechecks() source.Source { return f.waiting.Source() }

func (c *copies) setUp(mgr ctrl.Manager, stops *inbox.Inbox, opts Options) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("fencing-copies").
		For(&trainer.TrainJob{}, builder.WithPredicates(news())).
		WatchesRawSource(stops.Source()).
		WithOptions(controller.Options{
			NeedLeaderElection:      new(false),
			MaxConcurrentReconciles: concurrency,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](minRetryDelay, maxRetryDelay),
			SkipNameValidation:      &opts.SkipNameValidation,
		}).
		Complete(c)
}

// news selects the events that can change a decision about a copy.
func news() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return isFenceable(e.Object.(*trainer.TrainJob)) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, after := e.ObjectOld.(*trainer.TrainJob), e.ObjectNew.(*trainer.TrainJob)
			if !isFenceable(after) {
				return false
			}
			return !isFenceable(before) || originOf(before) != originOf(after) || differ(before, after)
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}

// watchCopies shows all copies to the tracker. The function seen says whether the tracker has seen the copies of the
// first list.
func (t *tracker) watchCopies(ctx context.Context, copies cache.Cache) (seen func() bool, err error) {
	informer, err := copies.GetInformer(ctx, &trainer.TrainJob{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watch TrainJobs: %w", err)
	}
	registration, err := informer.AddEventHandler(t.watcher())
	if err != nil {
		return nil, fmt.Errorf("watch TrainJobs: %w", err)
	}
	return registration.HasSynced, nil
}

// watcher tells the tracker of each version of a copy that the watch shows, in order.
func (t *tracker) watcher() toolscache.ResourceEventHandler {
	see := func(object any) {
		if job := object.(*trainer.TrainJob); isCopy(job) {
			t.see(job)
		}
	}
	gone := func(object any) {
		if last, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
			object = last.Obj
		}
		if job, ok := object.(*trainer.TrainJob); ok && isCopy(job) {
			t.gone(job)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: see,
		UpdateFunc: func(before, after any) {
			last, next := before.(*trainer.TrainJob), after.(*trainer.TrainJob)
			if last.UID != next.UID { // The watch did not show the deletion.
				gone(last)
			} else if originOf(last) != originOf(next) { // The copy belongs to another job now, or is no copy.
				gone(last)
			}
			see(next)
		},
		DeleteFunc: gone,
	}
}

// jobSetOf indexes pods by the name of their JobSet, which has the name of its TrainJob.
func jobSetOf(pod client.Object) []string {
	if name := pod.GetLabels()[jobsetv1alpha2.JobSetNameKey]; name != "" {
		return []string{name}
	}
	return nil
}
