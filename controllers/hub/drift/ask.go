// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package drift

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/answers"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/internal/requeue"
)

// maxPath is how long a path of a status may be.
const maxPath = 256

// ask asks the worker what it would make of the hub's spec, and says how its runtime differs from that. An error says
// nothing about the runtime: the worker does not answer, or the runtime has changed meanwhile.
func (r *Reconciler) ask(ctx context.Context, onWorker *metav1.PartialObjectMetadata, spec json.RawMessage) (dispatch.Comparison, error) {
	answer, err := r.dryRun(ctx, onWorker, spec)
	if err != nil {
		return r.refused(ctx, onWorker, err)
	}
	if answer.GetGeneration() == onWorker.Generation {
		return dispatch.Comparison{}, nil
	}
	live, err := r.live(ctx, onWorker)
	if err != nil {
		return dispatch.Comparison{}, err
	}
	paths := differences(live.Object["spec"], answer.Object["spec"])
	if len(paths) == 0 {
		return dispatch.Comparison{}, nil
	}
	comparison := differing(v1alpha1.RuntimeDiffers, paths)
	if comparison.Demand {
		keep(&comparison, live)
	}
	return comparison, nil
}

// live reads the worker's runtime. It fails with a conflict if that is not the runtime that the cache shows.
func (r *Reconciler) live(ctx context.Context, onWorker *metav1.PartialObjectMetadata) (*unstructured.Unstructured, error) {
	reader, err := r.Worker.APIReader()
	if err != nil {
		return nil, err
	}
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(onWorker.GroupVersionKind())
	switch err := reader.Get(ctx, client.ObjectKeyFromObject(onWorker), live); {
	case client.IgnoreNotFound(err) != nil:
		return nil, fmt.Errorf("get %s %q of worker %q: %w", onWorker.Kind, onWorker.Name, r.Cluster, err)
	case err != nil, live.GetResourceVersion() != onWorker.ResourceVersion:
		return nil, requeue.Outdated("the runtime of the worker has changed")
	}
	return live, nil
}

// maxSpec is how many bytes of JSON the spec of a worker's runtime may have that is kept.
const maxSpec = 64 << 10

// keep keeps the spec of the worker's runtime with a comparison, if it is not too large.
func keep(comparison *dispatch.Comparison, live *unstructured.Unstructured) {
	data, err := json.Marshal(live.Object["spec"]) // Maps are encoded in the order of their keys.
	switch {
	case err != nil:
		comparison.Assumed = fmt.Sprintf("its spec cannot be encoded: %v", err)
	case len(data) > maxSpec:
		comparison.Assumed = fmt.Sprintf("its spec has %d bytes, and at most %d are looked at", len(data), maxSpec)
	default:
		sum := sha256.Sum256(data)
		comparison.Own = &dispatch.RuntimeSpec{Digest: hex.EncodeToString(sum[:]), JSON: data}
	}
}

// dryRun returns what the worker would make of its runtime with another spec. It fails with a conflict if the runtime is
// not the one that the cache shows.
func (r *Reconciler) dryRun(
	ctx context.Context, onWorker *metav1.PartialObjectMetadata, spec json.RawMessage,
) (*unstructured.Unstructured, error) {
	worker, err := r.Worker.Client()
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal([]map[string]any{
		{"op": "add", "path": "/metadata/resourceVersion", "value": onWorker.ResourceVersion},
		{"op": "add", "path": "/spec", "value": spec},
	})
	if err != nil {
		return nil, fmt.Errorf("encode patch of %s %q: %w", onWorker.Kind, onWorker.Name, err)
	}
	answer := &unstructured.Unstructured{}
	answer.SetGroupVersionKind(onWorker.GroupVersionKind())
	answer.SetNamespace(onWorker.Namespace)
	answer.SetName(onWorker.Name)
	comparisons.WithLabelValues(string(r.Cluster)).Inc()
	err = worker.Patch(ctx, answer, client.RawPatch(types.JSONPatchType, data), client.DryRunAll, records.FieldOwner,
		client.FieldValidation(metav1.FieldValidationStrict))
	return answer, err
}

// noDryRun is in the API server's words about a webhook that does not say that it has no side effects.
const noDryRun = "does not support dry run"

// unknownField finds the fields in the words about a spec that has fields which the worker's CRD does not have.
var unknownField = regexp.MustCompile(`unknown field "([^"]+)"`)

// refused is what the worker's answer to a dry run says, if it is an answer about the runtime. How the runtime differs is
// not known then, and so its spec is kept.
func (r *Reconciler) refused(ctx context.Context, onWorker *metav1.PartialObjectMetadata, err error) (dispatch.Comparison, error) {
	comparison, err := refusal(err)
	if err != nil {
		return dispatch.Comparison{}, err
	}
	switch live, err := r.live(ctx, onWorker); {
	case err == nil:
		keep(&comparison, live)
	case answers.Of(err).IsRefusal():
		comparison.Assumed = dispatch.Cut(answers.Words(err))
	default:
		return dispatch.Comparison{}, err
	}
	return comparison, nil
}

func refusal(err error) (dispatch.Comparison, error) {
	words := answers.Words(err)
	switch answer := answers.Of(err); {
	case !answer.IsRefusal():
		return dispatch.Comparison{}, err
	case answer == answers.Missing, answer == answers.Terminating:
		return dispatch.Comparison{}, requeue.Outdated("the runtime of the worker is gone")
	case answer == answers.Unacceptable && !strings.Contains(words, noDryRun):
		var fields []string
		for _, match := range unknownField.FindAllStringSubmatch(words, -1) {
			fields = append(fields, match[1])
		}
		slices.Sort(fields)
		comparison := differing(v1alpha1.RuntimeUnsupported, slices.Compact(fields))
		comparison.Message = dispatch.Cut(words)
		return comparison, nil
	}
	return dispatch.Comparison{State: v1alpha1.RuntimeUnknown, Message: dispatch.Cut(words)}, nil
}

// differing returns a comparison with as many paths as a status takes.
func differing(state v1alpha1.RuntimeState, paths []string) dispatch.Comparison {
	comparison := dispatch.Comparison{State: state, Demand: slices.ContainsFunc(paths, dispatch.ChangesDemand)}
	if len(paths) > v1alpha1.MaxRuntimePaths {
		comparison.Message = fmt.Sprintf("%d fields differ", len(paths))
	}
	for _, path := range paths[:min(len(paths), v1alpha1.MaxRuntimePaths)] {
		comparison.Paths = append(comparison.Paths, record.Cut(path, maxPath))
	}
	return comparison
}
