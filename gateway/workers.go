// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/kubeconfigs"
	"github.com/trainyard/trainyard/remote/bounded"
)

const (
	// DefaultAnswerTimeout is how long a worker may take for its answer. Then the others are shown without it.
	DefaultAnswerTimeout = 2 * time.Second
	// idleFor is after how long without a request a connection is closed.
	idleFor = 5 * time.Minute
	// userAgent is how the gateway names itself to hub and workers.
	userAgent = "trainyard-gateway"
	// retryAfter is how long a worker that could not be reached is not tried again.
	retryAfter = 5 * time.Second
	// upgradeTimeout is how long a worker may take to begin a stream.
	upgradeTimeout = 30 * time.Second
	// dialTimeout bounds a dial and a TLS handshake each.
	dialTimeout = 5 * time.Second
)

// Loader reads the credentials of a worker.
type Loader interface {
	Load(ctx context.Context, connection v1alpha1.Connection) (*kubeconfigs.Credentials, error)
}

// workers are the connections to workers that somebody has asked about lately. Each replica has its own, whether it
// leads or not, and the connections over which jobs are placed are others: what users do takes nothing from them.
type workers struct {
	hub    client.Reader
	loader Loader
	clock  clock.WithTicker
	// timeout is how long a worker may take for an answer.
	timeout time.Duration

	mu sync.Mutex
	// byName under mu.
	byName map[v1alpha1.ClusterName]*worker
}

func newWorkers(hub client.Reader, loader Loader, clock clock.WithTicker, timeout time.Duration) *workers {
	return &workers{hub: hub, loader: loader, clock: clock, timeout: timeout, byName: map[v1alpha1.ClusterName]*worker{}}
}

// worker is the connection to one worker, with one kubeconfig.
type worker struct {
	name        v1alpha1.ClusterName
	clusterID   types.UID
	fingerprint string
	base        *url.URL
	// requests sends what is answered at once, watches and logs. upgrades is for what becomes a connection of its own.
	requests, upgrades http.RoundTripper
	metadata           metadata.Interface
	close              func()
	timeout            time.Duration

	// ready is closed when the identity is checked, at the time checked. err says why the worker cannot be used.
	ready   chan struct{}
	checked time.Time
	err     error
	// used is when the connection was last asked for, and silent when it has last not answered at all, under workers.mu.
	// doubted, too, says that somebody finds that out.
	used, silent time.Time
	doubted      bool
}

// get returns the connection to a worker. The error says in words why there is none.
func (w *workers) get(ctx context.Context, name v1alpha1.ClusterName) (*worker, error) {
	object, err := w.registered(ctx, name)
	if err != nil {
		return nil, err
	}
	credentials, err := w.loader.Load(ctx, object.Spec.Connection)
	if err != nil {
		return nil, unusable("worker %q cannot be reached: its kubeconfig cannot be used", name)
	}
	found := w.current(name, object.Status.ClusterID, credentials.Fingerprint)
	if found == nil {
		if found, err = w.connect(object, credentials); err != nil {
			return nil, err
		}
	}
	select {
	case <-found.ready:
	case <-ctx.Done():
		return nil, unanswered(object, w.timeout)
	}
	if found.err == nil && w.isSilent(found) {
		return nil, unanswered(object, w.timeout)
	}
	return found, found.err
}

// registered returns the WorkerCluster of a worker. The error says in words that there is none.
func (w *workers) registered(ctx context.Context, name v1alpha1.ClusterName) (*v1alpha1.WorkerCluster, error) {
	object := &v1alpha1.WorkerCluster{}
	if err := w.hub.Get(ctx, types.NamespacedName{Name: string(name)}, object); err != nil {
		return nil, unusable("worker %q is not registered", name)
	}
	return object, nil
}

// isSilent says whether a worker has not answered just now: not everybody who asks it waits for that.
func (w *workers) isSilent(found *worker) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !found.silent.IsZero() && w.clock.Since(found.silent) < retryAfter
}

