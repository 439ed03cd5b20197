// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/placement/demand"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/queue"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/requeue"
)

// needs gathers what a decision on a job needs, from the hub's caches.
type needs struct {
	hub client.Reader
	// protected is Options.Protected.
	protected func(namespace string) bool
	policies  Policies
	compiled  compiled
	// workerQueues is shared with the watches.
	workerQueues *workerQueues
	missing      *missing
	data         *data
	demands      *demand.Deriver
	// own is Options.Runtimes.Own, nil if nothing is known.
	own   func(runtime types.NamespacedName) *dispatch.OwnRuntimes
	pods  *podAnswers
	clock clock.PassiveClock
}

// observe adds to an observation what a decision on its job needs.
func (n *needs) observe(ctx context.Context, seen *observation) (err error) {
	gathered := &seen.needs
	if gathered.job, err = n.job(ctx, seen); err != nil {
		return err
	}
	if gathered.protected = n.protected != nil && n.protected(gathered.job.Namespace); gathered.protected {
		return nil
	}
	if gathered.unmet, err = n.demand(ctx, seen, gathered.job); err != nil || seen.obstacle() != nil {
		return err
	}
	gathered.expire, err = n.exclude(ctx, seen, gathered.job)
	return err
}

// job returns a job without its demand.
func (n *needs) job(ctx context.Context, seen *observation) (*queue.Job, error) {
	policies, namespaceLabels, err := n.policies.inputs(ctx, seen.job)
	if err != nil {
		return nil, err
	}
	job := &queue.Job{
		Job:      dispatch.JobOf(seen.job, namespaceLabels),
		Policies: n.compiled.of(policies),
		Created:  seen.job.GetCreationTimestamp().Time,
		Since:    waitsSince(seen),
		Attempt:  record.NextAttempt(seen.past.attempt),
	}
	job.Previous, job.QueuedOnHub = seen.past.worker, trainjobs.QueuedByKueue(seen.job)
	return job, nil
}

// demand fills in the job's PodSets and priority.
func (n *needs) demand(ctx context.Context, seen *observation, job *queue.Job) (*dispatch.Decision, error) {
	typed, err := trainjobs.Typed(seen.job)
	if err != nil {
		return &dispatch.Decision{Reason: v1alpha1.ReasonInvalidRuntime, Message: err.Error()}, nil //nolint:nilerr // It is what the job waits for.
	}
	var classes schedulingv1.PriorityClassList
	if err := n.hub.List(ctx, &classes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list PriorityClasses: %w", err)
	}
	hub := demand.Hub{Policies: job.Policies, Classes: classes.Items, Priority: seen.kueue.Priority, Own: n.own}
	if seen.kueue.Flavors != nil {
		hub.Flavors = seen.kueue.Flavors.Entry
	}
	derived, err := n.demands.Fill(ctx, &job.Job, typed, hub)
	missing := n.missing.now()
	missing.Set(&job.Job, seen.job, derived, job.Policies)
	seen.needs.reads, seen.needs.needed, job.Data = derived.Reads, derived.Needed, n.data.now().Locate(derived.Reads)
	if derived.Runtime != "" {
		job.Counted = &v1alpha1.Counted{
			Generation: seen.job.GetGeneration(), Digest: trainjobs.Digest(seen.job), Runtime: derived.Runtime,
		}
		job.Dependencies = derived.Dependencies
		job.Circumstances = circumstancesOf(seen, job, derived.Runtime)
	}
	if job.Claim != "" {
		job.Home = record.RanOn(seen.dispatch)
	}
	var status apierrors.APIStatus
	switch obstacle := demand.Decision(err); {
	case err == nil, obstacle != nil:
		return obstacle, nil
	case errors.As(err, &status):
		return nil, err
	}
	return &dispatch.Decision{Reason: v1alpha1.ReasonInvalidRuntime, Message: err.Error()}, nil
}

// exclude adds the workers whose refusals of the job count, and the class of the job, which depends on them. It returns
// how long it is until the first of these workers may be asked again.
func (n *needs) exclude(ctx context.Context, seen *observation, job *queue.Job) (expire time.Duration, err error) {
	if seen.dispatch != nil && len(seen.dispatch.Status.Refusals) > 0 {
		digests := map[v1alpha1.ClusterName]string{}
		for _, refusal := range seen.dispatch.Status.Refusals {
			worker := &v1alpha1.WorkerCluster{}
			switch err := n.hub.Get(ctx, types.NamespacedName{Name: string(refusal.Cluster)}, worker); {
			case err == nil:
				digests[refusal.Cluster] = digestOf(worker)
			case !apierrors.IsNotFound(err):
				return 0, fmt.Errorf("get WorkerCluster %q: %w", refusal.Cluster, err)
			}
		}
		now := func(worker v1alpha1.ClusterName) string { return digest(job.Circumstances, digests[worker]) }
		d := seen.dispatch
		if record.AttemptOf(d) == record.Ended {
			d = d.DeepCopy()
			noteEnd(d, now(d.Spec.Cluster)) // The next write says so.
		}
		job.Excluded, expire = exclusions(d, n.clock.Now(), now)
	}
	if kind, asked := n.pods.kindOf(seen.job, job); asked {
		workers, err := workersOf(ctx, n.hub)
		if err != nil {
			return 0, err
		}
		expire = requeue.Sooner(expire, n.pods.fill(job, kind, workers))
	}
	job.Class = n.workerQueues.classOf(job)
	return expire, nil
}

