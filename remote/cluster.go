// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/capacity"
)

// target is the configuration that Ensure gives a Cluster.
type target struct {
	config      *rest.Config
	fingerprint string
	pinned      types.UID
	capacity    v1alpha1.CapacitySource
	quota       bool
}

// requestError is an error with which the worker answers the caches. Code 0 means that the worker did not answer.
type requestError struct {
	code  int
	since time.Time
}

// excess is why the answers to the caches are more than they may be.
type excess struct {
	// message says it in words.
	message string
	// until is when it no longer counts, unless it happens again. Zero: when the resource is watched, because a watch
	// begins only after a complete list.
	until time.Time
}

// Cluster is the connection to one worker. Its goroutine (loop.go) probes the worker and decides. Methods do no I/O.
type Cluster struct {
	name   v1alpha1.ClusterName
	host   string
	opts   Options
	log    logr.Logger
	fleet  *Fleet
	meter  *meter
	ctx    context.Context
	cancel context.CancelFunc
	// wake starts the next run of the loop at once.
	wake chan struct{}
	// closed is closed together with the last status. ended is closed when all goroutines have ended.
	closed, ended chan struct{}

	// unusable is the reason why the Cluster cannot use the server's address.
	unusable error

	exchange     *exchange
	dialer       *dialer
	prober       *prober
	caches       *caches
	capacity     capacitySource
	kinds        []cachedKind
	cached, live client.Client

	mu sync.Mutex
	// locked is guarded by mu.
	locked struct {
		status Status
		target target
		// requestErrors are the caches' requests that were last answered with an error, by verb and resource.
		requestErrors map[call]requestError
		// excesses are the resources whose list or watch gave more than it may when it was last asked for.
		excesses map[string]excess
		// inventoryFault is why the hub cannot decide with the inventory. Empty: it can.
		inventoryFault string
		// fault is the first panic over an event of the worker. What the caches' readers know may be wrong from then on.
		fault string
		// apisDue is true when the loop must ask again which APIs the worker serves.
		apisDue bool
		// rightsDoubted is true when the loop must ask again which rights the worker grants.
		rightsDoubted bool
		// jobsWatched is when the watch of TrainJobs last began. definitionChanged is true if it has ended early since the loop
		// last asked.
		jobsWatched       time.Time
		definitionChanged bool
	}
}

// newCluster does no I/O. The caller holds the fleet's mu. If the address cannot be used, the status says so as soon as the loop runs.
func newCluster(f *Fleet, name v1alpha1.ClusterName, t target, m *meter) *Cluster {
	c := &Cluster{
		name: name, host: t.config.Host, opts: f.opts, fleet: f, meter: m, log: f.opts.Logger.WithValues("workerCluster", name),
		wake: make(chan struct{}, 1), closed: make(chan struct{}), ended: make(chan struct{}), capacity: countCapacity(),
	}
	switch {
	case t.capacity == v1alpha1.CapacityFromReport:
		c.capacity = readCapacity(f.opts.Clock, func() { poke(c.wake) }, t.quota)
	case t.quota:
		c.capacity = countQuota()
	}
	c.opts.Logger = c.log
	c.ctx, c.cancel = context.WithCancel(f.ctx)
	c.locked.target = t
	c.locked.requestErrors, c.locked.excesses = map[call]requestError{}, map[string]excess{}
	c.locked.apisDue = true
	c.locked.status = Status{State: Connecting, Message: "the first connection is being made", Since: f.opts.Clock.Now()}
	c.exchange = newExchange(func() { poke(c.wake) })
	c.dialer = &dialer{timeout: min(c.opts.ProbeTimeout, c.opts.RequestTimeout) * 4 / 5, silence: newSilence(c.host)}
	m.state(Connecting)
	address, err := url.Parse(c.host)
	if err != nil || address.Host == "" {
		// The Cluster has caches even now: a controller may ask for them.
		c.unusable = errors.New("the server's address is not a URL")
		address = &url.URL{Scheme: "https", Host: "unusable.invalid"}
	}
	if err := c.build(address); err != nil {
		c.unusable = err
	}
	return c
}

