// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/failover"
	"github.com/trainyard/trainyard/controllers/hub/garbagecollection"
	"github.com/trainyard/trainyard/controllers/hub/mirror"
	"github.com/trainyard/trainyard/dispatch/judgement"
	hublease "github.com/trainyard/trainyard/executionlease/hub"
	"github.com/trainyard/trainyard/internal/copies"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/explorer/memory"
)

// Manager is one process of the hub that leads, or has led.
type Manager struct {
	process
	candidate
	// cut are the workers that it cannot reach.
	cut map[v1alpha1.ClusterName]bool
	// cutOff: it cannot reach the hub's API server.
	cutOff bool

	hub         *memory.Client
	live        client.Reader
	connections []*connection
	answerer    *hublease.Answerer
	quarantine  *garbagecollection.Quarantine
	placer      *placer
	trials      *mirror.Trials

	workers, failover, placement, report *loop
}

func newManager(w *World, name string) *Manager {
	m := &Manager{cut: map[v1alpha1.ClusterName]bool{}}
	m.process = process{world: w, name: name, clock: w.newClock()}
	m.reaches = func(server *memory.Server) bool {
		if server == w.Hub {
			return !m.cutOff
		}
		k := w.worker(v1alpha1.ClusterName(server.Name))
		return !k.down && !m.cut[k.name]
	}
	w.processes = append(w.processes, &m.process)
	return m
}

// indexes takes functions as the indexer of a manager does.
type indexes map[string]func(client.Object) []string

// IndexField implements client.FieldIndexer.
func (i indexes) IndexField(_ context.Context, _ client.Object, field string, of client.IndexerFunc) error {
	i[field] = of
	return nil
}

// hubIndexes are the indexes of the manager's caches of the hub.
func hubIndexes() indexes {
	found := indexes{}
	_ = records.AddIndexes(context.Background(), found)
	return found
}

// start starts the process with an empty memory. Its caches of the hub are as many changes behind, at most.
func (m *Manager) start(behind int) {
	w := m.world
	m.alive, m.pausedUntil = true, 0
	m.connections = nil
	m.hub = &memory.Client{
		Server: w.Hub, Line: m.line, Actor: m.name, Views: map[memory.Kind]*memory.View{},
		Indexes: hubIndexes(),
	}
	m.live = m.hub.Live()
	if w.Broken.CacheInsteadOfHub {
		m.live = m.hub
	}
	m.answerer = hublease.NewAnswerer(hublease.Options{
		Hub: m.hub, HubReader: m.live, HubID: hubID, Manager: m.name, Margin: fenceMargin,
		Leading: m.certain, Clock: m.clock,
	})
	m.quarantine = garbagecollection.NewQuarantine(garbagecollection.QuarantineOptions{
		Hub: m.hub, Recorder: silent{}, Clock: m.clock, Enqueue: m.enqueue,
	})
	m.quarantine.Subscribe(func(key types.NamespacedName) { m.wake(key) })
	m.placer = &placer{manager: m, began: m.clock.Now(), remembered: map[types.UID]int32{}, asked: map[types.UID]asked{}}
	m.trials = mirror.NewTrials(m.enqueue, m.clock)
	m.placement = m.add("placement", true, reconcileFunc(m.placer.place))
	m.failover = m.add("failover", true, failover.NewReconciler(failover.Options{
		Hub: m.hub, HubReader: m.live, Connections: contacts{m}, Agents: agents{m.answerer.Agents(), w.Broken.NoWaitForStop, m.clock},
		Recorder: silent{}, Clock: m.clock, PauseAt: 2, DeletionGrace: deletionGrace, Parallel: 1,
	}))
	m.workers = m.add("workers", false, reconcileFunc(m.register))
	m.report = m.add("quarantine", false, m.quarantine)
	m.add("begin", false, reconcileFunc(m.begin)).Add(types.NamespacedName{})
	m.hub.Views[memory.Namespace] = w.Hub.NewView(memory.Namespace, 0, nil) // It never changes.
	m.feedHub(memory.WorkerCluster, behind, m.workerSeen)
	m.feedHub(memory.Dispatch, behind, m.dispatchSeen) // What has finished is read in this order.
	m.feedHub(memory.TrainJob, behind, m.jobSeen)
	m.feedHub(memory.Tombstone, behind, m.tombstoneSeen)
	m.add("rest", false, reconcileFunc(m.readRest)).Add(types.NamespacedName{})
	for _, k := range w.workers {
		c := &connection{manager: m, worker: k}
		c.status.Since = m.clock.Now()
		m.connections = append(m.connections, c)
		m.add("probe "+string(k.name), false, reconcileFunc(c.probe)).Add(c.key())
	}
}

