// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/remote/bounded"
)

// passed are the headers of a request for a stream that a worker gets. All others stay here, the caller's token among
// them.
var passed = []string{
	"Accept", "Connection", "Content-Length", "Content-Type", "Upgrade",
	"Sec-Websocket-Extensions", "Sec-Websocket-Key", "Sec-Websocket-Version", "X-Stream-Protocol-Version",
}

// answered are the headers of a worker's answer that the caller gets.
var answered = []string{
	"Cache-Control", "Connection", "Content-Length", "Content-Type", "Date", "Upgrade",
	"Sec-Websocket-Accept", "Sec-Websocket-Extensions", headerProtocol, "X-Stream-Protocol-Version",
}

// grants are the flags of "kubectl trainyard join" that give the hub a right on a worker, by the subresource of pods.
var grants = map[string]string{subresourceLog: "", "exec": grantExec, "attach": grantExec, "portforward": grantExec}

const grantExec = " --exec"

// readLog answers with the log of a pod.
func (g *Gateway) readLog(w http.ResponseWriter, r *http.Request, c *caller, info *apirequest.RequestInfo) {
	g.connect(w, r, c, info, []string{"get"}, func(w *worker) http.RoundTripper { return w.requests })
}

// stream connects the caller with a pod. An API server before 1.35 asks whether the caller may get the subresource if
// the request is a GET. Later ones ask whether the caller may create it, too.
func (g *Gateway) stream(w http.ResponseWriter, r *http.Request, c *caller, info *apirequest.RequestInfo) {
	verbs := []string{"create"}
	if r.Method == http.MethodGet {
		verbs = append(verbs, "get")
	}
	g.connect(w, r, c, info, verbs, func(w *worker) http.RoundTripper { return w.upgrades })
}

// connect passes a request for a pod of a copy on to its worker, and all others to the hub.
func (g *Gateway) connect(
	w http.ResponseWriter, r *http.Request, c *caller, info *apirequest.RequestInfo, verbs []string, by func(*worker) http.RoundTripper,
) {
	v := g.visitOf(r, c, info)
	if allowed, err := g.permitted(r.Context(), c, info, verbs...); !allowed {
		if err == nil {
			v.refused(sourceHub, "", status(http.StatusForbidden, metav1.StatusReasonForbidden, "the hub does not permit it"))
		}
		g.hub.serve(w, r, c)
		return
	}
	found, refused := g.locate(r.Context(), c, info, metadataAccept, "")
	switch {
	case found == nil && g.archived.logOf(w, r, v):
		return
	case refused != nil:
		v.refused(sourceWorker, "", refused)
		fail(w, refused)
		return
	case found == nil:
		g.notThere(w, r, c, info)
		return
	}
	user, err := g.access.user(r.Context(), c)
	if err != nil {
		fail(w, unavailable("%v", err))
		return
	}
	leave, ok := g.limits.enter(user)
	if !ok {
		refused = tooMany(user)
		v.refused(sourceWorker, found.worker.name, refused)
		fail(w, refused)
		return
	}
	defer leave()
	g.tunnel(w, r, v, found, by(found.worker))
}

// tunnel connects until one side ends, or until the pod's attempt is over: whoever follows a log has to see that.
func (g *Gateway) tunnel(w http.ResponseWriter, r *http.Request, v *visit, found *located, by http.RoundTripper) {
	info := v.info
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	key := client.ObjectKeyFromObject(found.dispatch)
	unsubscribe := g.places.subscribe(func(changed types.NamespacedName) {
		if changed == key && g.fate(ctx, found) == left {
			cancel(errLeft)
		}
	})
	defer unsubscribe()
	follows := info.Subresource == subresourceLog && isTrue(r.URL.Query()["follow"])
	proxy := &httputil.ReverseProxy{
		Transport: by, FlushInterval: -1, ErrorLog: g.hub.errorLog,
		Rewrite: func(p *httputil.ProxyRequest) { rebuild(p, info, found.worker) },
		ModifyResponse: func(res *http.Response) error {
			if res.StatusCode >= 300 && res.StatusCode < 400 {
				return errRedirect
			}
			keepHeaders(res.Header)
			switch {
			case res.StatusCode == http.StatusUnauthorized || res.StatusCode == http.StatusForbidden:
				return &refusedError{status: statusOf(res)}
			case res.StatusCode >= 400:
				bounded.Answer(res, bounded.MaxSmall, false)
			case follows:
				res.Body = &followed{ReadCloser: res.Body, left: func() bool { return g.fate(ctx, found) != stays }}
			}
			v.answered(sourceWorker, found.worker.name, found.dispatch.Name, res.StatusCode)
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if errors.Is(context.Cause(ctx), errLeft) {
				err = errLeft
			}
			refused := g.failed(r.Context(), info, found, err)
			v.refused(sourceWorker, found.worker.name, withoutWords(refused, info))
			fail(w, refused)
		},
	}
	proxy.ServeHTTP(w, r.WithContext(ctx))
}

