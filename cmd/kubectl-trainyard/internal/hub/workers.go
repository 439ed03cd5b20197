// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/cluster"
)

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
