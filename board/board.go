// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package board

import (
	"context"
	"net/http"
	"path"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/trainyard/trainyard/internal/hub"
)

// Caller is who sends a request. Each method acts with the caller's rights on the hub.
type Caller interface {
	// Allows says whether the hub lets the caller do something.
	Allows(ctx context.Context, attributes authorizationv1.ResourceAttributes) (bool, error)
	// Hub reads the hub.
	Hub() (*hub.Hub, error)
	// Pods says where the pods of a job are. Its error says what the caller can do.
	Pods(ctx context.Context, job types.NamespacedName) (*Pods, error)
	// Enter counts a stream of the caller. ok is false if the caller has too many.
	Enter(ctx context.Context) (leave func(), ok bool)
}

// Pods are the pods of a job, on whichever cluster they are.
type Pods struct {
	Client kubernetes.Interface
	// Selector selects the pods.
	Selector string
	// WhyNone says why there are none. Empty: there are some, or it is not known.
	WhyNone string
}

// Watched says what the process can watch. What it cannot, no caller sees.
type Watched struct {
	// Workers are the WorkerClusters.
	Workers bool
	// Jobs are Dispatches and TrainJobs in Namespace. Empty: in all namespaces.
	Jobs      bool
	Namespace string
}

// Options of a Board. All are required but Context.
type Options struct {
	// Caches watch the hub.
	Caches  ctrlcache.Cache
	Watched Watched
	// Caller returns who sends a request, or nil after it has answered the request.
	Caller func(w http.ResponseWriter, r *http.Request) Caller
	// Namespace is shown first.
	Namespace string
	// Context is what follows "kubectl" in commands to copy, such as --context=prod. It may be empty.
	Context string
	Clock   clock.WithTicker
}

// Board is an http.Handler. All its methods may be called concurrently.
type Board struct {
	options Options
	index   *index
	pages   *pages
	pulse   *pulse
	routes  *http.ServeMux
	// simulations bounds how many simulations run at a time.
	simulations chan struct{}
}

// New returns a Board that works until ctx ends. It watches nothing before the first page is asked for.
func New(ctx context.Context, o Options) *Board {
	b := &Board{options: o, index: newIndex(), pulse: newPulse(o.Clock), simulations: make(chan struct{}, maxSimulations)}
	b.pages = &pages{index: b.index, spent: b.pulse.spent, byQuery: lru.New(mostPages)}
	b.index.start = func() error { return b.index.follow(ctx, o.Caches, o.Watched) }
	b.routes = http.NewServeMux()
	for pattern, handler := range map[string]func(http.ResponseWriter, *http.Request, Caller){
		"GET /api/me": b.serveMe, "GET /api/fleet": b.servePage(fleetPage), "GET /api/queue": b.servePage(queuePage),
		"GET /api/jobs": b.servePage(jobsPage), "GET /api/stream/fleet": b.stream(fleetPage), "GET /api/stream/queue": b.stream(queuePage),
		"GET /api/stream/jobs": b.stream(jobsPage), "GET /api/job": b.serveJob, "GET /api/pods": b.servePods, "GET /api/log": b.serveLog,
		"POST /api/whatif": b.serveWhatIf,
	} {
		b.routes.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if caller := o.Caller(w, r); caller != nil {
				handler(w, r, caller)
			}
		})
	}
	b.addAssets()
	go b.pulse.run(ctx, b.index.changed)
	return b
}

// ServeHTTP answers a request.
func (b *Board) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	protect(w.Header())
	if !sameOrigin(r) && !isVisit(r) {
		refuse(w, http.StatusForbidden, &problem{Error: "another page sent this request", Todo: "open the board itself"})
		return
	}
	if r.URL.Path != path.Clean(r.URL.Path) { // The mux would redirect.
		http.NotFound(w, r)
		return
	}
	b.routes.ServeHTTP(w, r)
}

// answerTimeout is how long one answer may take, streams and logs apart.
const answerTimeout = 30 * time.Second
