// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package yard

import (
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/queue"
	"github.com/trainyard/trainyard/test/simulation/internal/stream"
	"github.com/trainyard/trainyard/test/simulation/internal/world"
)

const namespace = "simulation"

// fleet is a queue.Fleet of simulated workers.
type fleet struct {
	world   *world.World
	workers []dispatch.Worker
	byName  map[v1alpha1.ClusterName]int
	empty   []*dispatch.Nodes
	stale   []int // Workers that have changed since workers was made, some more than once.
	jobs    []map[int]placed
	// evictions are the jobs that others are being stopped for.
	evictions map[types.UID]*eviction
}

type placed struct {
	job   *stream.Job
	since time.Duration
}

type eviction struct {
	worker  v1alpha1.ClusterName
	victims []int
}

var _ queue.Fleet = &fleet{}

func newFleet(w *world.World) *fleet {
	f := &fleet{world: w, byName: map[v1alpha1.ClusterName]int{}, evictions: map[types.UID]*eviction{}}
	for i, worker := range w.Workers() {
		cluster, nodes := &v1alpha1.WorkerCluster{ObjectMeta: metav1.ObjectMeta{Name: worker.Name}}, nodesOf(worker.Levels)
		seen := dispatch.WorkerOf(cluster, nodes, dispatch.Resources{gpu: nodes.Free(gpu), cpu: nodes.Free(cpu)})
		seen.Revision = 1
		f.byName[seen.Name] = i
		f.empty = append(f.empty, nodes)
		f.jobs = append(f.jobs, map[int]placed{})
		f.workers = append(f.workers, seen)
	}
	return f
}

// Workers implements queue.Fleet.
func (f *fleet) Workers() []dispatch.Worker {
	for _, i := range f.stale {
		w := &f.workers[i]
		w.Nodes = nodesOf(f.world.Workers()[i].Levels)
		w.Assigned = len(f.jobs[i])
		w.Revision++
	}
	f.stale = f.stale[:0]
	return f.workers
}

func (f *fleet) touch(worker int) {
	if !slices.Contains(f.stale, worker) {
		f.stale = append(f.stale, worker)
	}
}

// Assign implements queue.Fleet. The pods are bound at once, by the worker's scheduler and not where dispatch has seen
// room for them.
func (f *fleet) Assign(job *queue.Job, decision dispatch.Decision) {
	at, worker := f.job(job.UID), f.byName[decision.Cluster]
	f.jobs[worker][at.ID] = placed{job: at, since: f.world.Now()}
	f.world.Place(at, worker)
	f.touch(worker)
}

func (f *fleet) job(uid types.UID) *stream.Job {
	id, err := strconv.Atoi(string(uid))
	if err != nil {
		panic(err) // System.Arrive makes them.
	}
	return f.world.Job(id)
}

// freed takes a job off a worker.
func (f *fleet) freed(worker, job int) {
	delete(f.jobs[worker], job)
	f.touch(worker)
	for uid, e := range f.evictions {
		e.victims = slices.DeleteFunc(e.victims, func(victim int) bool { return victim == job })
		if len(e.victims) == 0 {
			delete(f.evictions, uid)
		}
	}
}

// Empty implements queue.Fleet.
func (f *fleet) Empty(worker v1alpha1.ClusterName) *dispatch.Nodes { return f.empty[f.byName[worker]] }

// MayEvict implements queue.Fleet.
func (f *fleet) MayEvict(*queue.Job, v1alpha1.ClusterName) bool { return true }

// Evict implements queue.Fleet. A simulated worker takes every job.
func (f *fleet) Evict(preemption dispatch.Preemption, job *queue.Job) bool {
	e := &eviction{worker: preemption.Cluster}
	for i := range preemption.Victims {
		victim := f.job(preemption.Victims[i].UID)
		e.victims = append(e.victims, victim.ID)
		f.world.Evict(victim)
	}
	f.evictions[job.UID] = e
	return true
}

// Lose implements queue.Fleet.
func (f *fleet) Lose(panicked *dispatch.WorkerPanic) { panic(panicked.Value) }

// Evicting implements queue.Fleet.
func (f *fleet) Evicting(job types.UID) v1alpha1.ClusterName {
	if e := f.evictions[job]; e != nil {
		return e.worker
	}
	return ""
}

// Occupancy implements queue.Fleet.
func (f *fleet) Occupancy(worker v1alpha1.ClusterName) dispatch.Occupancy {
	return occupancy{fleet: f, worker: f.byName[worker]}
}

type occupancy struct {
	fleet  *fleet
	worker int
}

// Victims implements dispatch.Occupancy.
func (o occupancy) Victims() []dispatch.Victim {
	var victims []dispatch.Victim
	for id, p := range o.fleet.jobs[o.worker] {
		if o.fleet.isLeaving(id) {
			continue
		}
		name := strconv.Itoa(id)
		victims = append(victims, dispatch.Victim{
			UID: types.UID(name), Key: types.NamespacedName{Namespace: namespace, Name: name},
			Priority: p.job.Priority, Since: began.Add(p.since),
		})
	}
	return victims
}

func (f *fleet) isLeaving(job int) bool {
	for _, e := range f.evictions {
		if slices.Contains(e.victims, job) {
			return true
		}
	}
	return false
}

// Without implements dispatch.Occupancy.
func (o occupancy) Without(victims []types.UID) *dispatch.Nodes {
	jobs := make([]int, len(victims))
	for i, uid := range victims {
		jobs[i] = o.fleet.job(uid).ID
	}
	return nodesOf(func(visit func(*world.GroupSpec, world.Room, int)) {
		o.fleet.world.LevelsWithout(o.worker, jobs, visit)
	})
}