// failed says why a worker's pod could not be reached.
func (g *Gateway) failed(ctx context.Context, info *apirequest.RequestInfo, found *located, err error) *metav1.Status {
	if refused, is := isRefused(err); is {
		words := fmt.Sprintf("worker %q does not let Trainyard %s: %s", found.worker.name, streams[info.Subresource], refused.Message)
		if !strings.Contains(refused.Message, policyWords) {
			words += fmt.Sprintf("; an admin of the worker permits it with \"kubectl trainyard join %s%s\"", found.worker.name, grants[info.Subresource])
		}
		return status(http.StatusForbidden, metav1.StatusReasonForbidden, words)
	}
	if errors.Is(err, errLeft) {
		return unavailable("TrainJob %q has left worker %q", found.dispatch.Name, found.worker.name)
	}
	return unavailable("%v", g.workers.explain(ctx, found.worker.name, err))
}

// withoutWords is a status of failed without the words of the worker, which has got the arguments of commands.
func withoutWords(s *metav1.Status, info *apirequest.RequestInfo) *metav1.Status {
	if s.Code != http.StatusForbidden {
		return s
	}
	return status(s.Code, s.Reason, "the worker does not let Trainyard "+streams[info.Subresource])
}

// policyWords are in the message of an API server when an admission policy refuses a request, and not RBAC.
const policyWords = "ValidatingAdmissionPolicy"

// fate is what becomes of a stream.
type fate int

const (
	// stays: the pod is of the present attempt.
	stays fate = iota
	// leaves: the attempt is to end, and the pod goes on until its end.
	leaves
	// left: the attempt is over, or its worker is lost.
	left
)

// fate says what becomes of a stream from a pod. A job that is deleted takes its pods with it, as on any cluster.
func (g *Gateway) fate(ctx context.Context, found *located) fate {
	key := client.ObjectKeyFromObject(found.dispatch)
	job, err := records.Job(ctx, g.hub.cached, key)
	if err != nil || job == nil || job.GetUID() != found.dispatch.Spec.TrainJob.UID || job.GetDeletionTimestamp() != nil {
		return stays
	}
	d := g.hub.dispatch(ctx, key)
	switch state := record.AttemptOf(d); {
	case d == nil, d.UID != found.dispatch.UID, d.Spec.Attempt != found.dispatch.Spec.Attempt, d.Spec.Cluster != found.worker.name,
		state == record.Lost, state == record.Ended:
		return left
	case state == record.Evicting, d.DeletionTimestamp != nil:
		return leaves
	}
	return stays
}

var errLeft = errors.New("the job has left the worker")

// followed is a log that is followed. Its end is an error if the job runs on elsewhere: kubectl takes a clean end for the
// end of the container.
type followed struct {
	io.ReadCloser
	left func() bool
}

// Read reads.
func (f *followed) Read(p []byte) (int, error) {
	n, err := f.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) && f.left() {
		return n, errLeft
	}
	return n, err
}

// rebuild makes the request to a worker from the parts that were checked.
func rebuild(p *httputil.ProxyRequest, info *apirequest.RequestInfo, w *worker) {
	target := *w.base
	target.Path, target.RawPath = strings.TrimSuffix(target.Path, "/")+podPath(info, info.Subresource), ""
	target.RawQuery = p.Out.URL.RawQuery
	p.Out.URL, p.Out.Host = &target, ""
	header := http.Header{}
	for _, name := range passed {
		if values := p.Out.Header.Values(name); len(values) > 0 {
			header[name] = values
		}
	}
	if protocols := withoutToken(p.Out.Header); len(protocols) > 0 {
		header.Set(headerProtocol, strings.Join(protocols, ", "))
	}
	p.Out.Header = header
}

// keepHeaders removes from the answer of a worker what only the worker's own clients need.
func keepHeaders(header http.Header) {
	for name := range header {
		if !slices.Contains(answered, name) {
			header.Del(name)
		}
	}
}

// isTrue reads a flag of a query as API servers do.
func isTrue(values []string) (is bool) {
	return runtime.Convert_Slice_string_To_bool(&values, &is, nil) == nil && is
}