// doubt asks a worker that has not answered in time whether it answers at all. A request can be slow by itself.
func (w *workers) doubt(object *v1alpha1.WorkerCluster) {
	w.mu.Lock()
	found := w.byName[v1alpha1.ClusterName(object.Name)]
	doubted := found == nil || found.doubted
	if !doubted {
		found.doubted = true
	}
	w.mu.Unlock()
	if doubted {
		return
	}
	go func() {
		err := found.identify(object)
		w.mu.Lock()
		defer w.mu.Unlock()
		if found.doubted = false; err != nil {
			found.silent = w.clock.Now()
		}
	}()
}

// current returns the connection that there is, nil if there is none with this kubeconfig to this cluster. One that has
// failed counts for a while, so that not everybody who asks about a worker that is away waits for it.
func (w *workers) current(name v1alpha1.ClusterName, id types.UID, fingerprint string) *worker {
	w.mu.Lock()
	defer w.mu.Unlock()
	found := w.byName[name]
	now := w.clock.Now()
	if found == nil || !found.serves(id, fingerprint, now) {
		return nil
	}
	found.used = now
	return found
}

// connect begins a connection, unless somebody else has.
func (w *workers) connect(object *v1alpha1.WorkerCluster, credentials *kubeconfigs.Credentials) (*worker, error) {
	made, err := newWorker(object, credentials, w.timeout)
	if err != nil {
		return nil, unusable("worker %q cannot be reached: %v", object.Name, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.clock.Now()
	if other := w.byName[made.name]; other != nil {
		if other.serves(made.clusterID, made.fingerprint, now) {
			return other, nil
		}
		other.close()
	}
	made.used = now
	w.byName[made.name] = made
	go made.check(object, w.clock)
	return made, nil
}

// serves says whether the connection is to this cluster, with this kubeconfig, and not stale.
func (w *worker) serves(id types.UID, fingerprint string, now time.Time) bool {
	return w.clusterID == id && w.fingerprint == fingerprint && !w.stale(now)
}

// stale says whether the connection has failed, and may be tried again.
func (w *worker) stale(now time.Time) bool {
	select {
	case <-w.ready:
		return w.err != nil && now.Sub(w.checked) > retryAfter
	default:
		return false
	}
}

// sweep closes connections that nobody uses. Requests that are under way go on: they use their connection until they end.
func (w *workers) sweep() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, one := range w.byName {
		if w.clock.Since(one.used) > idleFor {
			delete(w.byName, name)
			one.close()
		}
	}
}

// run closes connections until ctx ends.
func (w *workers) run(ctx context.Context) {
	ticker := w.clock.NewTicker(idleFor / 5)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			w.sweep()
		}
	}
}

func newWorker(object *v1alpha1.WorkerCluster, credentials *kubeconfigs.Credentials, timeout time.Duration) (*worker, error) {
	config := credentials.Config
	base, err := url.Parse(config.Host)
	if err != nil || base.Host == "" {
		return nil, errors.New("the server's address is not a URL")
	}
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, errors.New("the TLS data of its kubeconfig cannot be used")
	}
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}
	// The defaults include HTTP/2 pings. They end streams whose other end has disappeared.
	many := utilnet.SetTransportDefaults(&http.Transport{
		TLSClientConfig: tlsConfig, DialContext: dialer.DialContext, TLSHandshakeTimeout: dialTimeout, DisableCompression: true, IdleConnTimeout: idleFor,
	})
	one := forUpgrades(tlsConfig)
	made := &worker{
		name: v1alpha1.ClusterName(object.Name), clusterID: object.Status.ClusterID, fingerprint: credentials.Fingerprint, base: base, timeout: timeout,
		ready: make(chan struct{}), close: many.CloseIdleConnections,
	}
	wrap := transport.Config{UserAgent: userAgent, BearerToken: config.BearerToken}
	if made.requests, err = transport.HTTPWrappersForConfig(&wrap, many); err != nil {
		return nil, err
	}
	if made.upgrades, err = transport.HTTPWrappersForConfig(&wrap, one); err != nil {
		return nil, err
	}
	limited := bounded.Config(&rest.Config{Host: config.Host, UserAgent: userAgent, QPS: -1, Transport: made.requests}, bounded.Limits{Timeout: timeout})
	made.metadata, err = metadata.NewForConfig(limited) //nolint:forbidigo // The config is bounded.
	return made, err
}

