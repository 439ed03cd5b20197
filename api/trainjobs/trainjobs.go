// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package trainjobs reads Kubeflow TrainJobs that are unstructured.
//
// The TrainJob API has one version name but several contents: fields were added, renamed and removed inside v1alpha1.
// The Go type of one release silently drops fields that it does not know. So the hub's TrainJobs and their copies stay
// unstructured on the whole way between two clusters. Only what placement needs is converted (Typed), from a copy.
package trainjobs

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// GroupVersionKind is the kind of the TrainJobs that Trainyard reads and writes.
var GroupVersionKind = trainer.SchemeGroupVersion.WithKind(trainer.TrainJobKind)

// New returns an empty TrainJob, for a client to read into.
func New() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(GroupVersionKind)
	return u
}

// NewList returns an empty list of TrainJobs, for a client to read into.
func NewList() *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(GroupVersionKind.GroupVersion().WithKind(GroupVersionKind.Kind + "List"))
	return list
}

// Typed converts a TrainJob to the Go type. It drops fields that the type does not know. The result is a full copy.
func Typed(job *unstructured.Unstructured) (*trainer.TrainJob, error) {
	typed := &trainer.TrainJob{}
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(job.DeepCopy().Object, typed)
	if data, packed := packedSpec(job); packed && err == nil {
		err = json.Unmarshal([]byte(data), &typed.Spec) // Without the map, which would be large.
	}
	if err != nil {
		return nil, fmt.Errorf("convert TrainJob %s/%s: %w", job.GetNamespace(), job.GetName(), err)
	}
	return typed, nil
}

// ManagedBy returns spec.managedBy. Without it, the built-in controller manages the job.
func ManagedBy(job *unstructured.Unstructured) string {
	value, found, err := unstructured.NestedString(job.Object, "spec", "managedBy")
	if !found || err != nil {
		return v1alpha1.ManagedByBuiltIn
	}
	return value
}

// RuntimeOf returns kind and key of the runtime that a job names, with the API's defaults. The key of a
// ClusterTrainingRuntime has no namespace.
func RuntimeOf(job *unstructured.Unstructured) (kind string, key types.NamespacedName) {
	kind, _, _ = unstructured.NestedString(job.Object, "spec", "runtimeRef", "kind")
	name, _, _ := unstructured.NestedString(job.Object, "spec", "runtimeRef", "name")
	if kind == trainer.TrainingRuntimeKind {
		return kind, types.NamespacedName{Namespace: job.GetNamespace(), Name: name}
	}
	return trainer.ClusterTrainingRuntimeKind, types.NamespacedName{Name: name}
}

// Suspended returns spec.suspend.
func Suspended(job *unstructured.Unstructured) bool {
	value, _, err := unstructured.NestedBool(job.Object, "spec", "suspend")
	return err == nil && value
}

// SetAnnotation sets an annotation, or removes it if value is empty.
func SetAnnotation(object metav1.Object, key, value string) {
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	if annotations[key] = value; value == "" {
		delete(annotations, key)
	}
	object.SetAnnotations(annotations)
}

// Terminal returns the condition that ended the job, Complete or Failed, or nil while the job has not ended.
func Terminal(job *unstructured.Unstructured) *metav1.Condition {
	return trueCondition(job, trainer.TrainJobComplete, trainer.TrainJobFailed)
}

// HasCondition is true if the job has this condition with status True.
func HasCondition(job *unstructured.Unstructured, kind string) bool {
	return trueCondition(job, kind) != nil
}

// trueCondition returns the first of these conditions that is True, or nil. It converts nothing else of the job.
func trueCondition(job *unstructured.Unstructured, kinds ...string) *metav1.Condition {
	conditions, _, err := unstructured.NestedFieldNoCopy(job.Object, "status", "conditions")
	if err != nil {
		return nil
	}
	list, _ := conditions.([]any)
	for _, item := range list {
		condition, _ := item.(map[string]any)
		kind, _ := condition["type"].(string)
		if !slices.Contains(kinds, kind) || condition["status"] != string(metav1.ConditionTrue) {
			continue
		}
		reason, _ := condition["reason"].(string)
		message, _ := condition["message"].(string)
		return &metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: message}
	}
	return nil
}

// maxTTLSeconds keeps the sum of a time and a TTL within the range of time.Duration.
const maxTTLSeconds = 1 << 32

// TTL returns how long a TrainJob with these annotations stays after its end (v1alpha1.AnnotationTTL), and whether that
// is limited. Its error says which values are valid, without the names of annotation and value.
func TTL(annotations map[string]string) (ttl time.Duration, limited bool, err error) {
	value, ok := annotations[v1alpha1.AnnotationTTL]
	if !ok {
		return 0, false, nil
	}
	seconds, err := strconv.ParseInt(value, 10, 64)
	if err != nil || seconds < 0 || seconds > maxTTLSeconds {
		return 0, false, fmt.Errorf("must be a number of seconds: an integer from 0 to %d", int64(maxTTLSeconds))
	}
	return time.Duration(seconds) * time.Second, true, nil
}
