// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/trainyard/trainyard/capacity"
)

// loop runs a connection: observe, decide, act, wait. Only its own goroutine uses its fields.
type loop struct {
	*Cluster
	seen observation
	pool *pool
	// retired are earlier pools that may still have running watches.
	retired []*pool
	// broken is the reason why the credentials cannot be used.
	broken  error
	started time.Time // when the caches started
	synced  chan struct{}
	// awaited is how many of the caches' event handlers a goroutine waits for.
	awaited int
	// pace limits the probes of a worker that cuts every connection.
	pace flowcontrol.RateLimiter
	// background counts the goroutines of the caches.
	background sync.WaitGroup
}

// run runs until the Cluster's context ends.
func (c *Cluster) run() {
	l := &loop{Cluster: c, synced: make(chan struct{}), pace: flowcontrol.NewTokenBucketRateLimiter(2, 20)}
	defer close(c.ended)
	defer l.background.Wait()
	defer l.cut()
	defer c.close()
	for c.ctx.Err() == nil {
		route := l.observe()
		if c.ctx.Err() != nil {
			return
		}
		l.act(route, decide(l.seen, c.Status(), c.opts.Clock.Now(), &c.opts))
		l.wait()
	}
}

// observe fills in the observation and returns the route that the probe used.
func (l *loop) observe() *route {
	t := l.takeTarget()
	w := l.exchange.route()
	if l.seen.unusable != nil {
		return w
	}
	ctx, cancel := context.WithTimeout(l.ctx, l.opts.ProbeTimeout)
	id, how, err := l.prober.identity(ctx)
	cancel()
	l.seen.record(id, how, err, l.opts.Clock.Now())
	if how != none {
		l.dialer.silence.contact()
	}
	if how != answered || t.pinned == "" || id != t.pinned {
		return w
	}
	if due, changed := takeAPIsDue(l); due {
		if changed {
			l.prober.settling = settlingReads
		}
		ctx, cancel := context.WithTimeout(l.ctx, l.opts.RequestTimeout)
		found, err := l.prober.apis(ctx)
		cancel()
		if l.seen.apisErr = err; err == nil {
			l.seen.apis = found
			serve(l, found)
		}
		if err == nil && !found.unsure {
			// This answer proves contact too. If an outage begins now, it may still be silent.
			l.dialer.silence.contact()
		}
		if err != nil || !l.seen.served() || found.unsure {
			l.setAPIsDue()
		}
	}
	l.askRights()
	if l.seen.apis.trainJob && l.started.IsZero() {
		l.startCaches()
	}
	select {
	case <-l.synced:
		l.seen.synced, l.seen.pending = true, nil
	default:
		l.seen.pending = l.caches.pending()
		l.seen.overdue = !l.started.IsZero() && l.opts.Clock.Since(l.started) >= l.opts.SyncTimeout
	}
	l.seen.denied, l.seen.stalled = l.failedRequests()
	l.seen.excesses = l.excesses()
	return w
}

func (l *loop) takeTarget() target {
	l.mu.Lock()
	t := l.locked.target
	l.mu.Unlock()
	l.seen.pinned = t.pinned
	if l.seen.unusable = l.Cluster.unusable; l.seen.unusable != nil {
		l.seen.fingerprint = t.fingerprint
		return t
	}
	if t.fingerprint == l.seen.fingerprint && (l.pool != nil || l.broken != nil) {
		l.seen.unusable = l.broken
		return t
	}
	l.seen.fingerprint = t.fingerprint
	fresh, err := newPool(t.config, l.dialer, l.exchange.lost)
	if err != nil {
		l.broken, l.seen.unusable = err, err
		return t
	}
	l.broken = nil
	if before := l.exchange.swap(fresh); before != nil {
		before.retire()
		l.retired = append(slices.DeleteFunc(l.retired, func(old *pool) bool { return old.count() == 0 }), before)
		l.setAPIsDue()
		l.seen.rights = nil
		l.log.Info("Credentials of worker swapped", "fingerprint", t.fingerprint)
	}
	l.pool = fresh
	return t
}

// takeAPIsDue says whether to ask which APIs the worker serves, and whether their definition seems to have changed.
func takeAPIsDue(l *loop) (due, changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	due, changed = l.locked.apisDue, l.locked.definitionChanged
	l.locked.apisDue, l.locked.definitionChanged = false, false
	return due, changed
}

func (l *loop) setAPIsDue() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.locked.apisDue = true
}

// failedRequests returns the caches' requests that were last answered with 403, and those that have failed for longer
// than SyncTimeout. It leaves out optional resources.
func (l *loop) failedRequests() (denied, stalled []call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for request, failed := range l.locked.requestErrors {
		switch {
		case kindOf(l.kinds, request.resource).optional:
		case failed.code == http.StatusForbidden:
			denied = append(denied, request)
		case l.opts.Clock.Since(failed.since) >= l.opts.SyncTimeout:
			stalled = append(stalled, request)
		}
	}
	return denied, stalled
}

