// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package hubcache

import (
	"maps"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

var trainJobShapes shapes[map[string]any]

// finishedTrainJob is a packed TrainJob.
type finishedTrainJob struct {
	identity
	// shape has all that is not in identity: who manages the job, how it ended, and by what policies select it.
	shape *map[string]any
}

// packTrainJob returns nil for a TrainJob that has to stay as it is: one that has not ended, or is being deleted.
func packTrainJob(job *unstructured.Unstructured) *finishedTrainJob {
	end := trainjobs.Terminal(job)
	if end == nil || job.GetDeletionTimestamp() != nil {
		return nil
	}
	p := &finishedTrainJob{}
	var ok bool
	if p.identity, ok = identityOf(job); !ok {
		return nil
	}
	shape := shapeOfTrainJob(job, end)
	if p.shape = trainJobShapes.of(&shape); p.shape == nil {
		return nil
	}
	return p
}

func shapeOfTrainJob(job *unstructured.Unstructured, end *metav1.Condition) map[string]any {
	metadata := map[string]any{"namespace": job.GetNamespace(), "generation": job.GetGeneration()}
	of, _ := job.Object["metadata"].(map[string]any)
	if labels, ok := of["labels"].(map[string]any); ok {
		metadata["labels"] = labels
	}
	if annotations, ok := of["annotations"].(map[string]any); ok {
		if ours := withPrefix(annotations, v1alpha1.KeyPrefix); len(ours) > 0 {
			metadata["annotations"] = ours
		}
	}
	spec, _ := job.Object["spec"].(map[string]any)
	return map[string]any{
		"apiVersion": job.Object["apiVersion"], "kind": job.Object["kind"], "metadata": metadata,
		"spec": trainjobs.PickFields(spec, "managedBy", "suspend"),
		"status": map[string]any{"conditions": []any{map[string]any{
			"type": end.Type, "status": string(end.Status), "reason": end.Reason, "message": end.Message,
		}}},
	}
}

// withPrefix returns the fields whose names have the prefix.
func withPrefix(fields map[string]any, prefix string) map[string]any {
	found := map[string]any{}
	for name, value := range fields {
		if strings.HasPrefix(name, prefix) {
			found[name] = value
		}
	}
	return found
}

// unpack implements packed.
func (p *finishedTrainJob) unpack() client.Object {
	object := maps.Clone(*p.shape)
	shared, _ := object["metadata"].(map[string]any)
	metadata := maps.Clone(shared)
	metadata["name"], metadata["uid"], metadata["resourceVersion"] = p.name, string(p.uid.of()), p.resourceVersion()
	metadata["creationTimestamp"] = time.Unix(p.created, 0).UTC().Format(time.RFC3339)
	object["metadata"] = metadata
	return &unstructured.Unstructured{Object: object}
}

// GetObjectMeta implements metav1.ObjectMetaAccessor.
func (p *finishedTrainJob) GetObjectMeta() metav1.Object {
	metadata, _ := (*p.shape)["metadata"].(map[string]any)
	namespace, _ := metadata["namespace"].(string)
	return p.meta(namespace)
}

// GetObjectKind implements runtime.Object, as finishedDispatch does.
func (p *finishedTrainJob) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object. Nobody changes a packed object.
func (p *finishedTrainJob) DeepCopyObject() runtime.Object { return p }
