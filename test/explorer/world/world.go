// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/explorer/memory"
)

// Settings of the parts. fenceMargin is exactly what three changes of leader need, as executionlease/protocol says.
const (
	fenceAfter    = time.Minute
	fenceMargin   = 90 * time.Second
	gracePeriod   = 5 * time.Second
	deletionGrace = 2 * time.Minute
	retention     = 30 * time.Second
	// readTime is how long a cache takes for each object that it reads late.
	readTime     = 500 * time.Millisecond
	maxHandovers = 3
	// maxLag is how long a change takes to be seen, at most, where nothing is wrong with the network.
	maxLag = 4 * time.Second
	// maxSkew is how wrong a clock is at most.
	maxSkew = 300 * time.Second

	hubID     = "hub-1"
	managedBy = v1alpha1.ManagedByDispatcher
	namespace = "default"
)

// errLost is the error of a request whose result nobody knows.
var errLost = errors.New("the request has got no answer")

// Broken says which rules do not hold. It is for tests of the explorer, which has to find each broken rule.
type Broken struct {
	// AgentStopsNothing: agents never stop copies.
	AgentStopsNothing bool
	// NoWaitForStop: the hub does not wait until copies must have stopped.
	NoWaitForStop bool
	// NoSweep: copies on a worker that is back are not deleted before it gets jobs.
	NoSweep bool
	// CacheInsteadOfHub: the controllers read a cache in place of the hub's API server.
	CacheInsteadOfHub bool
	// NoLocks: the API servers of hub and workers do not compare versions.
	NoLocks bool
	// RefusedIsSilent: a worker that refuses connections counts as cut off.
	RefusedIsSilent bool
	// NoDoubt: a manager writes to the hub while another manager may lead.
	NoDoubt bool
	// NoPodsSeen: managers see neither the pods of workers nor the JobSets that make them.
	NoPodsSeen bool
	// NoTrials: jobs are stopped for a job though the worker has not said that it takes that job.
	NoTrials bool
	// NoCollector: garbage collectors of managers do nothing.
	NoCollector bool
	// NoTombstonesSeen: jobs are given up though a worker may have a copy.
	NoTombstonesSeen bool
}

// World has a hub, its workers, all processes, and the messages that are under way.
type World struct {
	Broken Broken
	// GiveUpAfter is giveUpAfter of the policy of all jobs. 0: no job is given up.
	GiveUpAfter time.Duration
	Hub         *memory.Server
	// Steps counts the steps so far.
	Steps int
	// Seen counts what has happened to jobs, for example by the outcomes of attempts.
	Seen map[string]int

	ctx       context.Context
	now       time.Duration
	draw      func(n int) int
	workers   []*Worker
	managers  []*Manager
	processes []*process
	running   *task
	limbo     []*message
	backups   []memory.Snapshot
	lease     lease
	violation string
	ledger    ledger
	digest    interface {
		io.Writer
		Sum64() uint64
	}
	// Tell is called with each event, for traces. It may be nil.
	Tell func(string)
	// busy counts the writes of managers, except writes that keep a lease. last is the last such write.
	busy int
	last string
	// restored: the hub was, and not all workers were looked at since.
	restored bool
	// forgetful: it was at some time.
	forgetful bool
}

// message is a request that is still on its way.
type message struct {
	name   string
	call   *memory.Call
	server *memory.Server
}

// New makes a world with some workers and one manager. draw draws the random numbers of the beginning, for clocks.
func New(ctx context.Context, workers int, broken Broken, draw func(n int) int) *World {
	w := &World{ctx: ctx, Broken: broken, draw: draw, Seen: map[string]int{}, digest: fnv.New64a(), ledger: newLedger()}
	w.Hub = memory.NewServer("hub", func() time.Duration { return w.now }, (&Clock{world: w, rate: 1000, offset: w.skew()}).at)
	w.Hub.Unlocked = broken.NoLocks
	create(w.Hub, namespaceObject())
	for i := range workers {
		name := v1alpha1.ClusterName(fmt.Sprintf("w%d", i+1))
		w.workers = append(w.workers, newWorker(w, name))
		create(w.Hub, &v1alpha1.WorkerCluster{
			ObjectMeta: metav1.ObjectMeta{Name: string(name)},
			Spec: v1alpha1.WorkerClusterSpec{Failover: v1alpha1.WorkerFailover{
				GracePeriod: &metav1.Duration{Duration: gracePeriod}, FenceAfter: &metav1.Duration{Duration: fenceAfter},
			}},
			Status: v1alpha1.WorkerClusterStatus{ClusterID: w.workers[i].id},
		})
	}
	w.Hub.Changed = w.observe
	for i := range 2 {
		w.managers = append(w.managers, newManager(w, fmt.Sprintf("m%d", i+1)))
	}
	w.managers[0].lead(0)
	w.backups = append(w.backups, w.Hub.Snapshot())
	return w
}

