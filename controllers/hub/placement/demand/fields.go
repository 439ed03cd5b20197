// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/trainjobs/fields"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
)

const fieldPatches = "runtimePatches"

// mostRuntimes is of how many versions of runtimes the fields are kept.
const mostRuntimes = 1000

// runtimeFields are the fields of runtimes, which are found once for each version of a runtime.
type runtimeFields struct {
	mu        sync.Mutex
	byVersion map[string][]string // Under mu.
}

// of returns the fields of a runtime's spec.
func (r *runtimeFields) of(version string, spec *trainer.TrainingRuntimeSpec) ([]string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known, ok := r.byVersion[version]; ok {
		return known, nil
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(spec)
	if err != nil {
		return nil, fmt.Errorf("convert the spec of a runtime: %w", err)
	}
	if r.byVersion == nil || len(r.byVersion) >= mostRuntimes {
		r.byVersion = map[string][]string{}
	}
	r.byVersion[version] = fields.Of(object)
	return r.byVersion[version], nil
}

// Missing are the fields that some worker does not know: status.trainer.missing and missingOfRuntimes of all
// WorkerClusters, sorted.
type Missing struct {
	OfJobs, OfRuntimes []string
}

// Add adds what one worker does not know, nothing for nil.
func (m *Missing) Add(worker *v1alpha1.TrainerAPI) {
	if worker == nil {
		return
	}
	m.OfJobs = union(m.OfJobs, worker.Missing)
	m.OfRuntimes = union(m.OfRuntimes, worker.MissingOfRuntimes)
}

func union(a, b []string) []string {
	if len(b) == 0 {
		return a
	}
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// SetFields sets which of these fields a job has that Fill has filled in. Where all workers know everything, it costs
// nothing.
func (m *Missing) SetFields(job *dispatch.Job, object *unstructured.Unstructured, derived Demand) {
	job.Fields, job.Runtime = nil, dispatch.Runtime{}
	if len(m.OfJobs) > 0 {
		job.Fields = fields.Unknown(fields.Of(sent(trainjobs.Spec(object), job)), m.OfJobs)
	}
	if unknown := fields.Unknown(derived.RuntimeFields, m.OfRuntimes); len(unknown) > 0 {
		kind, key := trainjobs.RuntimeOf(object)
		job.Runtime = dispatch.Runtime{Kind: kind, Key: key, Fields: unknown}
	}
}

// sent is the spec that a worker gets: without the patches that stay on the hub, and with the patch that keeps the pods in
// a domain.
func sent(spec map[string]any, job *dispatch.Job) map[string]any {
	patches, _ := spec[fieldPatches].([]any)
	if len(patches) == 0 && job.Topology == nil {
		return spec
	}
	patches = slices.DeleteFunc(slices.Clone(patches), func(patch any) bool {
		entry, _ := patch.(map[string]any)
		manager, _ := entry["manager"].(string)
		return trainjobs.StaysOnHub(manager)
	})
	if job.Topology != nil {
		patches = append(patches, map[string]any{"manager": trainjobs.TopologyManager})
	}
	spec = maps.Clone(spec)
	if spec[fieldPatches] = patches; len(patches) == 0 {
		delete(spec, fieldPatches)
	}
	return spec
}
