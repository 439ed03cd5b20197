// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/accelerators"
	"github.com/trainyard/trainyard/dispatch/judgement"
	"github.com/trainyard/trainyard/internal/copies"
)

// policyFunc returns the DispatchPolicy that applies to a TrainJob, nil if none does.
type policyFunc func(ctx context.Context, job *unstructured.Unstructured) (*v1alpha1.DispatchPolicy, error)

// Dependencies brings to one worker what the pods of a job name. Package dependencies has it.
type Dependencies interface {
	// Bring makes sure that the worker has the objects that a Dispatch names and that may be brought there. left says in
	// words which of them it has left alone.
	Bring(ctx context.Context, d *v1alpha1.Dispatch) (left []string, err error)
	// IsBrought says whether Bring would send no request.
	IsBrought(ctx context.Context, d *v1alpha1.Dispatch) bool
	// Doubt is called when the worker has refused the copy: it may lack what Bring takes to be there.
	Doubt(d *v1alpha1.Dispatch)
	// Settle is called when Bring was called for a Dispatch that was not written.
	Settle(d *v1alpha1.Dispatch)
}

// Options of a mirror. All but Collector, Dependencies, Pins, JobSetMissing, Protected, NamespaceLabel, Unsent, Creations,
// Inherited, Budget, Trials, LookUp and Accelerators are required.
type Options struct {
	// Cluster is the worker's name.
	Cluster v1alpha1.ClusterName
	// ClusterID is the ID of the cluster that Worker is a connection to. The mirror does nothing for Dispatches of other
	// clusters.
	ClusterID types.UID
	// HubID marks what is ours on the worker.
	HubID string
	// Hub reads from the hub's caches: TrainJobs unstructured, runtimes as metadata.
	Hub client.Client
	// HubReader reads from the hub's API server.
	HubReader client.Reader
	// Worker is the connection.
	Worker copies.Connection
	// Lease is the worker's execution lease: the last of the agent's challenges that this hub has answered, and whether
	// the agent is alive and lets copies with failover Fenced run.
	Lease func() (challenge string, ok bool)
	// Collector does the rest on the worker. Nil: nobody does.
	Collector Collector
	// Dependencies brings what pods name. Nil: nothing of that is brought.
	Dependencies Dependencies
	// Pins keeps pinned runtimes while copies are created. Nil: nobody deletes any.
	Pins Pins
	// JobSetMissing says what to do about a worker that does not serve JobSets, empty for one that does. Nil: it does.
	JobSetMissing func() string
	// Policy finds what may be propagated for a job.
	Policy policyFunc
	// Accelerators knows the resources that are accelerators, for what attempts cost.
	Accelerators accelerators.Table
	// Recorder records Events on hub TrainJobs.
	Recorder events.EventRecorder
	// Clock of this process.
	Clock clock.Clock
	// Protected says that no job of a namespace may have a copy. Placement says so first, and where. Nil: there is none.
	Protected func(namespace string) bool
	// NamespaceLabel says that a new namespace on the worker gets a label of the hub's, beside the labels of Pod Security.
	NamespaceLabel func(key string) bool
	// Unsent says that a label or an annotation of the hub's objects does not come to the worker, beside those that never
	// do. Nil: all others come.
	Unsent func(key string) bool
	// Runtimes returns what is known of the worker's runtimes beside the hub's. Nil: nothing.
	Runtimes func() *dispatch.Runtimes
	// Creations is how many creations may be under way at a time, zero for any number. It has to be less than the number
	// of goroutines: while creations hang, jobs that run need some too.
	Creations int
	// Inherited are the attempts for which an earlier mirror may have sent creations, by the UID of their TrainJob.
	Inherited map[types.UID]int32
	// Budget is what the worker may make the manager write on the hub. Nil: there is no limit.
	Budget *Budget
	// Trials has the questions whether workers take the copies of jobs that wait. Nil: there are none.
	Trials *Trials
	// LookUp looks for what the pods of copies name. Nil: nobody does.
	LookUp *LookUp
}