// build makes clients and caches. It needs the address only, and no connection. The caller holds the fleet's mu.
func (c *Cluster) build(address *url.URL) (err error) {
	config := &rest.Config{Host: address.String(), QPS: -1, WarningHandlerWithContext: rest.NoWarnings{}}
	limited := rest.CopyConfig(config)
	if c.opts.QPS > 0 {
		limited.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(c.opts.QPS, c.opts.Burst)
	}
	s := &sender{
		exchange: c.exchange, silence: c.dialer.silence, meter: c.meter, clock: c.opts.Clock, prefix: strings.TrimSuffix(address.Path, "/"),
		requestTimeout: c.opts.RequestTimeout, syncTimeout: c.opts.SyncTimeout,
		creationTimeout: c.opts.CreationTimeout, changeTimeout: c.opts.ChangeTimeout, leading: c.opts.Leading,
		unauthorized: c.unauthorized, answered: c.answered, excessive: c.setExcess,
	}
	if c.prober, err = newProber(config, httpClient(probes{s}), c.opts.Hub); err != nil {
		return err
	}
	c.kinds = cachedKinds(c.opts, c.capacity)
	if c.caches, err = newCaches(c, limited, reflectors{s}, c.fleet.mapperLocked(c.kinds)); err != nil {
		return err
	}
	c.cached, c.live, err = newClients(limited, c.opts, callers{s}, c.caches, c.kinds)
	return err
}

// Name returns the name of the WorkerCluster.
func (c *Cluster) Name() v1alpha1.ClusterName { return c.name }

// Status returns what is known of the worker now.
func (c *Cluster) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.locked.status
}

// Done returns a channel that is closed when the Cluster has been removed or replaced.
func (c *Cluster) Done() <-chan struct{} { return c.closed }

// Client returns a client that reads from the caches and writes to the worker. It returns ErrNotConnected unless the
// worker is Connected. A read of a kind that is not cached fails. A client that was returned earlier refuses requests
// in the same way: nobody writes to a worker that is not Connected.
func (c *Cluster) Client() (client.Client, error) {
	if c.Status().State != Connected {
		return nil, ErrNotConnected
	}
	return c.cached, nil
}

// APIReader returns a reader of the worker's API server, or ErrNotConnected unless the worker is Connected.
func (c *Cluster) APIReader() (client.Reader, error) {
	if c.Status().State != Connected {
		return nil, ErrNotConnected
	}
	return c.live, nil
}

// Cache returns the worker's cache. It is the same cache for the life of the Cluster. It starts to fill when the pinned
// worker has answered for the first time. During an outage it keeps its objects.
func (c *Cluster) Cache() cache.Cache { return c.caches }

// Inventory returns what the worker has and what its pods use. Status.Capacity says whether it is reliable.
func (c *Cluster) Inventory() capacity.Inventory { return c.capacity }

// SetInventoryFault makes the status say that the inventory cannot be used, and why. An empty reason takes that back.
func (c *Cluster) SetInventoryFault(why string, stack []byte) {
	c.mu.Lock()
	changed := c.locked.inventoryFault != why
	c.locked.inventoryFault = why
	c.mu.Unlock()
	if !changed {
		return
	}
	if why != "" {
		c.log.Error(nil, "Worker takes no jobs, because a decision has panicked over it", "reason", why, "stack", string(stack))
	}
	poke(c.wake)
}

// panicked is called after a panic over an object or event of the worker.
func (c *Cluster) panicked(what string, value any, stack []byte) {
	why := fmt.Sprintf("%s could not be handled, because of a fault of Trainyard: %v", what, value)
	c.mu.Lock()
	first := c.locked.fault == ""
	if first {
		c.locked.fault = why
	}
	c.mu.Unlock()
	if first { // The next ones may be as many as the worker likes.
		c.log.Error(nil, "Worker takes no jobs, because an event of it has led to a panic", "reason", why, "stack", string(stack))
		poke(c.wake)
	}
}

// retarget takes another target. It returns false if that target needs a new Cluster.
func (c *Cluster) retarget(t target) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.locked.target
	if c.ctx.Err() != nil || t.config.Host != c.host || t.capacity != before.capacity || t.quota != before.quota || (before.pinned != "" && t.pinned != before.pinned) {
		return false
	}
	if t.fingerprint != before.fingerprint || t.pinned != before.pinned {
		c.locked.target = t
		poke(c.wake)
	}
	return true
}

// unauthorized is called after every 401. It changes the state at once, so that the credentials are read again.
func (c *Cluster) unauthorized(l *pool) {
	if c.exchange.refused(l) {
		c.setStatus(func(s *Status) {
			if s.State != CredentialsInvalid {
				s.State, s.Since = CredentialsInvalid, c.opts.Clock.Now()
			}
			s.Message = messageUnauthorized
		})
	}
}

