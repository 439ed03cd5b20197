// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// located is a pod of a copy.
type located struct {
	worker   *worker
	dispatch *v1alpha1.Dispatch
	pod      shown
}

// attributes are what the hub asks its authorizers about a request.
func attributes(info *apirequest.RequestInfo, verb string) authorizationv1.ResourceAttributes {
	return authorizationv1.ResourceAttributes{
		Verb: verb, Version: info.APIVersion, Resource: info.Resource, Subresource: info.Subresource, Namespace: info.Namespace, Name: info.Name,
	}
}

// permitted says whether the caller may do to a pod of this name what the request asks for. If not, the hub says why. An
// error means that the hub does not say, or does not know the caller.
func (g *Gateway) permitted(ctx context.Context, c *caller, info *apirequest.RequestInfo, verbs ...string) (bool, error) {
	for _, verb := range verbs {
		if allowed, err := g.access.allows(ctx, c, attributes(info, verb)); err != nil || !allowed {
			return false, err
		}
	}
	return true, nil
}

// safeNames says whether the names in a request can be parts of a path. API servers accept no others.
func safeNames(info *apirequest.RequestInfo) bool {
	return len(validation.IsDNS1123Subdomain(info.Name)) == 0 && len(validation.IsDNS1123Label(info.Namespace)) == 0
}

// locate finds a pod of a copy by its name. It is nil if no copy has it. The status says that nobody knows, and why.
func (g *Gateway) locate(
	ctx context.Context, c *caller, info *apirequest.RequestInfo, accept string, include metav1.IncludeObjectPolicy,
) (*located, *metav1.Status) {
	if !safeNames(info) {
		return nil, nil // Nothing has this name.
	}
	for _, d := range g.copies.byPod(ctx, info.Namespace, info.Name) {
		if d.Spec.Cluster == "" {
			continue
		}
		found, err := g.locateOn(ctx, d, info, accept, include)
		if found != nil {
			return found, nil
		}
		if refused, is := isRefused(err); is && refused.Code == http.StatusNotFound || err == nil {
			continue
		}
		said := g.workers.explain(ctx, d.Spec.Cluster, err)
		if g.hub.asked(ctx, c, info) == http.StatusOK {
			return nil, nil
		}
		return nil, unavailable("%v", said)
	}
	return nil, nil
}

func (g *Gateway) locateOn(
	ctx context.Context, d *v1alpha1.Dispatch, info *apirequest.RequestInfo, accept string, include metav1.IncludeObjectPolicy,
) (*located, error) {
	ctx, cancel := context.WithTimeout(ctx, g.workers.timeout)
	defer cancel()
	w, err := g.workers.get(ctx, d.Spec.Cluster)
	if err != nil {
		return nil, err
	}
	query := url.Values{}
	if include != "" {
		query.Set("includeObject", string(include))
	}
	res, err := w.server().get(ctx, podPath(info, ""), query, accept, false)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		return nil, refusal(statusOf(res))
	}
	pod, err := readPod(res)
	if err != nil {
		return nil, err
	}
	of := pods{g.copies}
	if err := of.learn(ctx, w, info.Namespace, []shown{pod}); err != nil {
		return nil, err
	}
	b, ours := of.of(w, pod.object)
	if !ours || pod.meta.Name != info.Name || pod.meta.Namespace != info.Namespace {
		return nil, nil
	}
	if now := g.copies.shows(ctx, w.name, b); now != nil {
		return &located{worker: w, dispatch: now, pod: pod}, nil
	}
	return nil, nil
}

