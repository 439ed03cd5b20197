// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/cluster"
)

// Hub is a hub with the rights of its user.
type Hub struct {
	client.Client
	config *rest.Config
	// context is the name of the kubeconfig's context, for messages. It may be empty.
	context string
}

// New returns a hub. It sends no request.
func New(config *rest.Config, contextName string) (*Hub, error) {
	c, err := cluster.New(config)
	return &Hub{Client: c, config: config, context: contextName}, err
}

// Dispatches returns the Dispatches of a namespace, or of all namespaces if it is empty.
func (h *Hub) Dispatches(ctx context.Context, namespace string) (dispatches []v1alpha1.Dispatch, err error) {
	take := func(d *v1alpha1.Dispatch) { dispatches = append(dispatches, *d) }
	err = cluster.Each(ctx, h, &v1alpha1.DispatchList{}, take, client.InNamespace(namespace))
	return dispatches, h.explain("list Dispatches", err)
}

// JobMeta is what is known of a TrainJob without its spec.
type JobMeta struct {
	Created metav1.Time
	Labels  map[string]string
}

// Jobs returns the TrainJobs of a namespace, or of all namespaces if it is empty, by their UID.
func (h *Hub) Jobs(ctx context.Context, namespace string) (map[types.UID]JobMeta, error) {
	jobs := map[types.UID]JobMeta{}
	err := h.eachJob(ctx, namespace, func(job *metav1.PartialObjectMetadata) {
		jobs[job.UID] = JobMeta{Created: job.CreationTimestamp, Labels: job.Labels}
	})
	return jobs, err
}

// Names returns the names of the TrainJobs in a namespace.
func (h *Hub) Names(ctx context.Context, namespace string) (names []string, err error) {
	err = h.eachJob(ctx, namespace, func(job *metav1.PartialObjectMetadata) { names = append(names, job.Name) })
	return names, err
}

func (h *Hub) eachJob(ctx context.Context, namespace string, do func(*metav1.PartialObjectMetadata)) error {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(trainjobs.NewList().GroupVersionKind())
	return h.explain("list TrainJobs", cluster.Each(ctx, h, list, do, client.InNamespace(namespace)))
}

// Job returns a TrainJob. If it does not exist, the error names the most similar name.
func (h *Hub) Job(ctx context.Context, key types.NamespacedName) (*unstructured.Unstructured, error) {
	job := trainjobs.New()
	err := h.Get(ctx, key, job)
	if cluster.IsMissing(err) {
		return nil, h.noJob(ctx, key)
	}
	return job, h.explain(fmt.Sprintf("get TrainJob %q", key.Name), err)
}

// Dispatch returns the Dispatch of a TrainJob, or nil.
func (h *Hub) Dispatch(ctx context.Context, key types.NamespacedName) (*v1alpha1.Dispatch, error) {
	dispatch := &v1alpha1.Dispatch{}
	err := h.Get(ctx, key, dispatch)
	if cluster.IsMissing(err) {
		return nil, nil
	}
	return dispatch, h.explain(fmt.Sprintf("get Dispatch %q", key.Name), err)
}

// Policies returns the DispatchPolicies.
func (h *Hub) Policies(ctx context.Context) ([]v1alpha1.DispatchPolicy, error) {
	list := &v1alpha1.DispatchPolicyList{}
	err := h.List(ctx, list)
	return list.Items, h.explain("list DispatchPolicies", err)
}

// NamespaceLabels returns the labels of a namespace.
func (h *Hub) NamespaceLabels(ctx context.Context, name string) (map[string]string, error) {
	namespace := &corev1.Namespace{}
	err := h.Get(ctx, types.NamespacedName{Name: name}, namespace)
	return namespace.Labels, h.explain(fmt.Sprintf("get Namespace %q", name), err)
}

// Warnings returns the Events of type Warning about an object.
func (h *Hub) Warnings(ctx context.Context, about client.Object) ([]corev1.Event, error) {
	var events corev1.EventList
	err := h.List(ctx, &events, client.InNamespace(about.GetNamespace()),
		client.MatchingFields{"involvedObject.uid": string(about.GetUID()), "type": corev1.EventTypeWarning})
	return events.Items, h.explain("list Events", err)
}
