// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/kueues"
	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/cluster"
	"github.com/trainyard/trainyard/internal/spelling"
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

// AnnotateJob sets an annotation of exactly this TrainJob.
func (h *Hub) AnnotateJob(ctx context.Context, job *unstructured.Unstructured, annotation, value string) error {
	what := fmt.Sprintf("annotate TrainJob %q", job.GetName())
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": job.GetUID(), "annotations": map[string]any{annotation: value},
	}})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return h.explain(what, h.Patch(ctx, job.DeepCopy(), client.RawPatch(types.MergePatchType, patch), fieldOwner))
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

// ConfigMap returns the data of a ConfigMap, or nil if it does not exist or its user may not read it.
func (h *Hub) ConfigMap(ctx context.Context, key types.NamespacedName) (map[string]string, error) {
	found := &corev1.ConfigMap{}
	err := h.Get(ctx, key, found)
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsForbidden(err):
		return nil, nil
	case err != nil:
		return nil, h.explain(fmt.Sprintf("get ConfigMap %q", key), err)
	case found.Data == nil:
		return map[string]string{}, nil
	}
	return found.Data, nil
}

// Events returns the Events about an object.
func (h *Hub) Events(ctx context.Context, about client.Object) ([]corev1.Event, error) {
	var events corev1.EventList
	err := h.List(ctx, &events, client.InNamespace(about.GetNamespace()), client.MatchingFields{"involvedObject.uid": string(about.GetUID())})
	return events.Items, h.explain("list Events", err)
}

// EachObject passes the objects of a kind, in all namespaces, to do as the hub has them.
func (h *Hub) EachObject(ctx context.Context, kind schema.GroupVersionKind, do func(*unstructured.Unstructured)) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	err := cluster.Each(ctx, h, list, do)
	switch {
	case kind.GroupVersion() != kueues.GroupVersion:
		return h.explain(fmt.Sprintf("list %s objects", kind.Kind), err)
	case cluster.IsKindMissing(err):
		return fmt.Errorf("this cluster%s has no %s of Kueue in version %s, which Kueue has from v0.15 on; name the hub "+
			"with --context", h.of(" (context %q)"), kind.Kind, kind.Version)
	}
	return h.explain(fmt.Sprintf("list %s objects of Kueue", kind.Kind), err)
}

// explain adds to an error what was being done, and what the user can do. It returns nil for nil.
func (h *Hub) explain(what string, err error) error {
	if err == nil {
		return nil
	}
	return h.Hint(fmt.Errorf("%s: %w", what, err))
}

// Hint adds to an error of the hub what the user can do, if that is known.
func (h *Hub) Hint(err error) error {
	var network *net.OpError
	switch {
	case cluster.IsKindMissing(err):
		return fmt.Errorf("%w: Trainyard is not installed on this cluster%s, or it is a worker; name the hub with --context", err, h.of(" (context %q)"))
	case errors.As(err, &network):
		return fmt.Errorf("unable to connect to the hub%s: %w", h.of(" (context %q)"), err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%w: you must be logged in to the hub%s", err, h.of(" (context %q)"))
	}
	return err
}

func (h *Hub) noJob(ctx context.Context, key types.NamespacedName) error {
	var near string
	if names, err := h.Names(ctx, key.Namespace); err == nil {
		near = DidYouMean(key.Name, names)
	}
	return fmt.Errorf("there is no TrainJob %q in namespace %q%s%s", key.Name, key.Namespace, h.of(" of context %q"), near)
}

// of returns a part of a sentence, or "" without a context.
func (h *Hub) of(format string) string {
	if h.context == "" {
		return ""
	}
	return fmt.Sprintf(format, h.context)
}

// DidYouMean returns a part of a sentence with the most similar name, or "" if no name is similar.
func DidYouMean(wrong string, names []string) string {
	if best := spelling.Nearest(wrong, names); best != "" {
		return fmt.Sprintf(" (did you mean %q?)", best)
	}
	return ""
}

const fieldOwner = client.FieldOwner("kubectl-trainyard")

// Workers returns the WorkerClusters, sorted by name.
func (h *Hub) Workers(ctx context.Context) (workers []v1alpha1.WorkerCluster, err error) {
	take := func(w *v1alpha1.WorkerCluster) { workers = append(workers, *w) }
	err = cluster.Each(ctx, h, &v1alpha1.WorkerClusterList{}, take)
	return workers, h.explain("list WorkerClusters", err)
}

// Worker returns a WorkerCluster. If it does not exist, the error names the most similar name.
func (h *Hub) Worker(ctx context.Context, name string) (*v1alpha1.WorkerCluster, error) {
	worker := &v1alpha1.WorkerCluster{}
	err := h.Get(ctx, types.NamespacedName{Name: name}, worker)
	if cluster.IsMissing(err) {
		return nil, h.noWorker(ctx, name)
	}
	return worker, h.explain(fmt.Sprintf("get WorkerCluster %q", name), err)
}

// PatchWorker merges some fields into a WorkerCluster. It does not change other fields.
func (h *Hub) PatchWorker(ctx context.Context, name string, fields map[string]any) error {
	patch, err := json.Marshal(fields)
	if err != nil {
		return fmt.Errorf("make patch: %w", err)
	}
	worker := &v1alpha1.WorkerCluster{}
	worker.Name = name
	err = h.Patch(ctx, worker, client.RawPatch(types.MergePatchType, patch), fieldOwner)
	return h.explain(fmt.Sprintf("patch WorkerCluster %q", name), err)
}

// AnnotateWorker sets an annotation of a WorkerCluster, or removes it if the value is nil.
func (h *Hub) AnnotateWorker(ctx context.Context, name, annotation string, value *string) error {
	return h.PatchWorker(ctx, name, map[string]any{"metadata": map[string]any{"annotations": map[string]any{annotation: value}}})
}

// Tombstones returns the Tombstones.
func (h *Hub) Tombstones(ctx context.Context) (tombstones []v1alpha1.Tombstone, err error) {
	take := func(t *v1alpha1.Tombstone) { tombstones = append(tombstones, *t) }
	err = cluster.Each(ctx, h, &v1alpha1.TombstoneList{}, take)
	return tombstones, h.explain("list Tombstones", err)
}

// LastEvent returns the message of the latest Event about a WorkerCluster with this reason and text, or "".
func (h *Hub) LastEvent(ctx context.Context, name, reason, text string) (string, error) {
	list := &corev1.EventList{}
	fields := client.MatchingFields{"involvedObject.kind": "WorkerCluster", "involvedObject.name": name, "reason": reason}
	// Events about objects without a namespace are in this namespace.
	if err := h.List(ctx, list, client.InNamespace(metav1.NamespaceDefault), fields); err != nil {
		return "", h.explain(fmt.Sprintf("list Events of WorkerCluster %q", name), err)
	}
	var last corev1.Event
	for i := range list.Items {
		if event := &list.Items[i]; strings.Contains(event.Message, text) && !event.CreationTimestamp.Before(&last.CreationTimestamp) {
			last = *event
		}
	}
	return last.Message, nil
}

func (h *Hub) noWorker(ctx context.Context, name string) error {
	var near string
	if workers, err := h.Workers(ctx); err == nil {
		near = DidYouMean(name, WorkerNames(workers))
	}
	return fmt.Errorf("there is no WorkerCluster %q%s%s", name, h.of(" on the hub of context %q"), near)
}

// WorkerNames returns the names of WorkerClusters.
func WorkerNames(workers []v1alpha1.WorkerCluster) []string {
	names := make([]string, len(workers))
	for i := range workers {
		names[i] = workers[i].Name
	}
	return names
}