// begin is what is done when a process begins to lead.
func (m *Manager) begin(ctx context.Context, _ types.NamespacedName) (time.Duration, error) {
	if !m.reaches(m.world.Hub) {
		return time.Second, nil
	}
	// In reality the manager repeats the read of the records until it succeeds. Here it succeeds at once.
	running := m.world.running
	m.world.running = nil
	defer func() { m.world.running = running }()
	if err := m.answerer.Start(ctx); err != nil {
		return 0, err
	}
	m.quarantine.Begin()
	return 0, nil
}

// feedHub adds a cache of the hub, and tells of what is in it.
func (m *Manager) feedHub(kind memory.Kind, behind int, tell func(memory.Change)) {
	view := m.world.Hub.NewView(kind, behind, nil)
	if late := m.late(kind); late != nil {
		view.Delay(late)
	}
	m.hub.Views[kind] = view
	m.feeds = append(m.feeds, &feed{name: "hub " + string(kind), view: view, from: m.world.Hub, tell: tell})
	for _, version := range view.List() {
		tell(memory.Change{Kind: kind, Key: client.ObjectKeyFromObject(version.Object), After: version})
	}
}

// late says which objects a cache of the hub reads last, as those of package hubcache do: Dispatches that have finished,
// and TrainJobs without another Dispatch.
func (m *Manager) late(kind memory.Kind) func(client.Object) bool {
	switch kind {
	case memory.Dispatch:
		return func(d client.Object) bool { return d.(*v1alpha1.Dispatch).Status.Phase == v1alpha1.PhaseFinished }
	case memory.TrainJob:
		return func(job client.Object) bool {
			return m.hub.Views[memory.Dispatch].Get(client.ObjectKeyFromObject(job)) == nil
		}
	default:
		return nil
	}
}

// readRest takes in one object that a cache of the hub reads late.
func (m *Manager) readRest(context.Context, types.NamespacedName) (time.Duration, error) {
	for _, f := range m.feeds {
		if change, ok := f.view.ReadLate(); ok {
			f.tell(change)
			return readTime, nil
		}
	}
	return 0, nil
}