// Demand returns what a TrainJob needs on a worker, as its Dispatch records it when it is placed: PodSets, Priority and
// Dependencies.
func (r *Reconciler) Demand(
	ctx context.Context, trainJob *unstructured.Unstructured, worker v1alpha1.ClusterName,
) (v1alpha1.DispatchSpec, error) {
	seen := &observation{job: trainJob, kueue: r.observer.kueueOf(trainJob)}
	job, err := r.needs.job(ctx, seen)
	if err != nil {
		return v1alpha1.DispatchSpec{}, err
	}
	unmet, err := r.needs.demand(ctx, seen, job)
	if err == nil && unmet != nil {
		err = fmt.Errorf("%s: %s", unmet.Reason, unmet.Message)
	}
	return v1alpha1.DispatchSpec{
		PodSets: copied(job.PodSetsOn(worker)), Priority: job.Priority, Dependencies: slices.Clone(job.Dependencies),
	}, err
}

// placedCondition is the condition Placed of a Dispatch, nil if it has none.
func placedCondition(d *v1alpha1.Dispatch) *metav1.Condition {
	return meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchPlaced)
}

// waitsSince returns since when a job waits, as its Dispatch says, or else since when this process knows it.
func waitsSince(seen *observation) time.Time {
	if record.AttemptOf(seen.dispatch) == record.Waiting {
		placed := placedCondition(seen.dispatch)
		if placed != nil && !v1alpha1.ReasonKindOf(placed.Reason).KeepsOffList() {
			return placed.LastTransitionTime.Time
		}
	}
	return seen.past.firstSeen
}

// classOf names the class of jobs for which the same decision holds. Jobs of a class have equal demand, the same pin
// and the same policy, the same workers have refused them, and the policy's expression cannot tell them apart.
func classOf(job *queue.Job) string {
	hash := sha256.New() // No user can give a large job the class of a small one.
	encoder := json.NewEncoder(hash)
	policy, ok, err := dispatch.SelectPolicy(job.Policies, job.Job)
	switch {
	case policy != nil:
		_ = encoder.Encode([]any{policy.UID, policy.Generation})
	case err != nil:
		_ = encoder.Encode(err.Error())
	default:
		_ = encoder.Encode(ok) // Without any policy, or none matches.
	}
	common := job.Common()
	common.Previous = ""              // It changes scores, and keeps the job from no worker.
	_ = encoder.Encode(common.Kind()) // A hash takes everything, so there is no error.
	pin, pinned := job.Annotations[v1alpha1.AnnotationClusters]
	_ = encoder.Encode([]any{pin, pinned})
	if policy != nil {
		_ = encoder.Encode(keyOf(policy.Expression, &job.Job))
	}
	return string(hash.Sum(nil))
}

// workerQueues knows the workers that bring jobs into a LocalQueue whatever the jobs say. The LocalQueue is one of the
// job's namespace. So jobs of two namespaces are no longer alike, even without a label of a queue.
type workerQueues struct {
	mu    sync.Mutex
	named map[v1alpha1.ClusterName]bool // Under mu.
}

// see takes in a WorkerCluster, and returns whether the classes of jobs have changed.
func (w *workerQueues) see(worker *v1alpha1.WorkerCluster) bool {
	setting := worker.Spec.Kueue.WorkerQueue
	names := setting != "" && setting != v1alpha1.WorkerQueueFromJob && setting != v1alpha1.WorkerQueueNone
	w.mu.Lock()
	defer w.mu.Unlock()
	before := len(w.named) > 0
	if w.named == nil {
		w.named = map[v1alpha1.ClusterName]bool{}
	}
	if delete(w.named, v1alpha1.ClusterName(worker.Name)); names {
		w.named[v1alpha1.ClusterName(worker.Name)] = true
	}
	return before != (len(w.named) > 0)
}

// classOf names the class of jobs that are alike also in the LocalQueues whose quota may count for them.
func (w *workerQueues) classOf(job *queue.Job) string {
	class := classOf(job)
	local := job.Labels[v1alpha1.LabelLocalQueue]
	if local == "" && job.WorkerQueue == "" && !w.any() {
		return class
	}
	return fmt.Sprintf("%s\n%s/%s %t", class, job.Namespace, local, job.QueuedOnHub)
}

func (w *workerQueues) any() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.named) > 0
}
