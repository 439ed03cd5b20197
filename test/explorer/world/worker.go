// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/v1alpha1"
	workerlease "github.com/trainyard/trainyard/executionlease/worker"
	"github.com/trainyard/trainyard/test/explorer/memory"
)

// Worker is a cluster that runs jobs.
type Worker struct {
	world  *World
	name   v1alpha1.ClusterName
	id     types.UID
	server *memory.Server
	// down: the API server answers nobody. Pods live on.
	down   bool
	agents []*agent
	// leader of the agents, nil while there is none. nextAt is when the next agent leads.
	leader *agent
	nextAt time.Duration
	// handovers are when leaders changed, within the time that the hub's margin is for.
	handovers []time.Duration
}

// agent is one replica of the worker-agent.
type agent struct {
	process
	worker  *Worker
	replica *workerlease.Replica
	end     func()
	// startAt is when it is started again after a crash.
	startAt time.Duration
}

func newWorker(w *World, name v1alpha1.ClusterName) *Worker {
	k := &Worker{world: w, name: name, id: types.UID("id-of-" + name)}
	k.server = memory.NewServer(string(name), func() time.Duration { return w.now }, (&Clock{world: w, rate: 1000, offset: w.skew()}).at)
	k.server.Unlocked = w.Broken.NoLocks
	k.server.Changed = w.observe
	k.server.Tried = func(copy client.Object) {
		w.ledger.accepted[given{types.UID(copy.GetLabels()[v1alpha1.LabelOriginUID]), "", k.server.Name}] = true
		w.Seen["Accepted"]++
	}
	create(k.server, namespaceObject(), trainingRuntime())
	for i := range 2 {
		a := &agent{worker: k}
		a.process = process{world: w, name: fmt.Sprintf("%s/agent%d", name, i), clock: w.newClock()}
		a.reaches = func(*memory.Server) bool { return !k.down }
		k.agents = append(k.agents, a)
		w.processes = append(w.processes, &a.process)
		a.start()
	}
	k.lead(k.agents[0])
	return k
}

// start starts the process of an agent with an empty memory.
func (a *agent) start() {
	k := a.worker
	a.alive, a.startAt, a.pausedUntil, a.end = true, 0, 0, nil
	jobs, pods := k.server.NewView(memory.TrainJob, 0, nil), k.server.NewView(memory.Pod, 0, nil)
	jobSets, leases := k.server.NewView(memory.JobSet, 0, nil), k.server.NewView(memory.ExecutionLease, 0, nil)
	worker := &memory.Client{
		Server: k.server, Line: a.line, Actor: a.name, Indexes: map[string]func(client.Object) []string{workerlease.PodIndex: jobSetOf},
		Views: map[memory.Kind]*memory.View{memory.TrainJob: jobs, memory.Pod: pods, memory.JobSet: jobSets, memory.ExecutionLease: leases},
	}
	var trainer, stops, hubs *loop
	a.replica = workerlease.NewReplica(workerlease.Options{Identity: a.name, Clock: a.clock}, workerlease.Parts{
		Client: worker, Leases: worker, Live: worker.Live(), Recorder: silent{},
		Waiting: func(key types.NamespacedName) { trainer.Add(key) },
		Stops:   func(key types.NamespacedName) { stops.Add(key) },
		Hubs:    func(key types.NamespacedName) { hubs.Add(key) },
	})
	trainer = a.add("trainer", true, reconcileFunc(a.train))
	stops = a.add("copies", true, a.replica.Copies)
	hubs = a.add("lease", true, a.replica.Hubs)
	if a.world.Broken.AgentStopsNothing {
		stops.reconciler = reconcileFunc(func(context.Context, types.NamespacedName) (time.Duration, error) { return 0, nil })
	}
	sees := func(change memory.Change) {
		trainer.Add(change.Key)
		if a.sees(change) {
			stops.Add(change.Key)
		}
	}
	work := func(change memory.Change) {
		key := types.NamespacedName{Namespace: change.Key.Namespace, Name: jobOf(change)}
		trainer.Add(key)
		stops.Add(key)
	}
	a.feeds = []*feed{
		{name: "TrainJobs", view: jobs, from: k.server, tell: sees},
		{name: "Pods", view: pods, from: k.server, tell: work},
		{name: "JobSets", view: jobSets, from: k.server, tell: work},
		{name: "ExecutionLeases", view: leases, from: k.server, tell: func(change memory.Change) { hubs.Add(change.Key) }},
	}
	for _, version := range jobs.List() {
		sees(memory.Change{Kind: memory.TrainJob, Key: client.ObjectKeyFromObject(version.Object), After: version})
	}
	for _, version := range leases.List() {
		hubs.Add(client.ObjectKeyFromObject(version.Object))
	}
}

