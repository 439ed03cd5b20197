// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/copies"
	"github.com/trainyard/trainyard/internal/records"
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
) (time.Duration, error) {
	retention, err := r.retentionOf(ctx, copy)
	if err != nil {
		return 0, err
	}
	end := meta.FindStatusCondition(dispatch.Status.Conditions, v1alpha1.DispatchFinished).LastTransitionTime
	waited := r.clock.Since(end.Time) - retention
	if waited < 0 {
		return -waited, nil
	}
	if copy.GetDeletionTimestamp() != nil {
		return 0, nil
	}
	busy := r.busy != nil && r.burst.lasts(r.busy(), r.clock.Now())
	if later := nextCheck(waited, busy); later > 0 {
		return min(apart(later, copy.GetUID()), maxDeletionDelay-waited), nil
	}
	if r.mayHavePods(ctx, copy) {
		return 0, worker.deleteCopy(ctx, copy, "retention")
	}
	return 0, worker.deleted(ctx, "retention", worker.DeleteFinished(ctx, copy))
}

// retentionOf returns the retention from the policy of the hub's job, and zero if there is no job.
func (r *retirement) retentionOf(ctx context.Context, copy client.Object) (time.Duration, error) {
	job, err := records.Job(ctx, r.hub, client.ObjectKeyFromObject(copy))
	if job == nil || err != nil {
		return 0, err
	}
	return r.retention(ctx, job)
}

// mayHavePods is true if the finished copy has, or may have, a pod alive. A deletion in the foreground ends after the
// copy's pods, and costs the worker three times the requests. So it is only for such copies.
func (r *retirement) mayHavePods(ctx context.Context, copy *unstructured.Unstructured) bool {
	key := client.ObjectKeyFromObject(copy)
	var pods corev1.PodList
	err := r.pods.List(ctx, &pods, client.InNamespace(key.Namespace),
		client.MatchingFields{remote.IndexJobSet: key.Name}, client.UnsafeDisableDeepCopy)
	// With spec.capacity: Report the hub holds no pods. Asking the worker would cost a request.
	return err != nil || trainjobs.Terminal(copy) == nil || slices.ContainsFunc(pods.Items, copies.IsAlive)
}