// skew is how wrong a clock is.
func (w *World) skew() time.Duration { return time.Duration(w.draw(600))*time.Second - maxSkew }

// newClock returns the clock of a process. The rates of two clocks never differ by more than 2 %, as the hub assumes.
func (w *World) newClock() *Clock {
	rate := 991 + int64(w.draw(19))
	return &Clock{world: w, offset: w.skew(), rate: rate}
}

func (w *World) worker(name v1alpha1.ClusterName) *Worker {
	for _, k := range w.workers {
		if k.name == name {
			return k
		}
	}
	return nil
}

func (w *World) count() { w.Steps++ }

// fail notes what is wrong. Only the first thing counts.
func (w *World) fail(format string, args ...any) {
	if w.violation == "" {
		w.violation = fmt.Sprintf(format, args...)
	}
}

// Failed is true if there is a violation.
func (w *World) Failed() bool { return w.violation != "" }

// Violation says what is wrong. It is empty if nothing is wrong.
func (w *World) Violation() string { return w.violation }

// Digest is a digest of all changes so far. The same sequence gives the same digest.
func (w *World) Digest() uint64 { return w.digest.Sum64() }

// Now returns how long the world has existed.
func (w *World) Now() time.Duration { return w.now }

// tell writes down what happens.
func (w *World) tell(format string, args ...any) {
	if w.Tell != nil {
		w.Tell(fmt.Sprintf("%10s  ", w.now.Round(time.Millisecond)) + fmt.Sprintf(format, args...))
	}
}

// advance lets time pass. Agents, kubelets and JobSet do what is due in time. Managers do so only if fair is true.
// Otherwise they get only news that is older than maxLag. It ends when a manager begins to lead, or ends.
func (w *World) advance(d time.Duration, fair bool) {
	for target := w.now + d; ; {
		next := w.prompt(fair)
		if w.Failed() {
			return
		}
		if w.elect(min(next, target)) {
			return // A new manager may take its time with old caches.
		}
		if next > target {
			w.now = max(w.now, target)
			break
		}
		w.now = max(next, w.now+time.Millisecond)
	}
	w.prompt(fair)
	if !fair {
		for _, m := range w.managers {
			m.catchUp()
		}
	}
}

// prompt does what is due now, and returns when something is due next.
func (w *World) prompt(fair bool) time.Duration {
	next := never
	for range 3 { // What one part does is news to the others.
		next = never
		for _, k := range w.workers {
			next = min(next, k.elections())
			for _, a := range k.agents {
				a.drain()
			}
			next = min(next, k.settle())
			for _, a := range k.agents {
				a.drain()
				next = min(next, a.next())
			}
		}
		if !fair {
			return next
		}
		w.collectOwned()
		for _, m := range w.managers {
			m.drain()
			next = min(next, m.next())
		}
	}
	return next
}

// catchUp makes a manager see what it must have seen by now.
func (m *Manager) catchUp() {
	if !m.active() {
		return
	}
	for _, f := range m.feeds {
		for m.reaches(f.from) {
			if at, behind := f.view.Due(); !behind || m.world.now-at < maxLag {
				break
			}
			m.deliver(f)
		}
	}
}

// create creates an object by itself.
func create(server *memory.Server, objects ...client.Object) {
	for _, object := range objects {
		if _, err := server.Create(object, "setup"); err != nil {
			panic(err)
		}
	}
}

func namespaceObject() client.Object {
	return &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: namespace},
	}
}

func trainingRuntime() client.Object {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "trainer.kubeflow.org/v1alpha1", Kind: "ClusterTrainingRuntime"},
		ObjectMeta: metav1.ObjectMeta{Name: "runtime"},
	}
}

func attemptText(attempt int32) string { return strconv.Itoa(int(attempt)) }

func noPolicy(context.Context, *unstructured.Unstructured) (*v1alpha1.DispatchPolicy, error) {
	return nil, nil
}

// silent records no Events.
type silent struct{}

// Eventf implements events.EventRecorder.
func (silent) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}

func keyOf(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}