// Collector does on one worker what is to be done beside the attempts that are on record. Package garbagecollection has
// it.
type Collector interface {
	// See adds to what has been seen of a key what only the Collector knows: Tombstones, Hold and HeldBy.
	See(ctx context.Context, seen *judgement.Seen) error
	// SweepRefused says whether nothing may be created on the worker, and why: it refuses to be swept.
	SweepRefused() (words string, refused bool)
	// Collect does what has been judged about a copy, nil if there is none. It says on the Dispatch what HeldBy is.
	Collect(
		ctx context.Context, worker copies.Worker, key types.NamespacedName, copy *unstructured.Unstructured, seen judgement.Seen,
		what judgement.Copy,
	) (due time.Duration, err error)
	// Execute executes a Tombstone.
	Execute(ctx context.Context, worker copies.Worker, tombstone string) (due time.Duration, err error)
	// Disconnected returns when to look at a key again while the worker is not connected.
	Disconnected(key types.NamespacedName) (due time.Duration)
}

// NewReconciler makes the controller of one worker. Its keys are the keys of the hub's Dispatches and of the worker's
// copies, and the names of Tombstones, which have no namespace.
func NewReconciler(options Options) reconcile.Reconciler {
	if options.Collector == nil {
		options.Collector = nobody{}
	}
	if options.Dependencies == nil {
		options.Dependencies = nothing{}
	}
	if options.JobSetMissing == nil {
		options.JobSetMissing = func() string { return "" }
	}
	if options.Pins == nil {
		options.Pins = unheld{}
	}
	return &reconciler{options: options, started: options.Clock.Now(), creations: newCreations(options.Creations), pinned: &pinned{}}
}

// JobSetEvents is a source of the keys whose JobSet in the worker's cache has restarted, or was stopped. Everything
// else that the Dispatch shows of a JobSet changes together with its copy. The JobSets that are there at first come
// too: an earlier process may have left one to the worker's garbage collector. Nobody waits for the source: a worker
// may forbid the hub to read JobSets.
func JobSetEvents(jobSets cache.Cache) source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		informer, err := jobSets.GetInformer(ctx, trainjobs.NewJobSet(), cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watch JobSets: %w", err)
		}
		events := source.Informer{
			Informer: informer, Handler: &handler.EnqueueRequestForObject{}, Predicates: []predicate.Predicate{restarted()},
		}
		return events.Start(ctx, queue)
	})
}

// restarted lets an event through if the JobSet belongs to a TrainJob, and its count of restarts has changed, or it had
// started and was suspended.
func restarted() predicate.Predicate {
	read := func(object client.Object) course {
		jobSet, ok := object.(*unstructured.Unstructured)
		if !ok || metav1.GetControllerOfNoCopy(jobSet) == nil {
			return course{}
		}
		c, err := courseOf(jobSet)
		if err != nil {
			return course{} // Nor is it shown.
		}
		return c
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool {
			return e.IsInInitialList && metav1.GetControllerOfNoCopy(e.Object) != nil || read(e.Object).restarts > 0
		},
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, now := read(e.ObjectOld), read(e.ObjectNew)
			return before.restarts != now.restarts || before.startTime != nil && !before.startTime.Equal(now.startTime)
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}

// nothing is the Dependencies of a worker to which none are brought.
type nothing struct{}

func (nothing) Bring(context.Context, *v1alpha1.Dispatch) ([]string, error) { return nil, nil }
func (nothing) IsBrought(context.Context, *v1alpha1.Dispatch) bool          { return true }
func (nothing) Doubt(*v1alpha1.Dispatch)                                    {}
func (nothing) Settle(*v1alpha1.Dispatch)                                   {}

// nobody is the Collector of a worker on which nothing is collected.
type nobody struct{}

func (nobody) See(context.Context, *judgement.Seen) error          { return nil }
func (nobody) SweepRefused() (words string, refused bool)          { return "", false }
func (nobody) Disconnected(types.NamespacedName) (d time.Duration) { return 0 }

func (nobody) Execute(context.Context, copies.Worker, string) (time.Duration, error) { return 0, nil }

func (nobody) Collect(
	context.Context, copies.Worker, types.NamespacedName, *unstructured.Unstructured, judgement.Seen, judgement.Copy,
) (time.Duration, error) {
	return 0, nil
}
