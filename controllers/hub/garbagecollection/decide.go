// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/records"
)

// ours is the prefix of the labels and annotations that make a TrainJob a copy.
const ours = "trainyard.dev/"

// carryOut does what an admin has decided about a copy that is certainly unknown.
func (r *reconciler) carryOut(ctx context.Context, worker client.Client, copy *unstructured.Unstructured) error {
	registration := &v1alpha1.WorkerCluster{}
	if err := r.Hub.Get(ctx, client.ObjectKey{Name: string(r.Cluster)}, registration); err != nil {
		return client.IgnoreNotFound(err)
	}
	value, decided := registration.Annotations[v1alpha1.AnnotationDecisionPrefix+string(copy.GetUID())]
	if !decided {
		return nil
	}
	decision := v1alpha1.CopyDecision(value)
	var refusal string
	var err error
	switch decision {
	case v1alpha1.DecisionAdopt:
		refusal, err = r.assign(ctx, worker, copy)
	case v1alpha1.DecisionRelease:
		err = r.disown(ctx, worker, copy)
	case v1alpha1.DecisionDelete:
		err = r.delete(ctx, worker, copy, "decision")
	default:
		refusal = fmt.Sprintf("%q is no decision; say %s, %s or %s", value,
			v1alpha1.DecisionAdopt, v1alpha1.DecisionRelease, v1alpha1.DecisionDelete)
	}
	if err != nil {
		return err
	}
	if !r.Quarantine.registry.refuse(r.Cluster, client.ObjectKeyFromObject(copy), value+": "+refusal) {
		return nil // An Event has said it.
	}
	if refusal != "" {
		r.recordRefused(registration, copy, refusal)
	} else {
		r.recordDecided(registration, copy, decision)
	}
	return nil
}

// assign makes the copy belong to the hub TrainJob of its name, so that the copy can be adopted. It gives the copy a
// higher attempt than any other known attempt of the job. If it cannot do that, it returns why.
func (r *reconciler) assign(ctx context.Context, worker client.Client, copy *unstructured.Unstructured) (refusal string, err error) {
	key := client.ObjectKeyFromObject(copy)
	job, err := r.job(ctx, r.HubReader, key)
	if err != nil {
		return "", err
	}
	if job == nil {
		return fmt.Sprintf("the hub has no TrainJob %s to adopt it; create it there, suspended or not, and it is adopted", key), nil
	}
	hub, err := r.observe(ctx, r.HubReader, copy)
	if err != nil {
		return "", err
	}
	if refusal := r.unassignable(job, hub.dispatch); refusal != "" {
		return refusal, nil
	}
	attempt := max(attemptOf(copy), record.NextAttempt(r.Quarantine.registry.rival(key, job.GetUID(), r.Cluster)))
	recorded := int32(0)
	if hub.dispatch != nil {
		recorded = hub.dispatch.Spec.Attempt
		attempt = max(attempt, record.NextAttempt(recorded))
	}
	tombstones, err := records.Tombstones(ctx, r.Hub, job.GetUID())
	if err != nil {
		return "", err
	}
	for i := range tombstones {
		attempt = max(attempt, record.NextAttempt(tombstones[i].Spec.Attempt))
	}
	if isBeyondBelief(recorded, attempt) {
		return fmt.Sprintf("it would get attempt %d; the hub knows of attempt %d, and counts on by %d at most: "+
			"release or delete the copy", attempt, recorded, maxSkipped), nil
	}
	updated := copy.DeepCopy()
	setLabel(updated, v1alpha1.LabelOriginUID, string(job.GetUID()))
	setAnnotation(updated, v1alpha1.AnnotationAttempt, strconv.Itoa(int(attempt)))
	return "", r.patch(ctx, worker, copy, updated)
}

// unassignable says why a hub TrainJob cannot take over a copy. It is empty if the TrainJob can.
func (r *reconciler) unassignable(job *unstructured.Unstructured, d *v1alpha1.Dispatch) string {
	name := job.GetNamespace() + "/" + job.GetName()
	end := trainjobs.Terminal(job)
	switch {
	case end != nil:
		return fmt.Sprintf("the hub TrainJob %s is %s", name, end.Type)
	case job.GetDeletionTimestamp() != nil:
		return fmt.Sprintf("the hub TrainJob %s is being deleted", name)
	case trainjobs.ManagedBy(job) != r.ManagedBy:
		return fmt.Sprintf("spec.managedBy of the hub TrainJob %s is %q, and has to be %q", name, trainjobs.ManagedBy(job), r.ManagedBy)
	case d != nil && (d.DeletionTimestamp != nil || d.Spec.TrainJob.UID != job.GetUID()):
		return fmt.Sprintf("the Dispatch %s of an earlier TrainJob has to go first", name)
	case d != nil && d.Spec.Cluster != "" && !d.AttemptEnded():
		return fmt.Sprintf("the hub TrainJob %s is on worker %q already", name, d.Spec.Cluster)
	}
	return ""
}

// disown removes our marks from a copy. The copy goes on running as a TrainJob of the worker.
func (r *reconciler) disown(ctx context.Context, worker client.Client, copy *unstructured.Unstructured) error {
	updated := copy.DeepCopy()
	updated.SetLabels(withoutOurs(copy.GetLabels()))
	updated.SetAnnotations(withoutOurs(copy.GetAnnotations()))
	return r.patch(ctx, worker, copy, updated)
}

func withoutOurs(all map[string]string) map[string]string {
	rest := map[string]string{}
	for key, value := range all {
		if !strings.HasPrefix(key, ours) {
			rest[key] = value
		}
	}
	return rest
}

// patch changes a copy, but only if the copy is still as the caller has read it.
func (r *reconciler) patch(ctx context.Context, worker client.Client, copy, updated *unstructured.Unstructured) error {
	err := worker.Patch(ctx, updated, client.MergeFromWithOptions(copy, client.MergeFromWithOptimisticLock{}), records.FieldOwner)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("patch TrainJob %s/%s on worker %q: %w", copy.GetNamespace(), copy.GetName(), r.Cluster, err)
	}
	return nil
}

func setLabel(object client.Object, key, value string) {
	labels := object.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[key] = value
	object.SetLabels(labels)
}

func setAnnotation(object client.Object, key, value string) {
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	object.SetAnnotations(annotations)
}