// forUpgrades returns a transport for requests that become connections of their own. Only HTTP/1.1 has such.
func forUpgrades(config *tls.Config) *http.Transport {
	one := overHTTP1(config)
	one.ResponseHeaderTimeout, one.DisableKeepAlives = upgradeTimeout, true
	return one
}

// overHTTP1 returns a transport without HTTP/2.
func overHTTP1(config *tls.Config) *http.Transport {
	config = config.Clone()
	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	config.NextProtos = []string{"http/1.1"}
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}
	return &http.Transport{
		TLSClientConfig: config, DialContext: dialer.DialContext, TLSHandshakeTimeout: dialTimeout, DisableCompression: true,
		TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{},
	}
}

// check asks which cluster answers. Nothing else is sent to another cluster than the registered one. Its context is not
// that of a request: all who wait share the answer.
func (w *worker) check(object *v1alpha1.WorkerCluster, clock clock.PassiveClock) {
	w.err = w.identify(object)
	w.checked = clock.Now()
	close(w.ready)
}

func (w *worker) identify(object *v1alpha1.WorkerCluster) error {
	ctx, cancel := context.WithTimeout(context.Background(), w.timeout) //nolint:forbidigo // See check.
	defer cancel()
	found, err := w.metadata.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	switch {
	case err != nil:
		return unanswered(object, w.timeout)
	case object.Status.ClusterID == "" || found.UID != object.Status.ClusterID:
		return unusable("worker %q is not used: another cluster answers at its address", object.Name)
	}
	return nil
}

// unusableError says in words for users why a worker is not asked.
type unusableError struct{ words string }

// Error returns the words.
func (e *unusableError) Error() string { return e.words }

func unusable(format string, values ...any) error {
	return &unusableError{words: fmt.Sprintf(format, values...)}
}

// unanswered says that a worker does not answer, and what the manager knows about that. What it says of a worker that it
// does not reach has the worker's address, which is not for users.
func unanswered(object *v1alpha1.WorkerCluster, timeout time.Duration) error {
	ready := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.WorkerClusterReady)
	switch seen := object.Status.LastSeenTime; {
	case ready == nil || ready.Status == metav1.ConditionTrue:
		return unusable("worker %q does not answer in %s", object.Name, timeout)
	case ready.Reason != v1alpha1.ReasonUnreachable:
		return unusable("worker %q does not answer: %s", object.Name, strings.TrimSpace(ready.Message))
	case seen == nil:
		return unusable("worker %q does not answer, and never has", object.Name)
	default:
		return unusable("worker %q does not answer: it was last seen at %s", object.Name, seen.UTC().Format(time.RFC3339))
	}
}

// explain says in words for users why a worker has not answered. The error itself can have addresses.
func (w *workers) explain(ctx context.Context, name v1alpha1.ClusterName, err error) error {
	var said *unusableError
	if errors.As(err, &said) {
		return said
	}
	if refused, is := isRefused(err); is {
		return unusable("worker %q refuses: %s", name, refused.Message)
	}
	silences.WithLabelValues(string(name)).Inc()
	object, missing := w.registered(context.WithoutCancel(ctx), name)
	if missing != nil {
		return missing
	}
	if errors.Is(err, context.DeadlineExceeded) {
		w.doubt(object)
	}
	return unanswered(object, w.timeout)
}

// late says in words for users that a worker has not answered in time. Whoever waits for the answer still does.
func (w *workers) late(ctx context.Context, name v1alpha1.ClusterName) error {
	object, err := w.registered(ctx, name)
	if err != nil {
		return err
	}
	w.doubt(object)
	return unanswered(object, w.timeout)
}
