// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// adoptedDecision stands on the Dispatch where placement says why it has chosen a worker.
const adoptedDecision = "adopted: the worker had the copy of this attempt, of which the hub had no record"

// adopt puts a copy on record that is of a later attempt than the hub knows, as after a restore from a backup: one write, with which the
// attempt rises to that of the copy. Whatever other workers have of the job is outdated then. The status comes from mirror, as always.
func (r *reconciler) adopt(ctx context.Context, copy *unstructured.Unstructured, hub records) error {
	d := hub.dispatch.DeepCopy()
	if d == nil {
		d = newDispatch(hub.job)
	}
	d.Spec.Cluster, d.Spec.ClusterID, d.Spec.Attempt = r.Cluster, r.ClusterID, attemptOf(copy)
	d.Spec.Failover, d.Spec.Eviction = failoverOf(copy), nil
	r.fillNeeds(ctx, hub.job, d)
	metav1.SetMetaDataAnnotation(&d.ObjectMeta, v1alpha1.AnnotationDecision, adoptedDecision)
	controllerutil.AddFinalizer(d, v1alpha1.FinalizerCopy)
	if hub.dispatch == nil {
		if err := r.Hub.Create(ctx, d, fieldOwner); err != nil {
			return fmt.Errorf("create Dispatch %s/%s: %w", d.Namespace, d.Name, err)
		}
	} else {
		patch := client.MergeFromWithOptions(hub.dispatch, client.MergeFromWithOptimisticLock{})
		if err := r.Hub.Patch(ctx, d, patch, fieldOwner); err != nil {
			return fmt.Errorf("patch Dispatch %s/%s: %w", d.Namespace, d.Name, err)
		}
	}
	r.recordAdopted(hub.job, d)
	return nil
}

// fillNeeds notes what the job needs. If that is not known, as without its runtime, only what its pods take is counted.
func (r *reconciler) fillNeeds(ctx context.Context, job *unstructured.Unstructured, d *v1alpha1.Dispatch) {
	if r.Needs == nil {
		return
	}
	podSets, priority, err := r.Needs(ctx, job)
	if err != nil {
		log.FromContext(ctx).Info("What an adopted job needs is not known", "dispatch", client.ObjectKeyFromObject(d), "reason", err.Error())
		return
	}
	d.Spec.PodSets, d.Spec.Priority = podSets, priority
}

// newDispatch is the record of a job that has none.
func newDispatch(job *unstructured.Unstructured) *v1alpha1.Dispatch {
	return &v1alpha1.Dispatch{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: job.GetNamespace(),
			Name:      job.GetName(),
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion:         trainjobs.GroupVersionKind.GroupVersion().String(),
				Kind:               trainjobs.GroupVersionKind.Kind,
				Name:               job.GetName(),
				UID:                job.GetUID(),
				Controller:         ptr.To(true),
				BlockOwnerDeletion: ptr.To(true),
			}},
		},
		Spec: v1alpha1.DispatchSpec{TrainJob: v1alpha1.TrainJobReference{Name: job.GetName(), UID: job.GetUID()}},
	}
}
