// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/placement/demand"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/queue"
	"github.com/trainyard/trainyard/dispatch/record"
)

// needs gathers what a decision on a job needs, from the hub's caches.
type needs struct {
	*Options
	policies Policies
	compiled compiled
	// workerQueues is shared with the watches.
	workerQueues *workerQueues
	demands      *demand.Deriver
}

// of returns a job with everything that the decision needs, except what exclude adds later. An obstacle says why the
// job waits, whatever capacity the workers have.
func (n *needs) of(ctx context.Context, f observation) (*queue.Job, *dispatch.Decision, error) {
	job, err := n.job(ctx, f)
	if err != nil {
		return nil, nil, err
	}
	if n.Protected != nil && n.Protected(job.Namespace) {
		return job, protectedNamespace(job.Namespace), nil
	}
	obstacle, err := n.demand(ctx, f, job)
	return job, obstacle, err
}

// job returns a job without its demand.
func (n *needs) job(ctx context.Context, f observation) (*queue.Job, error) {
	policies, namespaceLabels, err := n.policies.inputs(ctx, f.job)
	if err != nil {
		return nil, err
	}
	job := &queue.Job{
		Job:      dispatch.JobOf(f.job, namespaceLabels),
		Policies: n.compiled.of(policies),
		Created:  f.job.GetCreationTimestamp().Time,
		Since:    waitsSince(f),
		Attempt:  record.NextAttempt(f.past.attempt),
	}
	job.Previous, job.QueuedOnHub = f.past.worker, trainjobs.QueuedByKueue(f.job)
	return job, nil
}

// demand fills in the job's PodSets and priority.
func (n *needs) demand(ctx context.Context, f observation, job *queue.Job) (*dispatch.Decision, error) {
	typed, err := trainjobs.Typed(f.job)
	if err != nil {
		return &dispatch.Decision{Reason: v1alpha1.ReasonInvalidRuntime, Message: err.Error()}, nil //nolint:nilerr // It is what the job waits for.
	}
	var classes schedulingv1.PriorityClassList
	if err := n.Hub.List(ctx, &classes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list PriorityClasses: %w", err)
	}
	hub := demand.Hub{Policies: job.Policies, Classes: classes.Items, Priority: f.kueue.Priority}
	if f.kueue.Flavors != nil {
		hub.Flavors = f.kueue.Flavors.Entry
	}
	derived, err := n.demands.Fill(ctx, &job.Job, typed, hub)
	if derived.Runtime != "" {
		job.Counted = &v1alpha1.Counted{
			Generation: f.job.GetGeneration(), Digest: trainjobs.Digest(f.job), Runtime: derived.Runtime,
		}
		job.Circumstances = circumstancesOf(f, job, derived.Runtime)
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
func (n *needs) exclude(ctx context.Context, f observation, job *queue.Job) (expire time.Duration, err error) {
	if f.dispatch != nil && len(f.dispatch.Status.Refusals) > 0 {
		digests := map[v1alpha1.ClusterName]string{}
		for _, refusal := range f.dispatch.Status.Refusals {
			worker := &v1alpha1.WorkerCluster{}
			switch err := n.Hub.Get(ctx, types.NamespacedName{Name: string(refusal.Cluster)}, worker); {
			case err == nil:
				digests[refusal.Cluster] = digestOf(worker)
			case !apierrors.IsNotFound(err):
				return 0, fmt.Errorf("get WorkerCluster %q: %w", refusal.Cluster, err)
			}
		}
		now := func(worker v1alpha1.ClusterName) string { return digest(job.Circumstances, digests[worker]) }
		d := f.dispatch
		if record.AttemptOf(d) == record.Ended {
			d = d.DeepCopy()
			noteEnd(d, now(d.Spec.Cluster)) // The next write says so.
		}
		job.Excluded, expire = exclusions(d, n.Clock.Now(), now)
	}
	job.Class = n.workerQueues.apart(classOf(job), job)
	return expire, nil
}

// Demand returns what a TrainJob needs and its priority, as its Dispatch records them when it is placed.
func (r *Reconciler) Demand(ctx context.Context, trainJob *unstructured.Unstructured) ([]v1alpha1.PodSet, int32, error) {
	f := r.observeKueue(observation{job: trainJob})
	job, err := r.needs.job(ctx, f)
	if err != nil {
		return nil, 0, err
	}
	obstacle, err := r.needs.demand(ctx, f, job)
	if err == nil && obstacle != nil {
		err = fmt.Errorf("%s: %s", obstacle.Reason, obstacle.Message)
	}
	return copied(job.PodSets), job.Priority, err
}

// waitsSince returns since when a job waits, as its Dispatch says, or else since when this process knows it.
func waitsSince(f observation) time.Time {
	if record.AttemptOf(f.dispatch) == record.Waiting {
		placed := meta.FindStatusCondition(f.dispatch.Status.Conditions, v1alpha1.DispatchPlaced)
		if placed != nil && !v1alpha1.ReasonKindOf(placed.Reason).KeepsOffList() {
			return placed.LastTransitionTime.Time
		}
	}
	return f.past.firstSeen
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

// protectedNamespace says why a job of a protected namespace waits. A copy would be in the namespace of that name on a
// worker, where its pods could use what the worker's own components have there.
func protectedNamespace(namespace string) *dispatch.Decision {
	return &dispatch.Decision{
		Reason: v1alpha1.ReasonProtectedNamespace,
		Message: fmt.Sprintf("TrainJobs of namespace %q are not dispatched: namespaces that begin with kube-, those of Trainyard, "+
			"Kubeflow Trainer, JobSet and Kueue, and those of the manager's flag --protected-namespaces are protected; create the "+
			"TrainJob in another namespace, or ask an admin for an exception (--unprotected-namespaces)", namespace),
	}
}
