// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/answers"
	"github.com/trainyard/trainyard/internal/copies"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/internal/requeue"
)

// replaced ends the source of a runtime that was written strictly and as a whole. Runtimes of earlier releases, whose
// source has no such end, are written again: they may lack fields, or have fields that are gone on the hub.
const replaced = v1alpha1.SourceReplaced

// runtime makes sure that the worker has the job's runtime, as the hub has it if it came from here. It returns true if
// it has written the runtime.
func (p *propagation) runtime(ctx context.Context) (written bool, err error) {
	kind, key := trainjobs.RuntimeOf(p.job)
	gvk := trainer.SchemeGroupVersion.WithKind(kind)
	onWorker := metadataOf(gvk.GroupVersion().String(), kind)
	err = p.worker.Get(ctx, key, onWorker)
	exists := err == nil
	p.ownRuntime = exists && (onWorker.Labels[v1alpha1.LabelPropagatedBy] != p.hubID || !*p.policy.Rules().Propagate.Runtimes)
	if exists && onWorker.Labels[v1alpha1.LabelPinned] != "" && onWorker.Labels[v1alpha1.LabelPropagatedBy] == p.hubID {
		return false, refusal(fmt.Sprintf("%s %q on worker %q was made for other jobs, whose policy pins their runtime", kind, key.Name, p.cluster))
	}
	if client.IgnoreNotFound(err) != nil {
		return false, err
	}
	keeps := exists && p.keeps(onWorker)
	if err := p.checkOwn(ctx, onWorker, keeps); err != nil || keeps {
		return false, err
	}
	source := onWorker.Annotations[v1alpha1.AnnotationSource]
	onHub := metadataOf(gvk.GroupVersion().String(), kind)
	if err := p.hub.Get(ctx, key, onHub); err != nil {
		return false, p.notOnHub(err, kind, key.Name, exists)
	}
	switch version := versionOf(onHub); {
	case exists && source == version+"."+replaced && p.counted == "":
		return false, nil
	case !*p.policy.Rules().Propagate.Runtimes:
		return false, p.forbidden(kind, key.Name)
	}
	if exists {
		wanted := cmp.Or(p.counted, versionOf(onHub)) + "." + replaced
		if other, err := p.newer(ctx, onWorker, wanted); other || err != nil {
			return false, err
		}
	}
	full, err := p.fullRuntime(ctx, onHub)
	if err != nil {
		return false, err
	}
	if exists && p.runtimeName == "" {
		err = p.replaceRuntime(ctx, onWorker, full)
	} else {
		full.SetName(cmp.Or(p.runtimeName, full.GetName()))
		err = p.worker.Create(ctx, full, records.FieldOwner, client.FieldValidation(metav1.FieldValidationStrict))
		err = client.IgnoreAlreadyExists(err) // A runtime that somebody has made since is left alone.
	}
	return err == nil, p.runtimeRefused(err, kind, key.Name)
}

// runtimeRefused is the error of a write of a runtime. The words of a refusal are about the object that was sent, and do not
// name it.
func (p *propagation) runtimeRefused(err error, kind, name string) error {
	if isRefusal(err) {
		return refusal(fmt.Sprintf("worker %q refuses %s %q of the hub: %s", p.cluster, kind, name, answers.Words(err)))
	}
	return err
}

// keeps says whether a runtime on the worker stays as it is: it is the worker's own, the policy says so, or it is what was
// counted.
func (p *propagation) keeps(onWorker *metav1.PartialObjectMetadata) bool {
	return onWorker.Labels[v1alpha1.LabelPropagatedBy] != p.hubID || !*p.policy.Rules().Propagate.Runtimes ||
		p.counted != "" && onWorker.Annotations[v1alpha1.AnnotationSource] == p.counted+"."+replaced
}

// checkOwn fails if the worker's runtime is another than the one for which the job was placed, as far as is known: the worker
// would make other pods than were counted. keeps says that the runtime on the worker stays as it is. It sends no request.
func (p *propagation) checkOwn(ctx context.Context, onWorker *metav1.PartialObjectMetadata, keeps bool) error {
	kind, key := trainjobs.RuntimeOf(p.job)
	changed := change{
		v1alpha1.OutcomeRuntimeChanged, fmt.Sprintf("%s %q of worker %q has changed since the job was placed", kind, key.Name, p.cluster),
	}
	switch {
	case p.counted == "" || p.runtimes == nil:
		return nil
	case !keeps && p.countedOwn != "": // It is gone, or the hub's comes in its place.
		switch known, _ := p.runtimes().Of(key); {
		case onWorker.Labels[v1alpha1.LabelPropagatedBy] != p.hubID:
		case known.Outdated: // Placement knows, too, so the next attempt is counted with the hub's.
			return jobChange("the hub's %s %q comes in place of that of worker %q, for which the job was placed", kind, key.Name, p.cluster)
		case p.patient():
			return requeue.Outdated(fmt.Sprintf("%s %q of worker %q is being compared with the hub's", kind, key.Name, p.cluster))
		}
		return changed
	case !keeps || p.countedOwn == "" && p.isUntouched(onWorker):
		return nil
	}
	known, has := p.runtimes().Of(key)
	if !has {
		return nil
	}
	if known.Version != p.counted && (known.Version == "" || p.isOnHub(ctx, kind, key)) && p.patient() {
		return requeue.Outdated(fmt.Sprintf("%s %q of worker %q is being compared with the hub's", kind, key.Name, p.cluster))
	}
	own := ""
	if known.Own != nil {
		own = known.Own.Digest
	}
	// If the worker's runtime was compared with another version of the hub's, it need not have changed.
	if own == p.countedOwn || p.countedOwn == "" && known.Version != p.counted {
		return nil
	}
	return changed
}

