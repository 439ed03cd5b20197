// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Parts are the clients, caches and queues that a Replica uses.
type Parts struct {
	// Client reads from the caches and writes. The cache of pods needs the index PodIndex.
	Client client.Client
	// Leases is the cache of ExecutionLeases. Live is the API server.
	Leases, Live client.Reader
	// Recorder records Events on copies and leases.
	Recorder events.EventRecorder
	// Waiting adds a TrainJob for which Gate may open, Stops a copy that may have to be stopped, Hubs a hub.
	Waiting, Stops, Hubs func(types.NamespacedName)
}

// PodIndex is the index of pods by their JobSet.
const PodIndex = podIndex

// Replica is the fencing of one process, without manager, caches and election. Its owner calls the reconcilers. Tests
// use it to run one step after another.
type Replica struct {
	Fencer
	// Hubs reconciles hubs by their ID. Copies reconciles copies.
	Hubs, Copies reconcile.Reconciler
	// Watch must get the events of all TrainJobs, in order. News selects the events for Copies.
	Watch toolscache.ResourceEventHandler
	News  predicate.Predicate
}

// NewReplica makes a Replica that does not lead.
func NewReplica(opts Options, parts Parts) *Replica {
	opts.setDefaults()
	in := inboxes{waiting: addFunc(parts.Waiting), stops: addFunc(parts.Stops), leases: addFunc(parts.Hubs)}
	t, c := newFencing(opts.Clock, in, parts.Client, parts.Recorder)
	return &Replica{
		Fencer: Fencer{tracker: t}, Copies: c, Watch: t.watcher(), News: news(),
		Hubs: &leases{
			tracker: t, alarms: newAlarms(opts.Clock, addFunc(parts.Hubs)), identity: opts.Identity, clock: opts.Clock,
			cache: parts.Leases, live: parts.Live, client: parts.Client, recorder: parts.Recorder, log: logr.Discard(),
		},
	}
}

// Lead makes the replica the leader until end is called.
func (r *Replica) Lead() (end func()) { return r.tracker.lead() }

type addFunc func(types.NamespacedName)

// Add implements adder.
func (f addFunc) Add(key types.NamespacedName) { f(key) }
