// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// labelPodSecurity begins the labels by which a namespace says what its pods may do.
const labelPodSecurity = "pod-security.kubernetes.io/"

// propagateNamespace makes sure that the worker has the job's namespace, and that pods may do no more in it than on
// the hub. One that is made gets the labels that say so. One that is there is left as it is.
func (r *reconciler) propagateNamespace(
	ctx context.Context, worker client.Client, name string, policy *v1alpha1.DispatchPolicy,
) error {
	onHub, err := r.hubNamespace(ctx, name)
	if err != nil {
		return err
	}
	onWorker := metadataOf(corev1.SchemeGroupVersion.String(), "Namespace")
	err = worker.Get(ctx, types.NamespacedName{Name: name}, onWorker)
	switch {
	case err == nil:
		return r.checkPodSecurity(onHub, onWorker, policy)
	case !apierrors.IsNotFound(err):
		return err
	case !mayCreateNamespaces(policy):
		return r.forbidden("namespace", name, policy)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: r.carried(onHub.Labels)}}
	namespace.Labels[v1alpha1.LabelPropagatedBy] = r.HubID
	if err := worker.Create(ctx, namespace, fieldOwner); !apierrors.IsAlreadyExists(err) {
		return err
	}
	// Somebody else made it, and the cache does not show yet how.
	reader, err := r.Worker.APIReader()
	if err != nil {
		return err
	}
	if err := reader.Get(ctx, types.NamespacedName{Name: name}, onWorker); err != nil {
		return err
	}
	return r.checkPodSecurity(onHub, onWorker, policy)
}

// hubNamespace is the namespace's metadata on the hub. A cache that does not show it yet says nothing about its labels.
func (r *reconciler) hubNamespace(ctx context.Context, name string) (*metav1.PartialObjectMetadata, error) {
	onHub := metadataOf(corev1.SchemeGroupVersion.String(), "Namespace")
	err := r.Hub.Get(ctx, types.NamespacedName{Name: name}, onHub)
	if apierrors.IsNotFound(err) {
		return nil, apierrors.NewConflict(corev1.Resource("namespaces"), name, err)
	}
	if err != nil {
		//nolint:errorlint // The hub's answer must not be taken for the worker's.
		return nil, fmt.Errorf("get Namespace %q: %v", name, err)
	}
	return onHub, nil
}

// carried are the labels of the hub's namespace that the worker's gets when it is made.
func (r *reconciler) carried(labels map[string]string) map[string]string {
	carried := map[string]string{}
	for key, value := range labels {
		if strings.HasPrefix(key, labelPodSecurity) || r.NamespaceLabel != nil && r.NamespaceLabel(key) {
			carried[key] = value
		}
	}
	return carried
}

// checkPodSecurity refuses a namespace of the worker in which pods may do what they may not on the hub.
func (r *reconciler) checkPodSecurity(
	onHub, onWorker *metav1.PartialObjectMetadata, policy *v1alpha1.DispatchPolicy,
) error {
	difference := laxerThan(onHub.Labels, onWorker.Labels)
	if difference == "" || ignoresPodSecurity(policy) {
		return nil
	}
	allow := "a DispatchPolicy for the job"
	if policy != nil {
		allow = fmt.Sprintf("DispatchPolicy %q", policy.Name)
	}
	return refusal(fmt.Sprintf("namespace %q on worker %q lets pods do more than on the hub: %s; "+
		"or set spec.propagate.podSecurity: %s in %s", onHub.Name, r.Cluster, difference, v1alpha1.PodSecurityIgnore, allow))
}

func ignoresPodSecurity(policy *v1alpha1.DispatchPolicy) bool {
	return policy != nil && policy.Spec.Propagate != nil && policy.Spec.Propagate.PodSecurity == v1alpha1.PodSecurityIgnore
}
