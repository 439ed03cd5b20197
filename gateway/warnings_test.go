// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/logarchive"
	"github.com/trainyard/trainyard/test/check"
)

// evilWords would end the header, add others and begin a body, if they came to the client as they are. They also have
// characters that control terminals, and that end a quoted string.
const evilWords = "before\r\nSet-Cookie: a=b\r\nX-Injected: yes\n\r\n\r\n<html>\x00\x1b[31m\x7f\u0085\u009b31m\u2028\u202e\" \\ after"

// raw sends a GET over HTTP/1.1 and returns the bytes of the answer's header.
func (w *world) raw(t *testing.T, path string) (lines []string) {
	t.Helper()
	dialer := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}}
	connection, err := dialer.DialContext(t.Context(), "tcp", w.gateway.Listener.Addr().String())
	check.Must(t, err)
	defer func() { _ = connection.Close() }()
	_, err = fmt.Fprintf(connection, "GET %s HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer %s\r\nConnection: close\r\n\r\n", path, good)
	check.Must(t, err)
	all, err := io.ReadAll(connection)
	check.Must(t, err)
	header, _, found := bytes.Cut(all, []byte("\r\n\r\n"))
	if !found {
		t.Fatalf("the answer has no end of its header: %q", all)
	}
	return strings.Split(string(header), "\r\n")
}

// TestWordsStayInTheirHeader: words of a worker, of a job and of the archive come in one Warning header, and add no other.
func TestWordsStayInTheirHeader(t *testing.T) {
	const list = "/api/v1/namespaces/team/pods"
	for name, tc := range map[string]struct {
		worker *workerServer
		change func(t *testing.T, w *world)
		path   string
	}{
		"RefusalOfAWorker": {path: list, worker: &workerServer{evil: func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != list {
				return false
			}
			w.WriteHeader(http.StatusForbidden)
			answerJSON(w, status(http.StatusForbidden, "Forbidden", evilWords))
			return true
		}}},
		"ConditionOfAWorker": {
			path: list,
			worker: &workerServer{evil: func(w http.ResponseWriter, _ *http.Request) bool {
				w.WriteHeader(http.StatusInternalServerError)
				return true
			}},
			change: func(t *testing.T, w *world) {
				cluster := &v1alpha1.WorkerCluster{}
				check.Must(t, w.records.Get(t.Context(), types.NamespacedName{Name: "east"}, cluster))
				cluster.Status.Conditions = []metav1.Condition{{Type: v1alpha1.WorkerClusterReady, Status: metav1.ConditionFalse, Message: evilWords}}
				check.Must(t, w.records.Update(t.Context(), cluster))
			},
		},
		"JobThatWaits":    {path: list + "?labelSelector=jobset.sigs.k8s.io/jobset-name%3Djob", worker: &workerServer{}, change: waits},
		"PodOfAJobInLine": {path: podURL, worker: &workerServer{}, change: waits},
		"ReasonInArchive": {path: "/api/v1/namespaces/team/pods/" + gonePod + "/log", worker: &workerServer{evil: withoutPods, archive: evilArchive(t)}},
		"LossInArchive":   {path: "/api/v1/namespaces/team/pods/job-node-0-0-yyyyy/log", worker: &workerServer{evil: withoutPods, archive: evilArchive(t)}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.worker)
			if tc.change != nil {
				tc.change(t, w)
			}
			lines := w.raw(t, tc.path)
			var warnings []string
			for _, line := range lines[1:] {
				header, value, _ := strings.Cut(line, ": ")
				if !slices.Contains([]string{"Content-Type", "Content-Length", "Date", "Connection", "Warning", "Transfer-Encoding"}, header) {
					t.Errorf("the answer has the line %q", line)
				}
				if header == "Warning" {
					warnings = append(warnings, value)
				}
				if strings.ContainsFunc(value, func(r rune) bool { return !unicode.IsGraphic(r) }) {
					t.Errorf("the answer has a line that controls the terminal: %q", line)
				}
			}
			isEvilWarning(t, warnings)
			isEvilWarning(t, w.send(t, http.MethodGet, tc.path).header.Values("Warning")) // By HTTP/2.
		})
	}
}

// isEvilWarning fails unless there is one warning, which has the evil words from begin to end.
func isEvilWarning(t *testing.T, headers []string) {
	t.Helper()
	if len(headers) != 1 {
		t.Fatalf("the warnings are %q", headers)
	}
	parsed, errs := utilnet.ParseWarningHeaders(headers)
	if len(errs) > 0 || len(parsed) != 1 {
		t.Fatalf("the warning %q is read as %v, %v", headers, parsed, errs)
	}
	for _, words := range []string{"before", "Set-Cookie: a=b", "X-Injected: yes", `" \ after`} {
		if !strings.Contains(parsed[0].Text, words) {
			t.Errorf("the warning %q lacks %q", parsed[0].Text, words)
		}
	}
}

// waits takes the job from its worker, with evil words about why it waits.
func waits(t *testing.T, w *world) {
	d := &v1alpha1.Dispatch{}
	check.Must(t, w.records.Get(t.Context(), client.ObjectKey{Namespace: "team", Name: "job"}, d))
	d.Spec.Cluster, d.Spec.ClusterID, d.Spec.Attempt = "", "", 0
	d.Status.Conditions = []metav1.Condition{{Type: v1alpha1.DispatchPlaced, Status: metav1.ConditionFalse, Message: evilWords}}
	check.Must(t, w.records.Update(t.Context(), d))
}

// evilArchive has evil words in all that is text.
func evilArchive(t *testing.T) *logarchive.Archive {
	a := archiveOf(t, "ns-1")
	of := logarchive.Attempt{Namespace: "team", Job: "job", UID: "origin-uid", Number: 1}
	check.Must(t, a.WriteIndex(t.Context(), &logarchive.Index{
		Attempt: of, NamespaceUID: "ns-1", Worker: "east", Reason: evilWords, Missing: evilWords,
		Pods: []logarchive.Pod{{Name: gonePod, UID: "uid", Containers: []logarchive.Container{{Name: "node", Bytes: 14, Note: evilWords}}}},
	}))
	return a
}

// TestWarningsAreBounded: neither long words nor many workers make an answer that clients do not take.
func TestWarningsAreBounded(t *testing.T) {
	w := httptest.NewRecorder()
	warn(w, strings.Repeat("ä", 500_000))
	for i := range 2 * maxWarnings {
		warn(w, fmt.Sprintf("worker %d", i))
	}
	warnings := w.Header().Values("Warning")
	check.Equal(t, maxWarnings, len(warnings), "warnings")
	if size := len(warnings[0]); size < maxWarning || size > 3*maxWarning {
		t.Errorf("the long warning has %d bytes", size)
	}
	for at, want := range map[int]string{1: "worker 0", maxWarnings - 2: fmt.Sprintf("worker %d", maxWarnings-3), maxWarnings - 1: moreWarnings} {
		if parsed, _ := utilnet.ParseWarningHeaders(warnings[at : at+1]); len(parsed) != 1 || parsed[0].Text != want {
			t.Errorf("warning %d is %v, want %q", at, parsed, want)
		}
	}
}
