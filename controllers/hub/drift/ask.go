// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package drift

import (
	"context"
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
		return refused(err)
	}
	if answer.GetGeneration() == onWorker.Generation {
		return dispatch.Comparison{}, nil
	}
	reader, err := r.Worker.APIReader()
	if err != nil {
		return dispatch.Comparison{}, err
	}
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(onWorker.GroupVersionKind())
	switch err := reader.Get(ctx, client.ObjectKeyFromObject(onWorker), live); {
	case client.IgnoreNotFound(err) != nil:
		return dispatch.Comparison{}, fmt.Errorf("get %s %q of worker %q: %w", onWorker.Kind, onWorker.Name, r.Cluster, err)
	case err != nil, live.GetResourceVersion() != onWorker.ResourceVersion:
		return dispatch.Comparison{}, requeue.Outdated("the runtime of the worker has changed")
	}
	paths := differences(live.Object["spec"], answer.Object["spec"])
	if len(paths) == 0 {
		return dispatch.Comparison{}, nil
	}
	return differing(v1alpha1.RuntimeDiffers, paths), nil
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

// refused is what the worker's answer to a dry run says, if it is an answer about the runtime.
func refused(err error) (dispatch.Comparison, error) {
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

// isDemand matches the paths on which a demand depends: how many pods there are, what they request, on which nodes they
// run, how long they may take to stop, and the names by which a TrainJob finds replicated jobs and containers; and the
// paths of objects that have such fields.
var isDemand = regexp.MustCompile(`^spec\.mlPolicy($|[.\[])|` +
	`(^|\.)(spec|template|replicatedJobs(\[\d+\])?|containers(\[\d+\])?|initContainers(\[\d+\])?)$|` +
	`\.(replicatedJobs|containers|initContainers)\[\d+\]\.name$|\.initContainers\[\d+\]\.restartPolicy$|` +
	`\.replicatedJobs\[\d+\]\.template\.metadata(\.labels(\['trainer\.kubeflow\.org/trainjob-ancestor-step'\])?)?$|` +
	`\.(replicas|parallelism|completions|dependsOn|nodeSelector|tolerations|affinity|resources|resourceClaims|runtimeClassName|ports|` +
	`hostNetwork|overhead|terminationGracePeriodSeconds)($|[.\[])`)

// differing returns a comparison with as many paths as a status takes.
func differing(state v1alpha1.RuntimeState, paths []string) dispatch.Comparison {
	comparison := dispatch.Comparison{State: state, Demand: slices.ContainsFunc(paths, isDemand.MatchString)}
	if len(paths) > v1alpha1.MaxRuntimePaths {
		comparison.Message = fmt.Sprintf("%d fields differ", len(paths))
	}
	for _, path := range paths[:min(len(paths), v1alpha1.MaxRuntimePaths)] {
		comparison.Paths = append(comparison.Paths, record.Cut(path, maxPath))
	}
	return comparison
}
