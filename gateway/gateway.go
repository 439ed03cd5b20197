// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/logarchive"
)

// Options of a Gateway. All but Archive are required.
type Options struct {
	// Config says where the hub's API server is. Its credentials are not used: every request has its caller's.
	Config *rest.Config
	// Hub reads Dispatches and WorkerClusters from caches of the hub.
	Hub client.Reader
	// Caches are these caches.
	Caches ctrlcache.Cache
	// Loader reads the credentials of workers.
	Loader Loader
	// AnswerTimeout is how long a worker may take for an answer that others do not wait for longer.
	AnswerTimeout time.Duration
	// HubID is the UID of the hub's kube-system namespace.
	HubID types.UID
	// Clock of this process.
	Clock clock.WithTicker
	// Archive has the logs of pods that are gone. Nil: there is none.
	Archive *logarchive.Archive
	// Logger gets a line for each log and each connection that somebody asks for, see visit.
	Logger logr.Logger
}

// Gateway is an http.Handler: the API of the hub, with the pods of jobs that run on workers. All methods may be called
// concurrently.
type Gateway struct {
	hub     *hub
	clock   clock.WithTicker
	log     logr.Logger
	access  *access
	workers *workers
	copies  *copies
	places  *places
	lists   *shared
	// limits count streams by user, and listing counts lists by caller.
	limits, listing *limits
	archived        *archived
	board           http.Handler
}

// New returns a Gateway that works until ctx ends.
func New(ctx context.Context, o Options) (*Gateway, error) {
	config := rest.AnonymousClientConfig(o.Config)
	config.UserAgent, config.QPS = userAgent, -1
	h, err := newHub(config, o.Hub, o.Logger)
	if err != nil {
		return nil, err
	}
	g := &Gateway{
		hub: h, clock: o.Clock, log: o.Logger, access: newAccess(config, h.requests, o.Clock),
		workers: newWorkers(o.Hub, o.Loader, o.Clock, o.AnswerTimeout), copies: newCopies(o.Hub, string(o.HubID), o.Clock), places: newPlaces(),
		lists:  newShared(o.AnswerTimeout),
		limits: newLimits(maxStreamsOfUser, maxStreams, openStreams), listing: newLimits(maxListsOfCaller, maxLists, nil),
	}
	if o.Archive != nil {
		g.archived = &archived{store: o.Archive, hub: h, access: g.access, copies: g.copies, limits: g.limits, log: o.Logger}
	}
	g.board = newBoard(ctx, g, o)
	if err := g.places.follow(ctx, o.Caches); err != nil {
		return nil, err
	}
	go g.workers.run(ctx)
	return g, nil
}

// ErrorLog returns the log for HTTP servers and proxies. They have little to say that is not the fault of a client.
func ErrorLog(logger logr.Logger) *log.Logger { return log.New(logWriter{logger}, "", 0) }

// logWriter takes what net/http says about clients that go in the middle of something.
type logWriter struct{ log logr.Logger }

// Write logs a line.
func (l logWriter) Write(line []byte) (int, error) {
	l.log.V(1).Info("HTTP server", "message", strings.TrimSpace(string(line)))
	return len(line), nil
}

const noToken = "the gateway takes bearer tokens, and no client certificates or passwords: " +
	"log in with a token, such as one of \"kubectl create token\" at the hub"

// ServeHTTP answers a request.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if isBoard(r.URL.Path) {
		g.board.ServeHTTP(w, r)
		return
	}
	info, to, err := parse(r)
	counter := requests.MustCurryWith(prometheus.Labels{"route": to.String()})
	promhttp.InstrumentHandlerCounter(counter, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, ok := callerOf(r)
		switch {
		case !ok:
			w.Header().Set("Www-Authenticate", "Bearer")
			fail(w, status(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, noToken))
		case err != nil || climbs(r.URL):
			fail(w, status(http.StatusBadRequest, metav1.StatusReasonBadRequest, fmt.Sprintf("the path %q is none of the Kubernetes API", r.URL.Path)))
		default:
			g.serve(w, r, &c, info, to)
		}
	})).ServeHTTP(w, r)
}

func (g *Gateway) serve(w http.ResponseWriter, r *http.Request, c *caller, info *apirequest.RequestInfo, to route) {
	switch to {
	case toHub:
		if readsRuntimes(info) {
			g.hub.pass(w, r, c, adviseOnRuntimes)
			return
		}
		g.hub.serve(w, r, c)
	case getPod:
		g.getPod(w, r, c, info)
	case readLog:
		g.readLog(w, r, c, info)
	case stream:
		g.stream(w, r, c, info)
	case changePod:
		g.changePod(w, r, c, info)
	case list, watch:
		g.merge(w, r, c, info, to)
	}
}

// merge answers from several clusters.
func (g *Gateway) merge(w http.ResponseWriter, r *http.Request, c *caller, info *apirequest.RequestInfo, to route) {
	q, refused := g.questionOf(r, c, info)
	switch {
	case refused != nil:
		fail(w, refused)
		return
	case to == list:
		leave, ok := g.listing.enter(c.hash())
		if !ok {
			fail(w, status(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "too many lists of pods and Events are under way: ask less often"))
			return
		}
		defer leave()
		if !g.archived.list(w, q) {
			g.list(w, q)
		}
		return
	case r.Header.Get("Upgrade") != "":
		fail(w, status(http.StatusBadRequest, metav1.StatusReasonBadRequest, "watch pods and Events without a WebSocket"))
		return
	}
	user, err := g.access.user(r.Context(), c)
	if err != nil {
		g.hub.serve(w, r, c) // It says why.
		return
	}
	leave, ok := g.limits.enter(user)
	if !ok {
		fail(w, tooMany(user))
		return
	}
	defer leave()
	g.watch(w, q)
}

// targets returns the workers that may have what the caller asks for, sorted.
func (g *Gateway) targets(q *question) []v1alpha1.ClusterName {
	namespace := q.asked.namespace
	var jobs []*v1alpha1.Dispatch
	switch {
	case namespace == "" || q.asked.name == "" && q.asked.job == "":
		return g.places.of(namespace)
	case q.asked.name != "":
		jobs = g.copies.byPod(q.ctx, namespace, q.asked.name)
	default:
		if d := g.hub.dispatch(q.ctx, types.NamespacedName{Namespace: namespace, Name: q.asked.job}); d != nil {
			jobs = append(jobs, d)
		}
	}
	var names []v1alpha1.ClusterName
	for _, d := range jobs {
		if d.Spec.Cluster != "" {
			names = append(names, d.Spec.Cluster)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// waits says why the job that the caller asks for has no pods.
func (g *Gateway) waits(q *question) string {
	if q.asked.job == "" || q.asked.namespace == "" {
		return ""
	}
	if d := g.hub.dispatch(q.ctx, types.NamespacedName{Namespace: q.asked.namespace, Name: q.asked.job}); d != nil {
		return waiting(d)
	}
	return ""
}
