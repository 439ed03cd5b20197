// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dependencies

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/records"
)

// maxRecorded is how many objects of a worker are on record, as the CRD has it.
const maxRecorded = 1024

// load reads the record, once per Reconciler. It asks the API server: a cache may lag behind what an earlier leader wrote.
func (k *Reconciler) load(ctx context.Context) error {
	if k.recorded != nil {
		return nil
	}
	worker := &v1alpha1.WorkerCluster{}
	if err := k.HubReader.Get(ctx, types.NamespacedName{Name: string(k.Cluster)}, worker); err != nil {
		//nolint:errorlint // The hub's answer must not be taken for the worker's.
		return fmt.Errorf("get WorkerCluster %q: %v", k.Cluster, err)
	}
	k.recorded = map[object]bool{}
	for _, o := range worker.Status.Dependencies {
		k.recorded[o] = true
	}
	return nil
}

// record puts objects on record.
func (k *Reconciler) record(ctx context.Context, all []wanted) error {
	if err := k.load(ctx); err != nil {
		return err
	}
	after := maps.Clone(k.recorded)
	for _, w := range all {
		after[w.object] = true
	}
	if len(after) > maxRecorded {
		return refused(http.StatusForbidden, metav1.StatusReasonForbidden, "worker %q has %d objects of this hub that jobs name, "+
			"and at most %d can be on record", k.Cluster, len(k.recorded), maxRecorded)
	}
	return k.save(ctx, after)
}

// strike takes objects off the record.
func (k *Reconciler) strike(ctx context.Context, gone []object) error {
	after := maps.Clone(k.recorded)
	for _, o := range gone {
		delete(after, o)
	}
	return k.save(ctx, after)
}

// save writes the record if it has changed. The Reconciler with the turn is the only one that writes it.
func (k *Reconciler) save(ctx context.Context, after map[object]bool) error {
	if maps.Equal(after, k.recorded) {
		return nil
	}
	sorted := slices.SortedFunc(maps.Keys(after), func(a, b object) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"dependencies": sorted}})
	if err != nil {
		return fmt.Errorf("encode the record of worker %q: %w", k.Cluster, err)
	}
	worker := &v1alpha1.WorkerCluster{ObjectMeta: metav1.ObjectMeta{Name: string(k.Cluster)}}
	if err := k.Hub.Status().Patch(ctx, worker, client.RawPatch(types.MergePatchType, patch), records.FieldOwner); err != nil {
		k.recorded = nil // It may have been written.
		//nolint:errorlint // The hub's answer must not be taken for the worker's.
		return fmt.Errorf("patch status of WorkerCluster %q: %v", k.Cluster, err)
	}
	k.recorded = after
	return nil
}
