// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/trainyard/trainyard/test/check"
)

// request is a request of the controller that was answered: every write except of Events, every read of a single
// TrainJob, and every list of Jobs.
type request struct {
	// pass is the call of Reconcile that sent the request. Empty: none.
	pass                  types.UID
	method                string
	resource, subresource string
	key                   types.NamespacedName
	begun, answered       time.Time
	code                  int
	sent, got             body
	// listed is the version of a list that was read.
	listed int
}

// body is what the checks need of an object in a request or an answer. It is empty if the object was not JSON.
type body struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	// Preconditions has the preconditions of a deletion.
	Preconditions struct {
		UID types.UID `json:"uid"`
	} `json:"preconditions"`
}

// owner is the UID of the TrainJob that the object belongs to.
func (b body) owner() types.UID { return ownerOf(&b.Metadata) }

func ownerOf(object metav1.Object) types.UID {
	if owner := metav1.GetControllerOf(object); owner != nil && owner.Kind == "TrainJob" {
		return owner.UID
	}
	return ""
}

// isApply says whether the request applied an object of the resource.
func (r request) isApply(resource string) bool {
	return r.method == http.MethodPatch && r.resource == resource && r.subresource == ""
}

// requestLog records the controller's requests over all its starts. Its times come from this process, like the tests'.
type requestLog struct {
	mu      sync.Mutex
	entries []request // under mu
	starts  int       // starts of the controller; under mu
}

func (l *requestLog) started() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.starts++
}

// of returns the requests about a namespace in the order of their answers, and the number of the controller's starts.
func (l *requestLog) of(namespace string) (requests []request, starts int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.entries {
		if r.key.Namespace == namespace {
			requests = append(requests, r)
		}
	}
	return requests, l.starts
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (l *requestLog) transport(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		entry, wanted := parseRequest(r)
		if !wanted {
			return next.RoundTrip(r)
		}
		var err error
		if r.Body, entry.sent, err = parseBody(r.Body); err != nil {
			return nil, err
		}
		entry.begun = time.Now()
		answer, err := next.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		entry.answered, entry.code = time.Now(), answer.StatusCode
		if entry.resource == "jobs" && entry.method == http.MethodGet {
			answer.Body, entry.listed, err = parseList(answer.Body)
		} else {
			answer.Body, entry.got, err = parseBody(answer.Body)
		}
		if err != nil {
			return nil, err
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.entries = append(l.entries, entry)
		return answer, nil
	})
}

// parseRequest reads a request's path:
// /apis/GROUP/VERSION/namespaces/NAMESPACE/RESOURCE[/NAME[/SUBRESOURCE]] or /api/VERSION/...
func parseRequest(r *http.Request) (entry request, wanted bool) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	at := slices.Index(parts, "namespaces")
	if at < 0 || len(parts) < at+3 {
		return request{}, false
	}
	entry = request{method: r.Method, resource: parts[at+2], key: types.NamespacedName{Namespace: parts[at+1]}}
	if len(parts) > at+3 {
		entry.key.Name = parts[at+3]
	}
	if len(parts) > at+4 {
		entry.subresource = parts[at+4]
	}
	entry.pass = controller.ReconcileIDFromContext(r.Context())
	if r.Method == http.MethodGet {
		return entry, entry.resource == "trainjobs" && entry.key.Name != "" || entry.resource == "jobs"
	}
	return entry, entry.resource != "events"
}

func parseBody(stream io.ReadCloser) (io.ReadCloser, body, error) {
	if stream == nil {
		return nil, body{}, nil
	}
	data, err := io.ReadAll(stream)
	if err != nil {
		return nil, body{}, err
	}
	var parsed body
	if json.Unmarshal(data, &parsed) != nil { // The object is in protobuf, which only Kubernetes' own types have.
		parsed = body{}
	}
	return io.NopCloser(bytes.NewReader(data)), parsed, stream.Close()
}

// parseList reads the version of a list of Kubernetes' own objects, in any encoding. 0: the answer is a refusal.
func parseList(stream io.ReadCloser) (io.ReadCloser, int, error) {
	data, err := io.ReadAll(stream)
	if err != nil {
		return nil, 0, err
	}
	var version int
	object, _, err := clientgoscheme.Codecs.UniversalDeserializer().Decode(data, nil, nil)
	if list, ok := object.(metav1.ListInterface); ok && err == nil {
		version, err = strconv.Atoi(list.GetResourceVersion())
	}
	return io.NopCloser(bytes.NewReader(data)), version, errors.Join(err, stream.Close())
}

// TestReasonsDoNotMakeMetrics: a writer of JobSet statuses cannot create any number of metrics.
func TestReasonsDoNotMakeMetrics(t *testing.T) {
	for reason, want := range map[string]string{
		"AllJobsCompleted": "AllJobsCompleted", "FailedJobs": "FailedJobs", "ReachedMaxRestarts": "ReachedMaxRestarts",
		"FailJobSetFailurePolicyAction": "FailJobSetFailurePolicyAction", "DeadlineExceeded": "DeadlineExceeded",
		"TrainingRuntimeNotSupported": "TrainingRuntimeNotSupported", "Forged-1": "Other", "": "Other",
	} {
		check.Equal(t, want, countedReason(reason), "reason %q is counted as", reason)
	}
}
