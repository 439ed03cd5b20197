// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package joblogs

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/utils/ptr"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/hub"
)

// step is a part of a job with pods of its own.
type step struct {
	name          string
	replicatedJob string
	// state is Waiting if nothing is reported yet.
	state v1alpha1.StepState
	// podsPerJob times jobs is the number of the step's nodes. 0: not known.
	podsPerJob, jobs int32
	// waitsFor are the steps that must come before.
	waitsFor []dependency
}

// dependency is a step for which another step waits.
type dependency struct {
	step string
	// ready is true if the other step waits until this step is ready, and false if until this step has succeeded.
	ready bool
}

// unmet returns the steps for which a step still waits, with their state.
func (s step) unmet(steps []step) []step {
	var unmet []step
	for _, before := range s.waitsFor {
		for _, other := range steps {
			met := other.state == v1alpha1.StepSucceeded || before.ready && other.state == v1alpha1.StepRunning
			if other.name == before.step && !met {
				unmet = append(unmet, other)
			}
		}
	}
	return unmet
}

// nodes returns how many nodes the step has, or 0 if that is not known.
func (s step) nodes() int32 { return s.podsPerJob * s.jobs }

// steps returns the steps of the job, in the order of its runtime. They come from its JobSet, or from its status, or
// from its pods. There are none before the JobSet exists.
func (s *snapshot) steps() []step {
	var steps []step
	add := func(replicatedJob string) *step {
		if at := slices.IndexFunc(steps, func(known step) bool { return known.replicatedJob == replicatedJob }); at >= 0 {
			return &steps[at]
		}
		steps = append(steps, step{
			name: trainjobs.StepName(replicatedJob), replicatedJob: replicatedJob, state: v1alpha1.StepWaiting,
		})
		return &steps[len(steps)-1]
	}
	if s.jobSet != nil {
		for i := range s.jobSet.Spec.ReplicatedJobs {
			job := &s.jobSet.Spec.ReplicatedJobs[i]
			at := add(job.Name)
			at.jobs, at.podsPerJob = job.Replicas, ptr.Deref(job.Template.Spec.Parallelism, 1)
			for _, before := range job.DependsOn {
				at.waitsFor = append(at.waitsFor, dependency{
					step: trainjobs.StepName(before.Name), ready: before.Status == jobsetv1alpha2.DependencyReady,
				})
			}
		}
	}
	if s.typed != nil {
		reported := trainjobs.Steps(s.typed.Status.JobsStatus)
		for i, job := range s.typed.Status.JobsStatus {
			add(job.Name).state = reported[i].State
		}
	}
	for _, pod := range s.pods {
		if name := pod.Labels[jobsetv1alpha2.ReplicatedJobNameKey]; name != "" {
			add(name)
		}
	}
	return steps
}

func stepNames(steps []step) []string {
	var names []string
	for _, s := range steps {
		names = append(names, s.name)
	}
	return names
}

// chooseStep returns the named step. Without a name, it is where the training prints: MPI's launcher or the trainer.
func chooseStep(job string, steps []step, name string) (step, error) {
	candidates := []string{trainjobs.StepName(name)} // The name of the replicated job works too.
	if name == "" {
		candidates = []string{v1alpha1.StepLauncher, v1alpha1.StepTrainer}
	}
	for _, candidate := range candidates {
		if at := slices.IndexFunc(steps, func(s step) bool { return s.name == candidate }); at >= 0 {
			return steps[at], nil
		}
	}
	names := stepNames(steps)
	switch {
	case name != "":
		return step{}, fmt.Errorf("TrainJob %q has no step %q%s; its steps are: %s", job, name, hub.DidYouMean(name, names), strings.Join(names, ", "))
	case len(steps) == 1:
		return steps[0], nil
	default:
		return step{}, fmt.Errorf("TrainJob %q has no step launcher or trainer: choose one with --step: %s", job, strings.Join(names, ", "))
	}
}

// checkNode returns an error for a node that the step does not have.
func checkNode(s step, node int32) error {
	switch nodes := s.nodes(); {
	case nodes == 0 || node < nodes:
		return nil
	case nodes == 1:
		return fmt.Errorf("step %s has no node %d: it has one node, 0", s.name, node)
	default:
		return fmt.Errorf("step %s has no node %d: its %d nodes are 0 to %d", s.name, node, nodes, nodes-1)
	}
}
