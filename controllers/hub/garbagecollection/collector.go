// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/judgement"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/copies"
	"github.com/trainyard/trainyard/internal/records"
)

// Options are the options of a Collector. All are required but Swept, Others, Demand and Busy.
type Options struct {
	// Cluster is the worker's name, and ClusterID the ID of the cluster that it leads to.
	Cluster   v1alpha1.ClusterName
	ClusterID types.UID
	// HubID is on each copy of this hub.
	HubID string
	// ManagedBy is the value of spec.managedBy that this manager owns.
	ManagedBy string
	// Hub reads from the hub's caches, HubReader from its API server.
	Hub       client.Client
	HubReader client.Reader
	// Worker is the connection, and WorkerCache its caches. WorkerCache sends no requests to the API server: it fails to
	// list kinds that it does not hold. If it holds pods, they have the index remote.IndexJobSet.
	Worker      copies.Connection
	WorkerCache client.Reader
	// Swept is true if the worker has been swept since it was connected. Nil: always.
	Swept func() bool
	// Others returns the connections to the other workers. A worker may show a later attempt of a job that is on record
	// elsewhere. The manager believes this worker only if the worker on record says that it does not have the job. If
	// Others is nil, the manager does not believe it.
	Others Others
	// Quarantine is shared by the garbage collectors of all workers.
	Quarantine *Quarantine
	// Retention returns how long the finished copy of a job stays.
	Retention func(ctx context.Context, job *unstructured.Unstructured) (time.Duration, error)
	// Demand returns PodSets, Priority and Dependencies of a job, as placement would record them. Nil, or an error: they are not
	// known.
	Demand func(ctx context.Context, job *unstructured.Unstructured) (v1alpha1.DispatchSpec, error)
	// Busy is true while jobs wait for the hub or for this worker's mirror. The deletion of finished copies waits then,
	// and for burstPause after that. Nil means never busy.
	Busy func() bool
	// Recorder records Events on hub TrainJobs and WorkerClusters.
	Recorder events.EventRecorder
	// Clock is the clock of this process.
	Clock clock.Clock
}

// NewCollector makes the Collector of one worker.
func NewCollector(o Options) *Collector {
	here, hub, stored := o.here(), hubReader{o.Hub}, hubReader{o.HubReader}
	attempts := attempts{here: here, hub: o.Hub, stored: stored}
	unknown := o.unknownCopies()
	decisions := decisions{here: here, managedBy: o.ManagedBy, hub: hub, stored: stored, unknown: unknown, recorder: o.Recorder}
	return &Collector{
		here: here, swept: o.Swept, hub: hub, unknown: unknown, attempts: attempts, clock: o.Clock,
		retirement: retirement{hub: hub, pods: o.WorkerCache, retention: o.Retention, busy: o.Busy, clock: o.Clock},
		leftovers:  leftovers{here: here, hub: hub, jobSets: o.WorkerCache, clock: o.Clock},
		execution:  execution{here: here, hubID: o.HubID, hub: o.Hub},
		investigator: investigator{
			here: here, hubID: o.HubID, managedBy: o.ManagedBy, hub: hub, stored: stored,
			unknown: unknown, attempts: attempts, decisions: decisions,
			trust:   trust{here: here, hubID: o.HubID, others: o.Others, decisions: decisions, clock: o.Clock},
			adopter: adopter{here: here, records: records.Writer{Hub: o.Hub, Clock: o.Clock}, demand: o.Demand, recorder: o.Recorder},
		},
	}
}

func (o *Options) here() judgement.Worker {
	return judgement.Worker{Name: o.Cluster, ClusterID: o.ClusterID}
}

func (o *Options) unknownCopies() unknownCopies {
	return unknownCopies{quarantine: o.Quarantine, worker: o.Cluster, clock: o.Clock}
}

// Collector does what has been judged about the TrainJobs on one worker that have the label of this hub, beside what
// their attempts need. Its parts do the work.
type Collector struct {
	here  judgement.Worker
	swept func() bool
	// hub reads from the hub's caches.
	hub          hubReader
	unknown      unknownCopies
	attempts     attempts
	retirement   retirement
	leftovers    leftovers
	execution    execution
	investigator investigator
	clock        clock.PassiveClock
	// deletions has the last deletion of a copy that the worker has accepted, by the copy's key.
	deletions sync.Map
}

