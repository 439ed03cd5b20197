// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/remote"
)

// retirement deletes the finished copies of one worker when nobody needs them any more.
type retirement struct {
	hub hubReader
	// pods are the worker's caches.
	pods client.Reader
	// retention and busy are Options.Retention and Options.Busy.
	retention func(ctx context.Context, job *unstructured.Unstructured) (time.Duration, error)
	busy      func() bool
	clock     clock.PassiveClock
	burst     burst
}

// retire deletes a finished copy when its retention is over and no burst of jobs is under way. It measures the copy's
// age on the hub, from the Dispatch's Finished condition: clocks of two clusters are not compared.
func (r *retirement) retire(
	ctx context.Context, worker workerClient, copy *unstructured.Unstructured, dispatch *v1alpha1.Dispatch,
) (reconcile.Result, error) {
	retention, err := r.retentionOf(ctx, copy)
	if err != nil {
		return reconcile.Result{}, err
	}
	end := meta.FindStatusCondition(dispatch.Status.Conditions, v1alpha1.DispatchFinished).LastTransitionTime
	waited := r.clock.Since(end.Time) - retention
	if waited < 0 {
		return reconcile.Result{RequeueAfter: -waited}, nil
	}
	if copy.GetDeletionTimestamp() != nil {
		return reconcile.Result{}, nil
	}
	busy := r.busy != nil && r.burst.lasts(r.busy(), r.clock.Now())
	if later := nextLook(waited, busy); later > 0 {
		return reconcile.Result{RequeueAfter: later}, nil
	}
	return reconcile.Result{}, worker.deleteCopyBy(ctx, copy, "retention", r.propagation(ctx, copy))
}

// retentionOf returns the retention from the policy of the hub's job, and zero if there is no job.
func (r *retirement) retentionOf(ctx context.Context, copy client.Object) (time.Duration, error) {
	job, err := r.hub.job(ctx, client.ObjectKeyFromObject(copy))
	if job == nil || err != nil {
		return 0, err
	}
	return r.retention(ctx, job)
}

// propagation says how to delete a finished copy. A deletion in the foreground ends after the copy's pods, and costs
// the worker three times the requests. So it is only for copies that have, or may have, a pod alive.
func (r *retirement) propagation(ctx context.Context, copy *unstructured.Unstructured) metav1.DeletionPropagation {
	key := client.ObjectKeyFromObject(copy)
	var pods corev1.PodList
	err := r.pods.List(ctx, &pods, client.InNamespace(key.Namespace),
		client.MatchingFields{remote.IndexJobSet: key.Name}, client.UnsafeDisableDeepCopy)
	if err != nil { // With spec.capacity: Report the hub holds no pods. Asking the worker would cost a request.
		return metav1.DeletePropagationForeground
	}
	if trainjobs.Terminal(copy) == nil || slices.ContainsFunc(pods.Items, isAlive) {
		return metav1.DeletePropagationForeground
	}
	return metav1.DeletePropagationBackground
}
