// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"maps"
	"net/http"
	"net/url"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// question is a request whose answer can come from workers.
type question struct {
	ctx     context.Context
	caller  *caller
	info    *apirequest.RequestInfo
	query   url.Values
	form    form
	include metav1.IncludeObjectPolicy
	kind    kind
	asked   *wanted
	// at are the versions that the request names. plain is true if it names one of the hub alone.
	at    versions
	plain bool
}

// questionOf reads a request. The status says why that is not possible.
func (g *Gateway) questionOf(r *http.Request, c *caller, info *apirequest.RequestInfo) (*question, *metav1.Status) {
	q := &question{ctx: r.Context(), caller: c, info: info, query: usualQuery(r.URL, info), at: versions{}}
	var ok bool
	if q.form, ok = formOf(r.Header.Get("Accept")); !ok {
		return nil, status(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, "pods and Events come as application/json: accept it")
	}
	switch q.include = metav1.IncludeObjectPolicy(q.query.Get("includeObject")); q.include {
	case "", metav1.IncludeNone, metav1.IncludeMetadata, metav1.IncludeObject:
	default:
		return nil, status(http.StatusBadRequest, metav1.StatusReasonBadRequest, "includeObject: give None, Metadata or Object")
	}
	q.kind = pods{g.copies}
	if info.Resource == resourceEvents {
		q.kind = events{copies: g.copies, group: info.APIGroup}
	}
	var err error
	if q.asked, err = wantedOf(info, q.query); err != nil {
		return nil, status(http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
	}
	if version := q.query.Get("resourceVersion"); version != "" && version != "0" {
		if q.at, ok = parseVersions(version); !ok {
			q.at, q.plain = versions{ofHub: version}, true
		}
	}
	return q, nil
}

// hubQuery is the query for the hub: the caller's, with the resource version of the hub.
func (q *question) hubQuery() url.Values {
	query := maps.Clone(q.query)
	if version, ok := q.at[ofHub]; ok {
		query.Set("resourceVersion", version)
	} else if len(q.at) > 0 { // The caller got the version from an object of a worker.
		query.Del("resourceVersion")
		if !q.initial() { // The hub takes no initial events without it.
			query.Del("resourceVersionMatch")
		}
	}
	if q.form.table && q.include == metav1.IncludeNone {
		query.Set("includeObject", string(metav1.IncludeMetadata)) // What comes twice is found by its name.
	}
	return query
}

// initial says whether a watch begins with all objects that there are.
func (q *question) initial() bool { return isTrue(q.query["sendInitialEvents"]) }

// from are the versions after which a watch begins. The version of a client that wants all objects again says only how
// old they may be.
func (q *question) from() versions {
	if q.initial() {
		return versions{}
	}
	return maps.Clone(q.at)
}

// workerQuery is the query for a worker. ok is false if the worker has nothing that the caller asks for.
func (q *question) workerQuery(ctx context.Context, w *worker) (query url.Values, ok bool) {
	if query, ok = q.kind.query(ctx, w, q.asked); ok && q.form.table {
		query.Set("includeObject", string(q.kind.include(q.include)))
	}
	return query, ok
}

// complete gives an object of a list what it needs to stand alone.
func (q *question) complete(o shown) {
	kind, version := kindPod, q.info.APIVersion
	if q.info.Resource == resourceEvents {
		kind = "Event"
	}
	if q.info.APIGroup != "" {
		version = q.info.APIGroup + "/" + version
	}
	if q.form.as == asMetadata {
		kind, version = asMetadata, "meta.k8s.io/v1"
	}
	if o.row == nil {
		o.fields["kind"], o.fields["apiVersion"] = quoted(kind), quoted(version)
	}
}