// readPod reads a pod, or a table with one.
func readPod(res *http.Response) (shown, error) {
	defer func() { _ = res.Body.Close() }()
	var raw json.RawMessage
	if err := json.NewDecoder(res.Body).Decode(&raw); err != nil {
		return shown{}, fmt.Errorf("decode pod: %w", err)
	}
	var o object
	if err := json.Unmarshal(raw, &o); err != nil {
		return shown{}, fmt.Errorf("decode pod: %w", err)
	}
	if o.fields[fieldRows] == nil {
		return shown{object: &o}, nil
	}
	p, err := parsePage(raw)
	if err != nil || len(p.items) != 1 {
		return shown{}, fmt.Errorf("decode table of a pod: %w", err)
	}
	p.items[0].head = p.head
	return p.items[0], nil
}

// podPath is the path of a pod's subresource on a worker. Its parts are names, which locate has checked.
func podPath(info *apirequest.RequestInfo, subresource string) string {
	path := "/api/v1/namespaces/" + info.Namespace + "/pods/" + info.Name
	if subresource != "" {
		path += "/" + subresource
	}
	return path
}

// getPod answers with a pod of a copy, or passes the request on to the hub.
func (g *Gateway) getPod(w http.ResponseWriter, r *http.Request, c *caller, info *apirequest.RequestInfo) {
	q, refused := g.questionOf(r, c, info)
	if refused != nil {
		fail(w, refused)
		return
	}
	if allowed, _ := g.permitted(q.ctx, c, info, "get"); !allowed {
		g.hub.serve(w, r, c)
		return
	}
	include := metav1.IncludeObjectPolicy("")
	if q.form.table {
		include = q.kind.include(q.include)
	}
	found, refused := g.locate(q.ctx, c, info, q.form.accept, include)
	switch {
	case found == nil && g.archived.pod(w, q):
		return
	case refused != nil:
		fail(w, refused)
		return
	case found == nil:
		g.notThere(w, r, c, info)
		return
	}
	version := versions{found.worker.name: found.pod.meta.ResourceVersion}
	if err := q.dress(found.dispatch, found.pod.object, version); err != nil {
		fail(w, unavailable("worker %q: %v", found.worker.name, err))
		return
	}
	w.Header().Set("Content-Type", typeJSON)
	_, _ = w.Write(found.pod.alone(q.include)) // The client may have gone.
}

// notThere passes a request about a pod on to the hub, or says why the job whose pod it would be has none.
func (g *Gateway) notThere(w http.ResponseWriter, r *http.Request, c *caller, info *apirequest.RequestInfo) {
	for _, d := range g.copies.byPod(r.Context(), info.Namespace, info.Name) {
		if words := waiting(d); words != "" {
			warn(w, words)
		}
	}
	g.hub.serve(w, r, c)
}

// waiting says why a job has no worker, empty if it has one or has ended.
func waiting(d *v1alpha1.Dispatch) string {
	if d.Spec.Cluster != "" || d.IsFinished() {
		return ""
	}
	words := fmt.Sprintf("TrainJob %s/%s waits", d.Namespace, d.Name)
	for _, condition := range d.Status.Conditions {
		if condition.Type == v1alpha1.DispatchPlaced && condition.Status != metav1.ConditionTrue {
			words += ": " + strings.TrimSuffix(condition.Message, ".")
		}
	}
	return words
}

// changePod refuses to change a pod of a worker: its job would make another one.
func (g *Gateway) changePod(w http.ResponseWriter, r *http.Request, c *caller, info *apirequest.RequestInfo) {
	of := *info
	of.Subresource = ""
	if allowed, _ := g.permitted(r.Context(), c, &of, "get"); !allowed {
		g.hub.serve(w, r, c)
		return
	}
	found, refused := g.locate(r.Context(), c, info, metadataAccept, "")
	switch {
	case refused != nil:
		fail(w, refused)
	case found == nil:
		g.hub.serve(w, r, c)
	default:
		fail(w, status(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, fmt.Sprintf(
			"pod %q runs on worker %q and cannot be changed from the hub: change, suspend or delete TrainJob %q",
			info.Name, found.worker.name, found.dispatch.Name)))
	}
}

// metadataAccept asks for the metadata of an object.
const metadataAccept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