// addWorker adds the caches of a worker and its controllers.
func (m *Manager) addWorker(ctx context.Context, c *connection) {
	name, s := string(c.worker.name), c.worker.server
	inherited, err := mirror.Inherited(ctx, m.hub, c.worker.name)
	if err != nil {
		panic(err) // A cache answers.
	}
	c.client = &memory.Client{
		Server: s, Line: m.line, Actor: m.name, Views: map[memory.Kind]*memory.View{},
		Indexes: map[string]func(client.Object) []string{remote.IndexJobSet: jobSetOf},
	}
	var collector mirror.Collector = garbagecollection.NewCollector(m.collection(c))
	if m.world.Broken.NoCollector {
		collector = idle{collector}
	}
	mirrors := m.add("mirror "+name, true, mirror.NewReconciler(mirror.Options{
		Cluster: c.worker.name, ClusterID: c.worker.id, HubID: hubID, Hub: m.hub, HubReader: m.live, Worker: c,
		Lease:  func() (string, bool) { return m.answerer.Agents().Valid(c.worker.name, c.worker.id) },
		Policy: noPolicy, Recorder: silent{}, Clock: m.clock, Inherited: inherited, Trials: m.trials, Collector: collector,
	}))
	leases := m.add("lease "+name, false, m.answerer.For(c.worker.name, c))
	m.add("sweep "+name, false, reconcileFunc(c.sweep))
	copies := func(change memory.Change) { mirrors.Add(change.Key) }
	ours := func(object client.Object) bool { return object.GetLabels()[v1alpha1.LabelHub] == hubID }
	for _, f := range []*feed{
		{name: "TrainJobs", view: s.NewView(memory.TrainJob, 0, ours), tell: copies},
		{name: "Pods", view: s.NewView(memory.Pod, 0, func(client.Object) bool { return !m.world.Broken.NoPodsSeen })},
		{name: "JobSets", view: s.NewView(memory.JobSet, 0, nil)},
		{name: "ExecutionLeases", view: s.NewView(memory.ExecutionLease, 0, nil), tell: func(change memory.Change) { leases.Add(change.Key) }},
		{name: "Namespaces", view: s.NewView(memory.Namespace, 0, nil)},
		{name: "Runtimes", view: s.NewView(memory.Runtime, 0, nil)},
	} {
		kind := f.view.Kind()
		f.name, f.from = name+" "+string(kind), s
		c.client.Views[kind] = f.view
		m.feeds = append(m.feeds, f)
	}
}

func (m *Manager) collection(c *connection) garbagecollection.Options {
	return garbagecollection.Options{
		Cluster: c.worker.name, ClusterID: c.worker.id, HubID: hubID, ManagedBy: managedBy, Hub: m.hub, HubReader: m.live, Worker: c,
		WorkerCache: c.client, Swept: c.over, Quarantine: m.quarantine, Others: m.other, Recorder: silent{}, Clock: m.clock,
		Retention: func(context.Context, *unstructured.Unstructured) (time.Duration, error) { return retention, nil },
	}
}

// other is the connection to a worker.
func (m *Manager) other(name v1alpha1.ClusterName, _ types.UID) (copies.Connection, bool) {
	for _, c := range m.connections {
		if c.worker.name == name {
			return c, true
		}
	}
	return nil, false
}

// enqueue brings a key to the mirror of a worker.
func (m *Manager) enqueue(worker v1alpha1.ClusterName, key types.NamespacedName) {
	if l := m.loop("mirror " + string(worker)); l != nil {
		l.Add(key)
	}
}

// idle collects nothing.
type idle struct{ mirror.Collector }

// Collect implements mirror.Collector.
func (idle) Collect(
	context.Context, copies.Worker, types.NamespacedName, *unstructured.Unstructured, judgement.Seen, judgement.Copy,
) (time.Duration, error) {
	return 0, nil
}

// Execute implements mirror.Collector.
func (idle) Execute(context.Context, copies.Worker, string) (time.Duration, error) { return 0, nil }

// contacts are the connections as failover sees them.
type contacts struct{ *Manager }

// Contact implements failover.Connections.
func (m contacts) Contact(worker v1alpha1.ClusterName) failover.Contact {
	for _, c := range m.connections {
		if c.worker.name != worker {
			continue
		}
		contact := failover.Contact{Answers: c.connected()}
		if c.status.State.String() == "Unreachable" {
			contact.UnreachableSince, contact.SilentSince = c.status.Since, c.status.SilentSince
		}
		return contact
	}
	return failover.Contact{}
}

// Subscribe implements failover.Connections. The connections call failover themselves.
func (m contacts) Subscribe(func(v1alpha1.ClusterName)) (cancel func()) { return func() {} }

// agents are the Answerer's, but do not wait if they are broken.
type agents struct {
	*hublease.Agents
	broken bool
	clock  *Clock
}

// StoppedAt implements failover.Agents.
func (a agents) StoppedAt(worker v1alpha1.ClusterName, id types.UID) (time.Time, bool) {
	at, known := a.Agents.StoppedAt(worker, id)
	if a.broken && known {
		return a.clock.Now().Add(-time.Second), true
	}
	return at, known
}
