// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"net/http"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

const (
	// The values of the key source: what a caller gets comes from there.
	sourceWorker, sourceArchive, sourceHub = "worker", "archive", "hub"
	// maxName and maxReason bound what a line of the log has of a request. A name in a request can be any text.
	maxName, maxReason = 253, 1000
)

// visit is a request for the log of a pod, or for a connection to it. The log of this process gets one line for it: the
// audit log of the worker knows only the hub's account. What the hub answers itself is in the hub's audit log, and has no
// line, unless it is a refusal.
//
// A line never has the query: it has the arguments of commands. For the same reason it has no words of a worker, which has
// got the query.
type visit struct {
	ctx       context.Context
	log       logr.Logger
	access    *access
	caller    *caller
	info      *apirequest.RequestInfo
	container string
	// written is true once there is a line. One goroutine serves a request, so it needs no lock.
	written bool
}

func (g *Gateway) visitOf(r *http.Request, c *caller, info *apirequest.RequestInfo) *visit {
	return &visit{ctx: r.Context(), log: g.log, access: g.access, caller: c, info: info, container: r.URL.Query().Get("container")}
}

// answered writes that the caller gets what was asked for, of the pod of a job that is or was on a worker.
func (v *visit) answered(source string, name v1alpha1.ClusterName, job string, code int) {
	v.write("Access to a pod", "source", source, "workerCluster", name, "trainJob", job, "code", code)
}

// refused writes why the caller does not get what was asked for. The name is empty unless a worker was asked.
func (v *visit) refused(source string, name v1alpha1.ClusterName, s *metav1.Status) {
	v.write("Refused access to a pod", "source", source, "workerCluster", name, "code", s.Code, "reason", cut(s.Message, maxReason))
}

func (v *visit) write(message string, values ...any) {
	if v == nil || v.written {
		return
	}
	v.written = true
	ctx := context.WithoutCancel(v.ctx) // The caller may have gone, and has asked for it all the same.
	user, err := v.access.user(ctx, v.caller)
	if err != nil {
		return // The hub does not know the caller: anybody could fill the log.
	}
	line := []any{
		"user", user, "verb", v.info.Subresource, "namespace", cut(v.info.Namespace, maxName), "pod", cut(v.info.Name, maxName),
		"container", cut(v.container, maxName),
	}
	if len(v.caller.impersonate) > 0 {
		line = append(line, "impersonatedBy", v.impersonator(ctx))
	}
	v.log.Info(message, append(line, values...)...)
}

// impersonator is who acts as somebody else.
func (v *visit) impersonator(ctx context.Context) string {
	name, err := v.access.user(ctx, &caller{token: v.caller.token})
	if err != nil {
		return "unknown"
	}
	return name
}