// excesses returns what the answers to the caches have too much of, sorted.
func (l *loop) excesses() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var messages []string
	for resource, found := range l.locked.excesses {
		if !found.until.IsZero() && l.opts.Clock.Now().After(found.until) {
			delete(l.locked.excesses, resource)
			continue
		}
		messages = append(messages, found.message)
	}
	slices.Sort(messages)
	return messages
}

// capacityState says whether the inventory is reliable.
func (l *loop) capacityState(v decision) (capacity.State, string) {
	if v.state != Connected {
		return capacity.Pending, ""
	}
	state, message := l.capacity.state(v.since, l.caches.capacityListed(l.refusal), l.refusal)
	l.mu.Lock()
	defer l.mu.Unlock()
	if fault := cmp.Or(l.locked.fault, l.locked.inventoryFault); state == capacity.Known && fault != "" {
		return capacity.Unusable, fault
	}
	return state, message
}

// refusal returns the code with which the worker refuses to show a resource: 404, 403, or 0 for none.
func (l *loop) refusal(resource string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	code := 0
	for request, failed := range l.locked.requestErrors {
		if request.resource == resource && (failed.code == http.StatusNotFound || failed.code == http.StatusForbidden) {
			code = max(code, failed.code)
		}
	}
	return code
}

// serve lets the inventory of a worker know what the worker serves, and watch it.
func serve(l *loop, found apis) {
	if l.capacity.serves == nil {
		return
	}
	l.capacity.serves(found)
	if err := l.caches.serve(l.ctx, l.kinds, found); err != nil {
		l.log.Error(err, "Worker serves a kind that cannot be watched")
	}
	if handled := slices.Collect(maps.Values(l.caches.handled)); len(handled) > l.awaited {
		l.awaited = len(handled)
		l.background.Go(func() {
			if awaitHandled(l.ctx, handled) {
				poke(l.wake)
			}
		})
	}
}

// startCaches starts the caches, which live as long as the Cluster, and goroutines that wait for them.
func (l *loop) startCaches() {
	l.started = l.opts.Clock.Now()
	l.background.Go(func() {
		if err := l.caches.Start(l.ctx); err != nil {
			l.log.Error(err, "Caches of worker have ended")
		}
	})
	l.background.Go(func() {
		if l.caches.wait(l.ctx) {
			close(l.synced)
			poke(l.wake)
		}
	})
}

// act opens or shuts the gate and writes the status. It does nothing if another route has replaced the observed one:
// the observation is out of date, and the loop has been woken already.
func (l *loop) act(found *route, v decision) {
	if v.keep {
		return
	}
	if l.exchange.replace(found, found.pool, v.gate) == nil {
		return
	}
	if v.state == Unreachable || v.state == IdentityChanged {
		// The old connections are dead or lead to another cluster. New connections may work.
		l.cut()
	}
	state, message := l.capacityState(v)
	silent, untried, refusal := time.Time{}, false, l.refusal(resourceExecutionLeases)
	if v.state == Unreachable {
		silent, untried = l.dialer.silence.since(v.since), l.dialer.silence.untried()
	}
	l.setStatus(func(s *Status) {
		s.State, s.Message, s.Since = v.state, v.message, v.since
		s.SilentSince, s.Untried, s.LeaseRefusal = silent, untried, refusal
		s.Fingerprint = l.seen.fingerprint
		s.Capacity, s.CapacityMessage = state, message
		s.JobSetMissing, s.Forbidden = "", l.seen.forbidden(l.opts.Rights)
		if v.state == Connected {
			s.JobSetMissing = l.seen.jobSetMissing()
		}
		if l.seen.answer == answered {
			s.LastSeen, s.ClusterID = l.seen.lastSeen, l.seen.id
		}
		if l.seen.apis.kubernetes != "" {
			s.KubernetesVersion, s.Trainer = l.seen.apis.kubernetes, l.seen.apis.trainer
		}
	})
}

func (l *loop) cut() {
	for _, retired := range l.retired {
		retired.cut()
	}
	if l.retired = nil; l.pool != nil {
		l.pool.cut()
	}
}

// wait waits until the next probe is due. The pause grows while the worker does not answer.
func (l *loop) wait() {
	d := wait.Jitter(l.opts.ProbeInterval, 0.1)
	if n := l.seen.failures; n > 0 {
		backoff := l.opts.ProbeInterval / 10 << min(n-1, 10)
		d = wait.Jitter(min(backoff, l.opts.ProbeInterval), 0.2)
	}
	timer := l.opts.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-l.wake:
	case <-l.ctx.Done():
		return
	}
	// Wait fails only when the context has ended.
	_ = l.pace.Wait(l.ctx)
}
