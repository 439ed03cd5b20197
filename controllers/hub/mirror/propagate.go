// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// refusal is an answer of ours that has the weight of a worker's refusal.
type refusal string

func (r refusal) Error() string { return string(r) }

// isRefusal is true if err is an answer about this object that asking again will not change soon: the worker's admission,
// quota, RBAC or schema said no. Timeouts, throttling, server errors and expired credentials say nothing about the object.
func isRefusal(err error) bool {
	var own refusal
	if errors.As(err, &own) {
		return true
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	if isTooLarge(status.Status().Message) {
		return true
	}
	switch code := status.Status().Code; code {
	case http.StatusUnauthorized, http.StatusConflict, http.StatusTooManyRequests, http.StatusRequestTimeout:
		return false
	default:
		return code >= 400 && code < 500
	}
}

// isFault is true if the worker says that something is wrong with it, such as an admission webhook that cannot be called. That its store,
// or a proxy before it, is away for a moment it says otherwise.
func isFault(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code == http.StatusInternalServerError && apierrors.IsInternalError(err)
}

// isTooLarge: what the worker's store does not take is an error of the server (500) without a reason, and yet an answer.
func isTooLarge(message string) bool {
	return strings.Contains(message, "etcdserver: request is too large") || strings.Contains(message, "trying to send message larger than max")
}

// refusalWords are the worker's own words, without those that we put around them.
func refusalWords(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Message != "" {
		return status.Status().Message
	}
	return err.Error()
}

// propagate makes sure that the worker has the namespace and the runtime of the job. What exists there already is left alone,
// but for a runtime that Trainyard created and that has changed on the hub since.
func (r *reconciler) propagate(ctx context.Context, worker client.Client, f facts, past *recollection) error {
	policy, err := r.Policy(ctx, f.job)
	if err != nil {
		return err
	}
	if err := r.propagateNamespace(ctx, worker, f.job.GetNamespace(), policy); err != nil {
		return err
	}
	return r.propagateRuntime(ctx, worker, f, past, policy)
}

// forbidden says that the worker lacks something which the job's policy does not allow to be created there.
func (r *reconciler) forbidden(kind, name string, policy *v1alpha1.DispatchPolicy) error {
	return refusal(fmt.Sprintf("worker %q has no %s %q, and DispatchPolicy %q does not allow creating it", r.Cluster, kind, name, policy.Name))
}

func mayCreateNamespaces(policy *v1alpha1.DispatchPolicy) bool {
	return policy == nil || policy.Spec.Propagate == nil || ptr.Deref(policy.Spec.Propagate.Namespaces, true)
}

func mayCreateRuntimes(policy *v1alpha1.DispatchPolicy) bool {
	return policy == nil || policy.Spec.Propagate == nil || ptr.Deref(policy.Spec.Propagate.Runtimes, true)
}

// runtimeOf returns kind and key of the job's runtime, with the API's defaults.
func runtimeOf(job *unstructured.Unstructured) (string, types.NamespacedName) {
	kind, _, _ := unstructured.NestedString(job.Object, "spec", "runtimeRef", "kind")
	name, _, _ := unstructured.NestedString(job.Object, "spec", "runtimeRef", "name")
	if kind == trainer.TrainingRuntimeKind {
		return kind, types.NamespacedName{Namespace: job.GetNamespace(), Name: name}
	}
	return trainer.ClusterTrainingRuntimeKind, types.NamespacedName{Name: name}
}

func metadataOf(apiVersion, kind string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}}
}
