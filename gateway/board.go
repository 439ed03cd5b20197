// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/board"
	readers "github.com/trainyard/trainyard/internal/hub"
)

// boardPath is where the board is. The API of Kubernetes has no such path.
const boardPath = "/board"

// newBoard serves the board, whose caches are those of the manager. What a caller sees of them, the hub decides.
func newBoard(ctx context.Context, g *Gateway, o Options) http.Handler {
	pages := http.StripPrefix(boardPath, board.New(ctx, board.Options{
		Caches: o.Caches, Watched: board.Watched{Workers: true, Jobs: true}, Clock: o.Clock,
		Caller: func(w http.ResponseWriter, r *http.Request) board.Caller {
			c, ok := callerOf(r)
			if !ok {
				board.Unauthorized(w)
				return nil
			}
			return &boardCaller{gateway: g, caller: &c}
		},
	}))
	counter := requests.MustCurryWith(prometheus.Labels{"route": "board"})
	return promhttp.InstrumentHandlerCounter(counter, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == boardPath { // Otherwise the addresses in the page would lead elsewhere.
			http.Redirect(w, r, boardPath+"/", http.StatusPermanentRedirect)
			return
		}
		pages.ServeHTTP(w, r)
	}))
}

// isBoard is true for paths of the board.
func isBoard(path string) bool {
	return path == boardPath || strings.HasPrefix(path, boardPath+"/")
}

// boardCaller is a caller of the board. All that it reads is read with its own token.
type boardCaller struct {
	gateway *Gateway
	caller  *caller
}

// Allows implements board.Caller.
func (c *boardCaller) Allows(ctx context.Context, attributes authorizationv1.ResourceAttributes) (bool, error) {
	return c.gateway.access.allows(ctx, c.caller, attributes)
}

// Hub implements board.Caller.
func (c *boardCaller) Hub() (*readers.Hub, error) {
	return readers.New(&rest.Config{
		Host: c.gateway.hub.base.String(), UserAgent: userAgent, QPS: -1, Transport: asCaller{caller: c.caller, next: c.gateway.hub.requests},
	}, "")
}

// Pods implements board.Caller. The pods are those that the gateway itself shows to the caller.
func (c *boardCaller) Pods(ctx context.Context, job types.NamespacedName) (*board.Pods, error) {
	through := &http.Client{Transport: &inside{handler: c.gateway, caller: c.caller, log: c.gateway.log}, CheckRedirect: noRedirect}
	client, err := kubernetes.NewForConfigAndClient(&rest.Config{
		Host: c.gateway.hub.base.String(), UserAgent: userAgent, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: typeJSON, AcceptContentTypes: typeJSON},
	}, through)
	if err != nil {
		return nil, fmt.Errorf("make client for pods: %w", err)
	}
	// It is told only after the caller's list of pods has succeeded, as the warning of such a list is.
	pods := &board.Pods{Client: client, Selector: jobsetv1alpha2.JobSetNameKey + "=" + job.Name}
	if d := c.gateway.hub.dispatch(ctx, job); d != nil {
		pods.WhyNone = waiting(d)
	}
	return pods, nil
}

// Enter implements board.Caller.
func (c *boardCaller) Enter(ctx context.Context) (leave func(), ok bool) {
	user, err := c.gateway.access.user(ctx, c.caller)
	if err != nil {
		return func() {}, true // The hub says what is wrong when it is asked for rights.
	}
	return c.gateway.limits.enter(user)
}
