// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
)

type requestQueue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// jobs wakes a job when it ends, because the cache may show that its Dispatch is Finished before it shows the last
// change of the job. So it does after a start, when the cache reads the job after its Dispatch. After the end it wakes
// the job when a change of its annotation or of its labels, by which policies select it, may change its time. An invalid
// annotation gets its Event at once, not when the job ends.
func (r *Reconciler) jobs() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, queue requestQueue) {
			switch job, ok := e.Object.(*unstructured.Unstructured); {
			case !ok, e.IsInInitialList:
			case trainjobs.Terminal(job) != nil:
				queue.Add(requestFor(job))
			default:
				r.check(job)
			}
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, queue requestQueue) {
			before, ok := e.ObjectOld.(*unstructured.Unstructured)
			after, alsoOK := e.ObjectNew.(*unstructured.Unstructured)
			if !ok || !alsoOK {
				return
			}
			valueBefore, had := ttlAnnotation(before)
			value, has := ttlAnnotation(after)
			annotated := valueBefore != value || had != has
			if annotated {
				r.check(after)
			}
			if trainjobs.Terminal(after) != nil && (annotated || trainjobs.Terminal(before) == nil ||
				!equality.Semantic.DeepEqual(before.GetLabels(), after.GetLabels())) {
				queue.Add(requestFor(after))
			}
		},
	}
}

// check records an Event if the annotation of our job is invalid.
func (r *Reconciler) check(job *unstructured.Unstructured) {
	value, annotated := ttlAnnotation(job)
	if !annotated || trainjobs.ManagedBy(job) != r.ManagedBy || job.GetDeletionTimestamp() != nil {
		return
	}
	if _, _, err := trainjobs.TTL(map[string]string{v1alpha1.AnnotationTTL: value}); err != nil {
		r.recordUnreadable(job, err)
	}
}

// policies wakes all finished jobs when a change may shorten the time of any. When the manager starts, all finished
// jobs come by themselves.
func (r *Reconciler) policies() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, queue requestQueue) {
			if policy, ok := e.Object.(*v1alpha1.DispatchPolicy); ok && !e.IsInInitialList && limits(policy) {
				r.wake(ctx, queue)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, queue requestQueue) {
			before, ok := e.ObjectOld.(*v1alpha1.DispatchPolicy)
			after, alsoOK := e.ObjectNew.(*v1alpha1.DispatchPolicy)
			if ok && alsoOK && (shortens(before, after) || selectsOthers(before, after) && r.anyLimits(ctx)) {
				r.wake(ctx, queue)
			}
		},
		DeleteFunc: func(ctx context.Context, _ event.DeleteEvent, queue requestQueue) {
			if r.anyLimits(ctx) { // Another policy applies to the jobs of the deleted policy now.
				r.wake(ctx, queue)
			}
		},
	}
}

// namespaces wakes the finished jobs of a namespace when its labels have changed, because policies select by them.
func (r *Reconciler) namespaces() handler.EventHandler {
	return handler.Funcs{
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, queue requestQueue) {
			if r.anyLimits(ctx) {
				r.wake(ctx, queue, client.InNamespace(e.ObjectNew.GetName()))
			}
		},
	}
}

// limits is true if a policy says how long finished jobs stay.
func limits(policy *v1alpha1.DispatchPolicy) bool { return policy.Spec.TTLSecondsAfterFinished != nil }

// shortens is true if the jobs of a policy stay for a shorter time than before.
func shortens(before, after *v1alpha1.DispatchPolicy) bool {
	return limits(after) && (!limits(before) || *after.Spec.TTLSecondsAfterFinished < *before.Spec.TTLSecondsAfterFinished)
}

// selectsOthers is true if jobs may have another policy than before.
func selectsOthers(before, after *v1alpha1.DispatchPolicy) bool {
	return before.Spec.Priority != after.Spec.Priority || !equality.Semantic.DeepEqual(before.Spec.Jobs, after.Spec.Jobs)
}

// anyLimits is true if any policy says how long finished jobs stay.
func (r *Reconciler) anyLimits(ctx context.Context) bool {
	var policies v1alpha1.DispatchPolicyList
	if err := r.Hub.List(ctx, &policies, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Cannot list DispatchPolicies from the cache")
		return true
	}
	for i := range policies.Items {
		if limits(&policies.Items[i]) {
			return true
		}
	}
	return false
}

// wake enqueues the finished jobs.
func (r *Reconciler) wake(ctx context.Context, queue requestQueue, among ...client.ListOption) {
	var dispatches v1alpha1.DispatchList
	if err := r.Hub.List(ctx, &dispatches, append(among, client.UnsafeDisableDeepCopy)...); err != nil {
		log.FromContext(ctx).Error(err, "Cannot list Dispatches from the cache")
		return
	}
	for i := range dispatches.Items {
		if record.AttemptOf(&dispatches.Items[i]) == record.Finished {
			queue.Add(requestFor(&dispatches.Items[i]))
		}
	}
}

func requestFor(object client.Object) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(object)}
}
