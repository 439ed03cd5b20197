// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Kueue compares the Workload of a TrainJob with the job's runtime as it is now. If the runtime has changed, the next
// touch of the job has Kueue stop its pods and make another Workload, which waits for quota again. So a runtime that
// running copies with a Workload use is not changed on their worker: a job that needs a newer version gets the version
// under a name of its own.

// newerName is the name on a worker of a version of a runtime, while copies there use an earlier version.
func newerName(name, version string) string {
	sum := sha256.Sum256([]byte(version))
	return suffixed(name, hex.EncodeToString(sum[:])[:suffixLength])
}

// suffixLength is how much of a digest is in the name of a runtime.
const suffixLength = 8

// suffixed is a name with a suffix, shortened to what a name may have.
func suffixed(name, suffix string) string {
	suffix = "-" + suffix
	return strings.TrimRight(name[:min(len(name), validation.DNS1123SubdomainMaxLength-len(suffix))], "-.") + suffix
}

// newer decides about a runtime that the worker has in another version than the hub. If a change of it would stop
// running copies, it sets the name under which the worker has, or gets, the hub's version. It returns true if the
// worker has that version already.
func (p *propagation) newer(ctx context.Context, onWorker *metav1.PartialObjectMetadata, source string) (bool, error) {
	name := newerName(onWorker.Name, source)
	other := metadataOf(onWorker.APIVersion, onWorker.Kind)
	err := p.worker.Get(ctx, client.ObjectKey{Namespace: onWorker.Namespace, Name: name}, other)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return false, err
	case err == nil && other.Labels[v1alpha1.LabelPropagatedBy] == p.hubID && other.Annotations[v1alpha1.AnnotationSource] == source:
		p.runtimeName = name
		return true, nil
	}
	inUse, inUseErr := p.inUse(ctx, onWorker.Kind, client.ObjectKeyFromObject(onWorker))
	switch {
	case inUseErr != nil || !inUse:
		return false, inUseErr
	case err == nil:
		return false, p.inUseRefusal(onWorker.Kind, onWorker.Name, name)
	}
	p.runtimeName = name
	return false, nil
}

// runtimeInUse is true if the worker's Kueue has a Workload for a copy of this hub that uses the runtime and has not
// ended. It asks the worker for the Workloads of copies until one has a Workload.
func (c *creator) runtimeInUse(ctx context.Context, kind string, key types.NamespacedName) (bool, error) {
	copies := trainjobs.NewList()
	if err := c.worker.List(ctx, copies, client.InNamespace(key.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list copies on worker %q: %w", c.cluster, err)
	}
	for i := range copies.Items {
		copy := &copies.Items[i]
		if itsKind, its := trainjobs.RuntimeOf(copy); itsKind != kind || its != key || trainjobs.Terminal(copy) != nil {
			continue
		}
		answer, err := c.kueue.findWorkload(ctx, copy)
		if err != nil || answer.hasWorkload() {
			return err == nil, err
		}
		if !answer.installed {
			return false, nil
		}
	}
	return false, nil
}

// nameRuntime has the copy name its runtime as the worker has it. An empty name is the job's. A pinned runtime is a
// TrainingRuntime.
func nameRuntime(copy *unstructured.Unstructured, name string, rule v1alpha1.RuntimeRule) {
	ref, ok := specOf(copy)["runtimeRef"].(map[string]any)
	if !ok || name == "" {
		return
	}
	ref["name"] = name
	if rule == v1alpha1.RuntimePin {
		ref["apiGroup"], ref["kind"] = trainer.SchemeGroupVersion.Group, trainer.TrainingRuntimeKind
		trainjobs.SetAnnotation(copy, v1alpha1.AnnotationPinnedRuntime, name)
	}
}

// inUseRefusal is the refusal of a worker that cannot have a newer version of a runtime.
func (p *propagation) inUseRefusal(kind, name, newer string) error {
	return refusal(fmt.Sprintf("%s: running copies use an earlier version of %s %q on worker %q, whose Kueue would stop them "+
		"if it were changed, and somebody else's runtime has the name %q", v1alpha1.ReasonRuntimeInUse, kind, name, p.cluster, newer))
}
