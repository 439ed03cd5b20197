// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"context"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
)

// Hub is what the hub knows of a job beside its TrainJob and runtime.
type Hub struct {
	Policies []dispatch.Policy
	Classes  Priorities
	// Flavors returns the flavors that the hub's Kueue has assigned. nil: those that Kueue has written into the TrainJob.
	Flavors func() (*trainer.RuntimePatch, error)
	// Priority of the job's Workload, nil if the hub's Kueue has none for the job.
	Priority *int32
	// Own returns the workers on which a runtime may make other pods than the hub's, nil for none. Nil: nothing is known.
	Own func(runtime types.NamespacedName) *dispatch.OwnRuntimes
}

// Fill fills in what a job needs: its WorkerQueue, AddNodes, RequiredRuntime, PinsRuntime, PodSets, Own, Grace,
// Claim, topology and priority. The error is as that of Of, or an Obstacle of the job's flavors, checkpoint, data,
// topology or classes. The demand is empty if it could not be derived. Pass a copy of the TrainJob: Fill writes to
// it.
func (d *Deriver) Fill(ctx context.Context, job *dispatch.Job, trainJob *trainer.TrainJob, hub Hub) (Demand, error) {
	// Package dispatch reports what is wrong with the policies.
	policy, _, _ := dispatch.SelectPolicy(hub.Policies, *job)
	var rules *v1alpha1.DispatchPolicy
	if policy != nil {
		rules, job.WorkerQueue, job.AddNodes = policy.DispatchPolicy, policy.Spec.WorkerQueue, policy.Spec.AddNodes
	}
	flavors, err := hub.flavors(trainJob, rules)
	if err != nil {
		return Demand{}, obstacle(v1alpha1.ReasonWaitingForWorkload, "%v", err)
	}
	trainjobs.SetHubFlavors(trainJob, flavors)
	var own *dispatch.OwnRuntimes
	key, whole := runtimeKey(trainJob), trainJob
	if hub.Own != nil && rules.Rules().Runtime == v1alpha1.RuntimeAny {
		if own = hub.Own(key); own != nil {
			whole = trainJob.DeepCopy() // Of writes to the other.
		}
	}
	derived, err := d.Of(ctx, trainJob)
	if err != nil {
		return Demand{}, err
	}
	job.PodSets, job.RequiredRuntime = derived.PodSets, requiredRuntime(key, derived.Runtime, rules.Rules())
	job.PinsRuntime = rules.Rules().Runtime == v1alpha1.RuntimePin
	if kinds := rules.Rules().Propagate.Dependencies; len(kinds) > 0 {
		if derived.Dependencies, derived.Needed, err = derived.dependencies(kinds); err != nil {
			return derived, err
		}
	}
	if err := checkpoint(job, rules); err != nil {
		return derived, err
	}
	if own != nil {
		if job.Own, err = d.own(whole, own, rules); err != nil {
			return derived, err
		}
	}
	if derived.Reads, err = readsOf(trainJob, rules); err != nil {
		return derived, err
	}
	if job.Topology, err = topologyOf(job.Annotations, derived.Topologies); err != nil {
		return derived, err
	}
	named := Named{Annotations: job.Annotations, OfPods: derived.PriorityClasses, OfWorkload: hub.Priority}
	if !job.QueuedOnHub || job.WorkerQueue != "" { // Otherwise the label is for the hub's Kueue, and stays on the hub.
		named.OfQueue = job.Labels[v1alpha1.LabelWorkloadPriorityClass]
	}
	job.Priority, err = hub.Classes.Of(named, rules)
	return derived, err
}

// requiredRuntime is the runtime that a worker must have for a job, nil if the policy takes any.
func requiredRuntime(key types.NamespacedName, version string, rules v1alpha1.DispatchPolicySpec) *dispatch.RequiredRuntime {
	if rules.Runtime != v1alpha1.RuntimeSame {
		return nil
	}
	return &dispatch.RequiredRuntime{Key: key, Version: version, Propagated: *rules.Propagate.Runtimes}
}

// flavors returns what the flavors that the hub's Kueue has assigned to a job say about nodes, nil for nothing that
// counts. Kueue writes it into the job when it resumes the job. Before that, the Workload names the flavors.
func (h *Hub) flavors(job *trainer.TrainJob, rules *v1alpha1.DispatchPolicy) (*trainer.RuntimePatch, error) {
	switch {
	case !rules.RequiresHubFlavors():
		return nil, nil //nolint:nilnil // Nil is an entry that says nothing.
	case h.Flavors != nil:
		return h.Flavors()
	}
	return trainjobs.KueueFlavors(job), nil
}
