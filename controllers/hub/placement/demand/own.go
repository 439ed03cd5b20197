// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/record"
)

const (
	// mostKinds is of how many kinds of jobs the demands are kept.
	mostKinds = 1000
	// maxFault is how long the words about a runtime that cannot be used may be, in bytes.
	maxFault = 256
)

// ownDemands are the demands of jobs on workers with their own runtimes. Jobs of one kind share them, so nothing is derived
// for each job and each worker.
type ownDemands struct {
	mu      sync.Mutex
	demands map[kind]ownDemand // Under mu.
}

// kind is equal for jobs that get the same pods from each runtime.
type kind [sha256.Size]byte

// ownDemand is what was made of some runtimes. variants has it by the digests of their specs, and of no others: a worker
// may change its runtime for ever.
type ownDemand struct {
	of       *dispatch.OwnRuntimes
	demand   *dispatch.OwnDemand
	variants map[string]*dispatch.Variant
}

// runtimeKey is the name of a job's runtime. It fills in what the job's reference leaves out.
func runtimeKey(job *trainer.TrainJob) types.NamespacedName {
	reference := &job.Spec.RuntimeRef
	reference.APIGroup = ptr.To(ptr.Deref(reference.APIGroup, trainer.GroupVersion.Group))
	reference.Kind = ptr.To(ptr.Deref(reference.Kind, trainer.ClusterTrainingRuntimeKind))
	key := types.NamespacedName{Name: reference.Name}
	if *reference.Kind == trainer.TrainingRuntimeKind {
		key.Namespace = job.Namespace
	}
	return key
}

// own returns the demand of a job on the workers whose runtime makes other pods than the hub's. The policy takes any
// runtime. Of what the worker's runtime says only the pods count: a worker that edits its runtime gets no other Secrets from
// the hub, and changes neither the priority of a job nor its topology.
func (d *Deriver) own(job *trainer.TrainJob, runtimes *dispatch.OwnRuntimes, policy *v1alpha1.DispatchPolicy) (*dispatch.OwnDemand, error) {
	of, err := kindOf(job, policy)
	if err != nil {
		return nil, err
	}
	d.owned.mu.Lock()
	known := d.owned.demands[of]
	d.owned.mu.Unlock()
	if known.of == runtimes {
		return known.demand, nil
	}
	on, next := map[v1alpha1.ClusterName]*dispatch.Variant{}, ownDemand{of: runtimes, variants: map[string]*dispatch.Variant{}}
	for worker, comparison := range runtimes.On {
		if comparison.Outdated && *policy.Rules().Propagate.Runtimes {
			continue // It is replaced by the hub's before the copy is created.
		}
		digest := comparison.Own.Digest
		if next.variants[digest] == nil {
			next.variants[digest] = known.variants[digest]
		}
		if next.variants[digest] == nil {
			next.variants[digest] = d.deriveVariant(job, comparison.Own, policy)
		}
		on[worker] = next.variants[digest]
	}
	next.demand = dispatch.NewOwnDemand(on)
	d.owned.mu.Lock()
	defer d.owned.mu.Unlock()
	if d.owned.demands == nil || len(d.owned.demands) >= mostKinds {
		d.owned.demands = map[kind]ownDemand{}
	}
	d.owned.demands[of] = next
	return next.demand, nil
}

// kindOf returns the kind of a job under a policy. It leaves out what changes no pods: environment, command, image, sources of
// data, and when runtimePatches were written.
func kindOf(job *trainer.TrainJob, policy *v1alpha1.DispatchPolicy) (kind, error) {
	spec := job.Spec
	spec.Suspend, spec.ManagedBy = nil, nil
	if spec.Trainer != nil {
		without := *spec.Trainer
		without.Env, without.Args, without.Command, without.Image = nil, nil, nil, nil
		spec.Trainer = &without
	}
	spec.Initializer = nil
	spec.RuntimePatches = slices.Clone(spec.RuntimePatches)
	for i := range spec.RuntimePatches {
		spec.RuntimePatches[i].Time = nil
	}
	rules := policy.Rules()
	encoded, err := json.Marshal([]any{runtimeKey(job), spec, rules.Checkpoint, *rules.Propagate.Runtimes})
	if err != nil {
		return kind{}, fmt.Errorf("encode TrainJob %s/%s: %w", job.Namespace, job.Name, err)
	}
	return sha256.Sum256(encoded), nil
}

// deriveVariant applies a job to the runtime of a worker. The worker has written the runtime: whatever happens here concerns
// only jobs on workers with this runtime.
func (d *Deriver) deriveVariant(job *trainer.TrainJob, spec *dispatch.RuntimeSpec, policy *v1alpha1.DispatchPolicy) (made *dispatch.Variant) {
	made = &dispatch.Variant{Runtime: fmt.Sprintf("%s %q", *job.Spec.RuntimeRef.Kind, job.Spec.RuntimeRef.Name), Digest: spec.Digest}
	fault := func(words string) { made.PodSets, made.Grace, made.Fault = nil, nil, record.Cut(words, maxFault) }
	defer func() {
		if cause := recover(); cause != nil {
			fault(fmt.Sprintf("what it makes of the job is not known, because of a fault of Trainyard: %v", cause))
		}
	}()
	var own trainer.TrainingRuntimeSpec
	if err := json.Unmarshal(spec.JSON, &own); err != nil {
		fault(fmt.Sprintf("the hub cannot read its spec: %v", err))
		return made
	}
	derived, err := d.derive(job.DeepCopy(), &own)
	if err != nil {
		fault(err.Error())
		return made
	}
	made.PodSets = derived.PodSets
	made.Grace = giveGrace(made.PodSets, policy)
	return made
}
