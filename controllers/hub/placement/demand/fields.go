// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"fmt"
	"slices"
	"sync"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/trainjobs/fields"
	"github.com/trainyard/trainyard/api/trainjobs/translate"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
)

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

// Missing is what some workers do not do as the hub does.
type Missing struct {
	// OfJobs and OfRuntimes are the fields that some worker does not know: status.trainer.missing, untranslatable and
	// missingOfRuntimes of all WorkerClusters, sorted.
	OfJobs, OfRuntimes []string
	// Merging has the workers that do not merge resources, or may not.
	Merging map[v1alpha1.ClusterName]dispatch.Merging
}

// Add adds what one worker does not do. worker is nil if there is no field that it does not know.
func (m *Missing) Add(name v1alpha1.ClusterName, worker *v1alpha1.TrainerAPI, merging dispatch.Merging) {
	if merging != dispatch.Merges {
		if m.Merging == nil {
			m.Merging = map[v1alpha1.ClusterName]dispatch.Merging{}
		}
		m.Merging[name] = merging
	}
	if worker == nil {
		return
	}
	m.OfJobs = union(union(m.OfJobs, worker.Missing), worker.Untranslatable)
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

// Set sets what that means for a job that Fill has filled in: which of these fields its copy has, with all that Trainyard
// adds to it, and its demand on workers that make other pods of it. Where all workers do as the hub does, it costs nothing.
func (m *Missing) Set(job *dispatch.Job, object *unstructured.Unstructured, derived Demand, policies []dispatch.Policy) {
	type made struct {
		by  *dispatch.Variant
		how dispatch.Merging
	}
	changed := map[made][]v1alpha1.PodSet{} // Workers that make the same pods share them.
	for worker, merging := range m.Merging {
		same := made{job.Own.On(worker), merging}
		podSets, known := changed[same]
		if !known {
			if unmerged, differs := Unmerged(job.AssumedOn(worker), merging); differs {
				podSets = unmerged
			}
			changed[same] = podSets
		}
		if podSets != nil {
			job.Admit(worker, podSets)
		}
	}
	job.Fields, job.Runtime = nil, dispatch.Runtime{}
	if len(m.OfJobs) > 0 {
		job.Fields = fields.Unknown(translate.Fields(copySpec(job, object, policies)), m.OfJobs)
	}
	if unknown := fields.Unknown(derived.RuntimeFields, m.OfRuntimes); len(unknown) > 0 {
		kind, key := trainjobs.RuntimeOf(object)
		job.Runtime = dispatch.Runtime{Kind: kind, Key: key, Fields: unknown}
	}
}

// copySpec is the spec that the copy of a job has on some worker. The names of worker and domain do not count.
func copySpec(job *dispatch.Job, object *unstructured.Unstructured, policies []dispatch.Policy) map[string]any {
	spec := v1alpha1.DispatchSpec{
		TrainJob: v1alpha1.TrainJobReference{UID: job.UID}, Attempt: 1, Cluster: "any", PodSets: job.PodSets,
	}
	if job.Topology != nil {
		spec.Domain = &v1alpha1.Domain{Label: job.Topology.Label, Value: "any"}
		spec.PodSets = job.PodSetsIn(spec.Cluster, spec.Domain)
	}
	policy, _, _ := dispatch.SelectPolicy(policies, *job) // Package dispatch reports what is wrong with the policies.
	rules := policy.Rules()
	if rules.Checkpoint != nil {
		spec.Checkpoint = &v1alpha1.Checkpoint{Grace: job.Grace}
	}
	var flavors map[string]any
	if rules.HubFlavors == v1alpha1.HubFlavorsPropagate {
		flavors = trainjobs.FlavorsEntry(object, spec.PodSets)
	}
	return trainjobs.CopySpec(object, &spec, flavors)
}
