// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package yard

import (
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/queue"
	"github.com/trainyard/trainyard/test/simulation/internal/stream"
	"github.com/trainyard/trainyard/test/simulation/internal/world"
)

// began is when the virtual time begins, for code that needs dates.
var began = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// System dispatches as Trainyard does.
type System struct {
	world    *world.World
	queue    *queue.Queue
	fleet    *fleet
	policies []dispatch.Policy
	podSets  map[string][]v1alpha1.PodSet
	clock    func() time.Time
	effort   Effort
}

var _ world.System = &System{}

// Effort is what decisions have cost, on the clock of this machine.
type Effort struct {
	// Passes of the queue, and Took the time in them. It has in it what the simulator does to bind pods and to lay out
	// nodes again.
	Passes int
	Took   time.Duration
	// Placed is how many times a job got a worker. Answered is how many times a job got a new reason why it waits.
	Placed, Answered int
}

// New returns a system under one policy. The clock is that by which Effort is measured.
func New(w *world.World, policy v1alpha1.DispatchPolicySpec, clock func() time.Time) *System {
	return &System{
		world: w,
		queue: queue.New(),
		fleet: newFleet(w),
		policies: []dispatch.Policy{{DispatchPolicy: &v1alpha1.DispatchPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: "simulation"}, Spec: policy,
		}}},
		podSets: map[string][]v1alpha1.PodSet{},
		clock:   clock,
	}
}

// Effort so far.
func (s *System) Effort() Effort { return s.effort }

// Arrive implements world.System.
func (s *System) Arrive(job *stream.Job) {
	shape := job.Shape()
	podSets, known := s.podSets[shape]
	if !known {
		podSets = podSetsOf(job)
		s.podSets[shape] = podSets
	}
	name := strconv.Itoa(job.ID)
	waits := dispatch.JobOf(&metav1.ObjectMeta{UID: types.UID(name), Namespace: namespace, Name: name}, nil)
	waits.Priority, waits.PodSets = job.Priority, podSets
	s.queue.Enter(queue.Job{
		Job: waits, Class: shape, Policies: s.policies, Created: began.Add(job.Submitted), Since: began.Add(s.world.Now()),
	})
}

// Freed implements world.System.
func (s *System) Freed(worker int, job *stream.Job) { s.fleet.freed(worker, job.ID) }

// Decide implements world.System.
func (s *System) Decide() {
	start := s.clock()
	outcomes := s.queue.Pass(began.Add(s.world.Now()), s.fleet)
	s.effort.Took += s.clock().Sub(start)
	s.effort.Passes++
	for i := range outcomes {
		if outcomes[i].Decision.Cluster != "" {
			s.effort.Placed++
		} else {
			s.effort.Answered++
		}
	}
}

// Wake implements world.System.
func (s *System) Wake() time.Duration {
	next := s.queue.Next()
	if next.IsZero() {
		return world.Never
	}
	return max(next.Sub(began), s.world.Now()+time.Second)
}

const (
	gpu          corev1.ResourceName = "nvidia.com/gpu"
	cpu                              = corev1.ResourceCPU
	productLabel                     = "nvidia.com/gpu.product"
)

// podSetsOf is the demand of a job as package dispatch takes it.
func podSetsOf(job *stream.Job) []v1alpha1.PodSet {
	var sets []v1alpha1.PodSet
	for i := range job.Pods {
		p := &job.Pods[i]
		set := v1alpha1.PodSet{
			Name: fmt.Sprint("node-", i), Role: v1alpha1.RoleTrainer, Count: int32(p.Count), Requests: corev1.ResourceList{},
		}
		if p.GPUs > 0 {
			set.Requests[gpu] = *resource.NewQuantity(int64(p.GPUs), resource.DecimalSI)
		}
		if p.Millicores > 0 {
			set.Requests[cpu] = *resource.NewMilliQuantity(int64(p.Millicores), resource.DecimalSI)
		}
		switch len(p.Products) {
		case 0:
		case 1:
			set.NodeSelector = map[string]string{productLabel: p.Products[0]}
		default:
			set.NodeAffinity = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key: productLabel, Operator: corev1.NodeSelectorOpIn, Values: p.Products,
				}},
			}}}
		}
		sets = append(sets, set)
	}
	return sets
}

// nodesOf is what nodes have free as package dispatch takes it.
func nodesOf(levels func(visit func(spec *world.GroupSpec, room world.Room, nodes int))) *dispatch.Nodes {
	var groups []dispatch.NodeGroup
	levels(func(spec *world.GroupSpec, room world.Room, nodes int) {
		groups = append(groups, dispatch.NodeGroup{
			Labels: map[string]string{productLabel: spec.Product}, Count: nodes,
			Free: dispatch.Resources{gpu: int64(room.GPUs), cpu: int64(room.Millicores)},
		})
	})
	return dispatch.NewNodes(groups)
}