// isUntouched says whether a runtime is what this manager has made of the hub's runtime that was counted.
func (p *propagation) isUntouched(onWorker *metav1.PartialObjectMetadata) bool {
	return onWorker.Labels[v1alpha1.LabelPropagatedBy] == p.hubID && onWorker.Generation == 1 &&
		onWorker.Annotations[v1alpha1.AnnotationSource] == p.counted+"."+replaced
}

// isOnHub says whether the hub's cache has the runtime as it was counted.
func (p *propagation) isOnHub(ctx context.Context, kind string, key types.NamespacedName) bool {
	onHub := metadataOf(trainer.SchemeGroupVersion.String(), kind)
	return p.hub.Get(ctx, key, onHub) == nil && versionOf(onHub) == p.counted
}

// versionOf is "UID.GENERATION" of an object.
func versionOf(object metav1.Object) string {
	return fmt.Sprintf("%s.%d", object.GetUID(), object.GetGeneration())
}

// notOnHub returns what an error of a read of the hub's runtime means. exists is true if the worker has the runtime.
func (p *propagation) notOnHub(err error, kind, name string, exists bool) error {
	switch {
	case !apierrors.IsNotFound(err):
		return err
	case p.counted != "":
		return jobChange("%s %q has been deleted on the hub since the job was placed", kind, name)
	case exists:
		return nil
	}
	return refusal(fmt.Sprintf("%s %q is neither on worker %q nor on the hub", kind, name, p.cluster))
}

// checkRuntime fails if the hub's runtime is not the version for which the job was placed. cached is the version that
// the hub's cache shows: until it shows the change, placement would count the earlier version again.
func (p *propagation) checkRuntime(live metav1.Object, cached, kind string) error {
	found := versionOf(live)
	switch p.counted {
	case "", found:
		return nil
	case cached:
		return requeue.Outdated(fmt.Sprintf("%s %q is newer than the cache shows", kind, live.GetName()))
	default:
		return jobChange("%s %q has changed since the job was placed: %s was counted, and it is %s now",
			kind, live.GetName(), p.counted, found)
	}
}

// replaceRuntime replaces the runtime on the worker by the hub's runtime. A field that the worker does not know is a
// refusal. It fails with a conflict if the runtime has changed since it was read: it may be somebody else's now.
func (p *propagation) replaceRuntime(
	ctx context.Context, onWorker *metav1.PartialObjectMetadata, full *unstructured.Unstructured,
) error {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	// "add" replaces an existing value, and works without one. If a patch cannot be applied, the API server does not
	// answer with a conflict.
	data, err := json.Marshal([]operation{
		{"add", "/metadata/resourceVersion", onWorker.ResourceVersion},
		{"add", "/metadata/labels", full.GetLabels()},
		{"add", "/metadata/annotations", merged(onWorker.Annotations, full.GetAnnotations())},
		{"add", "/spec", full.Object["spec"]},
	})
	if err != nil {
		return fmt.Errorf("encode patch of %s %q: %w", onWorker.Kind, onWorker.Name, err)
	}
	patch := client.RawPatch(types.JSONPatchType, data)
	err = p.worker.Patch(ctx, full, patch, records.FieldOwner, client.FieldValidation(metav1.FieldValidationStrict))
	if apierrors.IsNotFound(err) { // It is created when the cache shows that it is gone.
		return requeue.Outdated(err.Error())
	}
	return err
}

// fullRuntime is the hub's runtime as it should be on the worker. It is read from the hub's API server and kept
// unstructured, because the Go type of one release of Trainer would lose fields that it does not know. onHub is what the
// hub's cache shows.
func (p *propagation) fullRuntime(ctx context.Context, onHub *metav1.PartialObjectMetadata) (*unstructured.Unstructured, error) {
	full := &unstructured.Unstructured{}
	full.SetGroupVersionKind(onHub.GroupVersionKind())
	if err := p.hubReader.Get(ctx, client.ObjectKeyFromObject(onHub), full); err != nil {
		//nolint:errorlint // The hub's answer must not be taken for the worker's.
		return nil, fmt.Errorf("%w: get %s %q: %v", errHub, onHub.Kind, onHub.Name, err)
	}
	if err := p.checkRuntime(full, versionOf(onHub), onHub.Kind); err != nil {
		return nil, err
	}
	// JobSet would delete the JobSet of a copy whose end the hub has not seen, and the worker's Kubeflow Trainer would run
	// the copy again. The retention of the policy cleans up instead.
	unstructured.RemoveNestedField(full.Object, "spec", "template", "spec", "ttlSecondsAfterFinished")
	labels := copies.Carried(full.GetLabels(), p.unsent)
	labels[v1alpha1.LabelPropagatedBy] = p.hubID
	copy := &unstructured.Unstructured{Object: map[string]any{"spec": full.Object["spec"]}}
	copy.SetGroupVersionKind(onHub.GroupVersionKind())
	copy.SetNamespace(onHub.Namespace)
	copy.SetName(onHub.Name)
	copy.SetLabels(labels)
	copy.SetAnnotations(map[string]string{v1alpha1.AnnotationSource: versionOf(full) + "." + replaced})
	return copy, nil
}
