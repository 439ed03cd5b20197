// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/judgement"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/records"
)

// ours is the prefix of the labels and annotations that make a TrainJob a copy.
const ours = "trainyard.dev/"

// decisions carries out what admins have decided about the unknown copies of one worker.
type decisions struct {
	here      judgement.Worker
	managedBy string
	// hub reads from the hub's caches, stored from its API server.
	hub, stored hubReader
	unknown     unknownCopies
	recorder    events.EventRecorder
}

// of returns what an admin has decided about a copy, and the WorkerCluster that says it. It belongs to the cache.
func (d decisions) of(ctx context.Context, copy client.Object) (in *v1alpha1.WorkerCluster, value string, decided bool, err error) {
	in = &v1alpha1.WorkerCluster{}
	if err := d.hub.Get(ctx, client.ObjectKey{Name: string(d.here.Name)}, in, client.UnsafeDisableDeepCopy); err != nil {
		if client.IgnoreNotFound(err) != nil {
			return nil, "", false, fmt.Errorf("get WorkerCluster %q: %w", d.here.Name, err)
		}
		return nil, "", false, nil
	}
	value, decided = in.Annotations[v1alpha1.AnnotationDecisionPrefix+string(copy.GetUID())]
	return in, value, decided, nil
}

// isAccepted is true if an admin has decided that the copy is the job's.
func (d decisions) isAccepted(ctx context.Context, copy client.Object) (bool, error) {
	_, value, _, err := d.of(ctx, copy)
	return v1alpha1.CopyDecision(value) == v1alpha1.DecisionAdopt, err
}

// carryOut does what an admin has decided about a copy that is certainly unknown.
func (d decisions) carryOut(ctx context.Context, worker workerClient, copy *unstructured.Unstructured) error {
	registration, value, decided, err := d.of(ctx, copy)
	if !decided || err != nil {
		return err
	}
	decision := v1alpha1.CopyDecision(value)
	var refusal string
	switch decision {
	case v1alpha1.DecisionAdopt:
		refusal, err = d.assign(ctx, worker, copy)
	case v1alpha1.DecisionRelease:
		err = disown(ctx, worker, copy)
	case v1alpha1.DecisionDelete:
		err = worker.deleteCopy(ctx, copy, "decision")
	default:
		refusal = fmt.Sprintf("%q is no decision; say %s, %s or %s", value,
			v1alpha1.DecisionAdopt, v1alpha1.DecisionRelease, v1alpha1.DecisionDelete)
	}
	if err != nil {
		return err
	}
	if !d.unknown.refuse(client.ObjectKeyFromObject(copy), value+": "+refusal) {
		return nil // An Event has said it.
	}
	if refusal != "" {
		d.recordRefused(registration, copy, refusal)
	} else {
		d.recordDecided(registration, copy, decision)
	}
	return nil
}

// assign makes the copy belong to the hub TrainJob of its name, so that the copy can be adopted. It gives the copy a
// higher attempt than any other known attempt of the job. If it cannot do that, it returns why.
func (d decisions) assign(ctx context.Context, worker workerClient, copy *unstructured.Unstructured) (refusal string, err error) {
	key := client.ObjectKeyFromObject(copy)
	job, err := records.Job(ctx, d.stored, key)
	if err != nil {
		return "", err
	}
	if job == nil {
		return fmt.Sprintf("the hub has no TrainJob %s to adopt it; create it there, suspended or not, and it is adopted", key), nil
	}
	hub, err := d.stored.see(ctx, d.here, copy)
	if err != nil {
		return "", err
	}
	if refusal := unassignable(job, hub.Dispatch, d.managedBy); refusal != "" {
		return refusal, nil
	}
	attempt := max(record.AttemptOn(copy), record.NextAttempt(d.unknown.otherAttempt(key, job.GetUID())))
	recorded := int32(0)
	if hub.Dispatch != nil {
		recorded = hub.Dispatch.Spec.Attempt
		attempt = max(attempt, record.NextAttempt(recorded))
	}
	tombstones, err := records.Tombstones(ctx, d.hub, job.GetUID())
	if err != nil {
		return "", err
	}
	for i := range tombstones {
		attempt = max(attempt, record.NextAttempt(tombstones[i].Spec.Attempt))
	}
	if isTooHigh(recorded, attempt) {
		return fmt.Sprintf("it would get attempt %d; the hub knows of attempt %d, and counts on by %d at most: "+
			"release or delete the copy", attempt, recorded, maxSkipped), nil
	}
	updated := copy.DeepCopy()
	setLabel(updated, v1alpha1.LabelOriginUID, string(job.GetUID()))
	trainjobs.SetAnnotation(updated, v1alpha1.AnnotationAttempt, strconv.Itoa(int(attempt)))
	return "", worker.patchCopy(ctx, copy, updated)
}

// unassignable says why a hub TrainJob cannot take over a copy. It is empty if the TrainJob can.
func unassignable(job *unstructured.Unstructured, d *v1alpha1.Dispatch, managedBy string) string {
	name := job.GetNamespace() + "/" + job.GetName()
	end := trainjobs.Terminal(job)
	switch {
	case end != nil:
		return fmt.Sprintf("the hub TrainJob %s is %s", name, end.Type)
	case job.GetDeletionTimestamp() != nil:
		return fmt.Sprintf("the hub TrainJob %s is being deleted", name)
	case trainjobs.ManagedBy(job) != managedBy:
		return fmt.Sprintf("spec.managedBy of the hub TrainJob %s is %q, and has to be %q", name, trainjobs.ManagedBy(job), managedBy)
	case d != nil && (d.DeletionTimestamp != nil || d.Spec.TrainJob.UID != job.GetUID()):
		return fmt.Sprintf("the Dispatch %s of an earlier TrainJob must be deleted first", name)
	case record.StateOf(d) == record.GivenUp:
		return fmt.Sprintf("the hub TrainJob %s has been given up", name)
	case record.StateOf(d).Live(), record.StateOf(d) == record.Finished:
		return fmt.Sprintf("the hub TrainJob %s is on worker %q already", name, d.Spec.Cluster)
	}
	return ""
}

// disown removes our marks from a copy. The copy goes on running as a TrainJob of the worker.
func disown(ctx context.Context, worker workerClient, copy *unstructured.Unstructured) error {
	updated := copy.DeepCopy()
	updated.SetLabels(withoutOurs(copy.GetLabels()))
	updated.SetAnnotations(withoutOurs(copy.GetAnnotations()))
	return worker.patchCopy(ctx, copy, updated)
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

func setLabel(object client.Object, key, value string) {
	labels := object.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[key] = value
	object.SetLabels(labels)
}
