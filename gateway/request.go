// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// route says what is done with a request.
type route int

const (
	// toHub sends the request to the hub, and nowhere else.
	toHub route = iota
	// list and watch merge what the hub answers with what workers answer.
	list
	watch
	// getPod reads one pod, readLog a log, and stream is exec, attach and port-forward: each is for one cluster.
	getPod
	readLog
	stream
	// changePod changes one pod. Only pods of the hub can be changed.
	changePod
)

// routeNames are the values of the label route of metrics.
var routeNames = [...]string{
	toHub: "hub", list: "list", watch: "watch", getPod: "get", readLog: "log", stream: "stream", changePod: "change",
}

// String names the route.
func (r route) String() string { return routeNames[r] }

const (
	resourcePods   = "pods"
	resourceEvents = "events"
	groupEvents    = "events.k8s.io"
	subresourceLog = "log"
)

// streams are the subresources of pods that are connections, and the log, with what is done there.
var streams = map[string]string{
	"exec": "execute commands", "attach": "attach to containers", "portforward": "forward ports", subresourceLog: "read logs",
}

var requestInfos = apirequest.RequestInfoFactory{
	APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api"),
}

// parse says what an API server sees in a request, and what is done with it here. The error is about a path that no
// client sends.
func parse(r *http.Request) (*apirequest.RequestInfo, route, error) {
	info, err := requestInfos.NewRequestInfo(r)
	if err != nil {
		return nil, toHub, err
	}
	to := routeOf(info)
	if to == watch {
		info.Path = usualPath(info)
	}
	return info, to, nil
}

// usualPath is the path of a watch without the verb and the name that old paths have, such as
// /api/v1/watch/namespaces/team/pods/a. A list of the old path would be a watch, too.
func usualPath(info *apirequest.RequestInfo) string {
	base := path.Join("/", info.APIPrefix, info.APIGroup, info.APIVersion)
	rest, old := strings.CutPrefix("/"+strings.Trim(info.Path, "/"), base+"/watch/")
	if !old {
		return info.Path
	}
	return base + "/" + strings.TrimSuffix(rest, "/"+strings.Join(info.Parts[1:], "/"))
}

// usualQuery is the query of a request, with what an old path says.
func usualQuery(u *url.URL, info *apirequest.RequestInfo) url.Values {
	query := u.Query()
	if info.Path == u.Path {
		return query
	}
	query.Set("watch", "true")
	if len(info.Parts) > 1 {
		terms := []string{named(info.Name)}
		if more := query.Get("fieldSelector"); more != "" {
			terms = append(terms, more)
		}
		query.Set("fieldSelector", strings.Join(terms, ","))
	}
	return query
}

func routeOf(info *apirequest.RequestInfo) route {
	if !info.IsResourceRequest || info.APIVersion != "v1" {
		return toHub
	}
	pods := info.APIGroup == "" && info.Resource == resourcePods
	events := (info.APIGroup == "" || info.APIGroup == groupEvents) && info.Resource == resourceEvents
	switch {
	case !pods && !events || len(info.Parts) > 3:
		return toHub
	case len(info.Parts) == 1 && info.Verb == "list":
		return list
	case info.Verb == "watch" && info.Subresource == "":
		return watch
	case !pods || len(info.Parts) == 1 || info.Namespace == "":
		return toHub
	case info.Subresource == "" && info.Verb == "get":
		return getPod
	case info.Subresource == subresourceLog && info.Verb == "get":
		return readLog
	case streams[info.Subresource] != "" && (info.Verb == "get" || info.Verb == "create"):
		return stream
	case slices.Contains([]string{"create", "update", "patch", "delete"}, info.Verb):
		return changePod
	}
	return toHub
}

// climbs says whether a path leads out of what stands before it, for servers that resolve such paths. The hub's address
// may have a path.
func climbs(u *url.URL) bool {
	for _, part := range strings.Split(u.Path, "/") {
		if part == "." || part == ".." {
			return true
		}
	}
	return false
}