// deletion is what this process knows of a deletion that the worker's cache may not show yet.
type deletion struct {
	uid types.UID
	at  time.Time
}

// See adds to what has been seen of a key what only the Collector knows.
func (c *Collector) See(ctx context.Context, seen *judgement.Seen) (err error) {
	if seen.Copy != nil {
		seen.Tombstones, err = c.hub.tombstones(ctx, record.OriginOn(seen.Copy), record.AttemptOn(seen.Copy))
	}
	d := seen.Dispatch
	_, refused := c.SweepRefused()
	swept := c.swept == nil || c.swept()
	switch {
	case record.StateOf(d) == record.Leaving:
	case !swept && !refused:
		seen.Hold = judgement.Unswept
	case d != nil && d.Spec.Cluster == c.here.Name && record.LacksCopy(d):
		var holds bool
		switch holds, seen.HeldBy = c.unknown.quarantine.Holds(ctx, d); {
		case holds && swept:
			seen.Hold = judgement.Held
		case holds:
			seen.Hold = judgement.Unswept
		}
	}
	return err
}

// SweepRefused says whether the worker refused its last sweep, and its words. Until it accepts one, nothing is created
// there.
func (c *Collector) SweepRefused() (words string, refused bool) {
	return c.unknown.quarantine.SweepRefused(c.here.Name)
}

// Collect does what has been judged about the copy of a key, nil if there is none. If a copy on another worker holds the
// first copy back, Collect says so on the Dispatch. It returns when to look again.
func (c *Collector) Collect(
	ctx context.Context, connected copies.Worker, key types.NamespacedName, copy *unstructured.Unstructured,
	seen judgement.Seen, what judgement.Copy,
) (time.Duration, error) {
	worker := workerClient{connected}
	if seen.HeldBy != "" {
		c.unknown.quarantine.sayHeld(ctx, seen.Dispatch, seen.HeldBy)
	}
	if copy == nil {
		c.deletions.Delete(key)
		return c.missing(ctx, worker, key)
	}
	c.leftovers.forget(key)
	switch what {
	case judgement.Outdated, judgement.Retained:
		c.unknown.release(key)
		return c.remove(ctx, worker, key, copy, seen.Dispatch, what)
	case judgement.Needed:
		c.unknown.release(key)
		return 0, c.attempts.adoptCount(ctx, copy, seen.Dispatch)
	case judgement.Unknown, judgement.Orphaned, judgement.Adoptable, judgement.Postponed:
		return c.investigator.investigate(ctx, worker, copy, seen)
	case judgement.Gone:
	}
	return 0, nil
}

// remove deletes a copy that nobody needs, once. It returns when to look again at a copy that stays for a time.
func (c *Collector) remove(
	ctx context.Context, worker workerClient, key types.NamespacedName, copy *unstructured.Unstructured, dispatch *v1alpha1.Dispatch,
	what judgement.Copy,
) (later time.Duration, err error) {
	last, _ := c.deletions.Load(key)
	if sent, ok := last.(deletion); ok && sent.uid == copy.GetUID() && c.clock.Since(sent.at) < records.StartLag {
		return 0, nil // The cache lags. The deletion is an event.
	}
	if what == judgement.Retained {
		later, err = c.retirement.retire(ctx, worker, copy, dispatch)
	} else {
		err = worker.deleteCopy(ctx, copy, "outdated")
	}
	if later == 0 && err == nil {
		c.deletions.Store(key, deletion{uid: copy.GetUID(), at: c.clock.Now()})
	}
	return later, err
}

// missing handles a copy that the cache does not show.
func (c *Collector) missing(ctx context.Context, worker workerClient, key types.NamespacedName) (time.Duration, error) {
	if held, known := c.unknown.get(key); known {
		return c.investigator.missing(ctx, worker, key, held)
	}
	return c.leftovers.clear(ctx, worker, key)
}

// Execute executes a Tombstone. It returns when to look again.
func (c *Collector) Execute(ctx context.Context, connected copies.Worker, tombstone string) (time.Duration, error) {
	return c.execution.execute(ctx, workerClient{connected}, tombstone)
}

// Disconnected returns when to look at a key again while the worker is not connected, zero for never: the next
// connection brings all keys but those of JobSets that wait.
func (c *Collector) Disconnected(key types.NamespacedName) time.Duration {
	return c.leftovers.disconnected(key)
}
