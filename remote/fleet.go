// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// closeTimeout is how long Remove and Wait wait for goroutines. Their connections are cut, so they end soon.
const closeTimeout = 5 * time.Second

// Credentials say how to reach a worker and as which user.
type Credentials struct {
	// Config has host, TLS data and bearer token. Its timeouts, limits and transports are ignored.
	Config *rest.Config
	// Fingerprint changes if and only if Config changes.
	Fingerprint string
}

// Fleet is the set of connections, by worker. All methods may be called concurrently. Only Remove and Wait block.
type Fleet struct {
	opts Options
	// ctx ends all connections.
	ctx context.Context

	mu sync.Mutex
	// locked is guarded by mu.
	locked struct {
		clusters      map[v1alpha1.ClusterName]*Cluster
		meters        map[v1alpha1.ClusterName]*meter
		subscriptions map[*subscription]bool
		// mappers know the kinds that workers have in their caches, by their resources. Workers with the same kinds share one.
		mappers map[string]meta.RESTMapper
	}
	// running counts Clusters whose goroutines have not ended.
	running sync.WaitGroup
}

// EnsureOption is an option of Fleet.Ensure.
type EnsureOption func(*target)

// CapacityFrom says from where the hub reads the worker's inventory. Without it, or with "", from nodes and pods.
func CapacityFrom(source v1alpha1.CapacitySource) EnsureOption {
	return func(t *target) { t.capacity = cmp.Or(source, v1alpha1.CapacityFromPods) }
}

// CountQuota says whether the hub counts the quota of the worker's Kueue too.
func CountQuota(count bool) EnsureOption {
	return func(t *target) { t.quota = count }
}

// NewFleet returns a fleet without workers. Its connections live until ctx ends.
func NewFleet(ctx context.Context, opts Options) (*Fleet, error) {
	opts, err := opts.complete()
	if err != nil {
		return nil, err
	}
	f := &Fleet{opts: opts, ctx: ctx}
	f.locked.clusters = map[v1alpha1.ClusterName]*Cluster{}
	f.locked.meters = map[v1alpha1.ClusterName]*meter{}
	f.locked.subscriptions = map[*subscription]bool{}
	f.locked.mappers = map[string]meta.RESTMapper{}
	opts.Hub.subscribe(func() {
		for _, cluster := range f.List() {
			askAPIs(cluster)
		}
	})
	return f, nil
}

// Ensure gives a worker these credentials and this pin. The pin is the cluster ID that the worker must have. The same
// call again does nothing. The first contact has an empty pin: the worker stays Connecting, and its status says which
// cluster ID it has. New credentials for the same host replace the old ones under the same clients and caches. For
// another host, another pin, another source of capacity, or if quota begins or ends to count, Ensure makes a new
// Cluster in place of the old one.
func (f *Fleet) Ensure(name v1alpha1.ClusterName, credentials Credentials, pinned types.UID, options ...EnsureOption) {
	t := target{
		config: rest.CopyConfig(credentials.Config), fingerprint: credentials.Fingerprint, pinned: pinned, capacity: v1alpha1.CapacityFromPods,
	}
	for _, option := range options {
		option(&t)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ctx.Err() != nil {
		return
	}
	if current := f.locked.clusters[name]; current != nil {
		if current.retarget(t) {
			return
		}
		current.cancel()
	}
	m := f.locked.meters[name]
	if m == nil {
		m = newMeter(name)
		f.locked.meters[name] = m
	}
	c := newCluster(f, name, t, m)
	f.locked.clusters[name] = c
	f.running.Go(c.run)
	f.notifyLocked(c)
}

// mapperLocked returns a mapper that knows these kinds.
func (f *Fleet) mapperLocked(kinds []cachedKind) meta.RESTMapper {
	var resources strings.Builder
	for _, kind := range kinds {
		resources.WriteString(kind.gvk.GroupVersion().WithResource(kind.resource).String())
	}
	known := f.locked.mappers[resources.String()]
	if known == nil {
		known = staticMapper(kinds)
		f.locked.mappers[resources.String()] = known
	}
	return known
}

// Remove closes and removes a worker's connection. It waits until the goroutines have ended, but at most closeTimeout.
func (f *Fleet) Remove(name v1alpha1.ClusterName) {
	f.mu.Lock()
	c, m := f.locked.clusters[name], f.locked.meters[name]
	delete(f.locked.clusters, name)
	delete(f.locked.meters, name)
	if c != nil {
		c.close()
		m.close()
		f.notifyLocked(c)
	}
	f.mu.Unlock()
	if c == nil {
		return
	}
	timeout := f.opts.Clock.NewTimer(closeTimeout)
	defer timeout.Stop()
	select {
	case <-c.ended:
	case <-timeout.C():
		c.log.Info("Worker's goroutines have not ended in time")
	}
}

// Get returns a worker's connection, in any state.
func (f *Fleet) Get(name v1alpha1.ClusterName) (*Cluster, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, ok := f.locked.clusters[name]
	return c, ok
}

// List returns all connections, sorted by name.
func (f *Fleet) List() []*Cluster {
	f.mu.Lock()
	defer f.mu.Unlock()
	clusters := make([]*Cluster, 0, len(f.locked.clusters))
	for _, name := range slices.Sorted(maps.Keys(f.locked.clusters)) {
		clusters = append(clusters, f.locked.clusters[name])
	}
	return clusters
}

// Wait waits until the fleet's context has ended, and then for all goroutines, for at most closeTimeout.
func (f *Fleet) Wait() {
	<-f.ctx.Done()
	done := make(chan struct{})
	go func() {
		f.running.Wait()
		close(done)
	}()
	timeout := f.opts.Clock.NewTimer(closeTimeout)
	defer timeout.Stop()
	select {
	case <-done:
	case <-timeout.C():
	}
}

// Subscribe calls notify with the status of every worker, now and after each change of anything but LastSeen. The calls
// come one at a time from a goroutine of the subscription, under no lock: a slow notify delays only this subscription.
// Several quick changes give one call with the last status. The last status of a removed worker is Closed. A Cluster
// that was replaced is not reported, but its Done is closed. After cancel no call begins.
func (f *Fleet) Subscribe(notify func(v1alpha1.ClusterName, Status)) (cancel func()) {
	ctx, stop := context.WithCancel(f.ctx)
	s := newSubscription(notify)
	f.mu.Lock()
	f.locked.subscriptions[s] = true
	for _, c := range f.locked.clusters {
		s.add(c)
	}
	f.mu.Unlock()
	go s.run(ctx)
	return func() {
		stop()
		f.mu.Lock()
		delete(f.locked.subscriptions, s)
		f.mu.Unlock()
	}
}

// notify reports a change of a Cluster's status, unless another Cluster has replaced it.
func (f *Fleet) notify(c *Cluster) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.locked.clusters[c.name] == c {
		f.notifyLocked(c)
	}
}

func (f *Fleet) notifyLocked(c *Cluster) {
	for s := range f.locked.subscriptions {
		s.add(c)
	}
}