// setExcess is called when a list of the caches has no end, or when a page or an event is too large. A watch that ends
// by that begins again, and says nothing of the event before the event comes again. A reflector begins again after half
// a minute at the latest, so by default an event that comes again and again is told without a pause.
func (c *Cluster) setExcess(request call, err error) {
	found := excess{message: fmt.Sprintf("%s %s: %v", request.verb, request.resource, err)}
	if errors.Is(err, ErrEndlessList) {
		found.message = err.Error()
	}
	if request.watch {
		found.until = c.opts.Clock.Now().Add(2 * c.opts.SyncTimeout)
	}
	c.mu.Lock()
	before, known := c.locked.excesses[request.resource]
	c.locked.excesses[request.resource] = found
	c.mu.Unlock()
	if !known || before.message != found.message {
		poke(c.wake)
	}
}

// answered is called for every answer to the caches. The Cluster keeps a 403 until the same request succeeds. A 404
// means that the worker does not serve the kind any more. For an optional kind, a 403 or 404 is only logged; JobSets
// are optional because a worker may forbid to read them, but not because it may lack them. A watch of TrainJobs that
// begins again can mean that their CRD has changed, because a change of a CRD ends its watches.
func (c *Cluster) answered(request call, code int) {
	listed := request.initial
	request.initial = false
	c.mu.Lock()
	before := c.locked.requestErrors[request].code
	if ok := code >= 200 && code < 300; ok {
		delete(c.locked.requestErrors, request)
		if request.watch && c.locked.excesses[request.resource].until.IsZero() {
			delete(c.locked.excesses, request.resource)
		}
		if listed {
			// A watch that streams the list makes a separate list unnecessary.
			listing := call{verb: "list", resource: request.resource}
			before = max(before, c.locked.requestErrors[listing].code)
			delete(c.locked.requestErrors, listing)
		}
		code = 0
	} else {
		since := c.opts.Clock.Now()
		if known, ok := c.locked.requestErrors[request]; ok {
			since = known.since
		}
		c.locked.requestErrors[request] = requestError{code: code, since: since}
	}
	kind := kindOf(c.kinds, request.resource)
	needed := !kind.optional
	gone := code == 404 && (needed || request.resource == resourceJobSets)
	if gone {
		c.locked.apisDue = true
	}
	if code == 0 && request.watch && request.resource == resourceTrainJobs {
		watchBegins(c, listed)
	}
	c.mu.Unlock()
	switch changed := before != code; {
	case changed && kind.told:
		poke(c.wake)
	case changed && (gone || needed && (code == 403 || before == 403)):
		poke(c.wake)
	case changed && !needed && request.verb == "list" && (code == 403 || code == 404):
		c.log.Info("Worker does not list an optional kind", "resource", request.resource, "code", code)
	}
}

// watchBegins is called when a watch of TrainJobs begins. listed is true if it begins with a list. The caller holds mu.
func watchBegins(c *Cluster, listed bool) {
	now := c.opts.Clock.Now()
	if !listed {
		c.locked.apisDue = true
		c.locked.definitionChanged = c.locked.definitionChanged || now.Sub(c.locked.jobsWatched) < shortestWatch
	}
	c.locked.jobsWatched = now
}

// kindOf returns the row of a resource that caches hold.
func kindOf(kinds []cachedKind, resource string) cachedKind {
	for i := range kinds {
		if kinds[i].resource == resource {
			return kinds[i]
		}
	}
	return cachedKind{}
}

// shortestWatch is how long a watch of a cache lasts at least unless the API server ends it (client-go's minWatchTimeout).
const shortestWatch = 5 * time.Minute

// askAPIs has the loop ask again which APIs the worker serves.
func askAPIs(c *Cluster) {
	c.mu.Lock()
	c.locked.apisDue = true
	c.mu.Unlock()
	poke(c.wake)
}

// setStatus changes the status and notifies the subscribers. The status of a closed Cluster does not change.
func (c *Cluster) setStatus(change func(*Status)) {
	c.mu.Lock()
	before := c.locked.status
	if before.State == Closed {
		c.mu.Unlock()
		return
	}
	change(&c.locked.status)
	after := c.locked.status
	c.mu.Unlock()
	if after.same(before) {
		return
	}
	c.meter.state(after.State)
	if after.State != before.State {
		c.log.Info("State of worker changed", "from", before.State.String(), "to", after.State.String(), "message", after.Message)
	}
	c.fleet.notify(c)
}

// close ends everything and does not wait. Remove calls close under the fleet's lock, so close notifies nobody.
func (c *Cluster) close() {
	c.cancel()
	c.exchange.close()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.locked.status.State != Closed {
		c.locked.status.State, c.locked.status.Message = Closed, "the worker was removed from the fleet"
		c.locked.status.Since = c.opts.Clock.Now()
		close(c.closed)
	}
}