// sees tells fencing of an event of a TrainJob, and says whether it has to be looked at.
func (a *agent) sees(change memory.Change) bool {
	switch {
	case change.Before == nil:
		a.replica.Watch.OnAdd(change.After.Job(), false)
		return a.replica.News.Create(event.CreateEvent{Object: change.After.Job()})
	case change.After == nil:
		a.replica.Watch.OnDelete(change.Before.Job())
		return a.replica.News.Delete(event.DeleteEvent{Object: change.Before.Job()})
	default:
		a.replica.Watch.OnUpdate(change.Before.Job(), change.After.Job())
		return a.replica.News.Update(event.UpdateEvent{ObjectOld: change.Before.Job(), ObjectNew: change.After.Job()})
	}
}

// lead has an agent lead.
func (k *Worker) lead(a *agent) {
	k.leader, k.nextAt = a, 0
	a.end = a.replica.Lead()
}

// crash ends the process of an agent. Its successor leads when the Lease is over.
func (a *agent) crash(restart, handover time.Duration) {
	a.die()
	a.startAt = a.world.now + restart
	if a.worker.leader == a {
		a.worker.succeed(handover)
	}
}

// succeed makes another agent lead after a time.
func (k *Worker) succeed(after time.Duration) {
	k.leader, k.nextAt = nil, k.world.now+after
	k.handovers = append(k.handovers, k.world.now)
}

// elections does what is due in the elections, and returns when something is due next.
func (k *Worker) elections() time.Duration {
	w, next := k.world, never
	for _, a := range k.agents {
		if !a.alive && a.startAt <= w.now && !k.down {
			a.start()
		} else if !a.alive && a.startAt > w.now {
			next = min(next, a.startAt)
		}
	}
	for _, a := range k.agents {
		next = min(next, a.retire())
	}
	if k.leader != nil {
		return next
	}
	if k.nextAt > w.now {
		return min(next, k.nextAt)
	}
	for _, a := range k.agents {
		if a.active() && !k.down {
			k.lead(a)
			return next
		}
	}
	return next
}

// retire ends the lead of an agent that was paused while another agent began to lead. It does so a moment after the
// pause.
func (a *agent) retire() time.Duration {
	if a.end == nil || a.worker.leader == a || !a.alive {
		return never
	}
	if due := a.pausedUntil + time.Second; due > a.world.now {
		return due
	}
	a.end()
	a.end = nil
	return never
}

// mayFail is true if there may be one more change of leader: the hub's margin covers maxHandovers of them.
func (k *Worker) mayFail() bool {
	recent := 0
	for _, at := range k.handovers {
		if k.world.now-at < fenceAfter+fenceMargin {
			recent++
		}
	}
	alive := 0
	for _, a := range k.agents {
		if a.active() {
			alive++
		}
	}
	return recent < maxHandovers && alive == len(k.agents) && k.leader != nil && !k.down
}

func jobSetOf(object client.Object) []string {
	return []string{object.GetLabels()[jobsetv1alpha2.JobSetNameKey]}
}

// jobOf is the name of the TrainJob that a pod or JobSet belongs to.
func jobOf(change memory.Change) string {
	version := change.After
	if version == nil {
		version = change.Before
	}
	if change.Kind == memory.Pod {
		return version.Object.GetLabels()[jobsetv1alpha2.JobSetNameKey]
	}
	return version.Object.GetName()
}
