// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/trainyard/trainyard/logarchive"
	"github.com/trainyard/trainyard/test/check"
)

// logged are the lines of a gateway's log.
type logged struct {
	mu    sync.Mutex
	lines []string // under mu
}

func (l *logged) logger() logr.Logger {
	return funcr.NewJSON(func(line string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lines = append(l.lines, line)
	}, funcr.Options{Verbosity: 10})
}

// all returns the lines about access to pods, decoded.
func (l *logged) all(t *testing.T) (found []map[string]any) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, text := range l.lines {
		line := map[string]any{}
		check.Must(t, json.Unmarshal([]byte(text), &line))
		if _, about := line["pod"]; about {
			delete(line, "logger")
			delete(line, "level")
			found = append(found, line)
		}
	}
	return found
}

// what the log never has: arguments of commands, what pods print, and what the caller sends to them.
const secretArgument, secretOutput = "password-hunter2", "output-of-the-pod"

// upgraded switches protocols, prints and ends.
func upgraded(w http.ResponseWriter, _ *http.Request) {
	connection, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = connection.Close() }()
	_, _ = fmt.Fprintf(connection, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n%s", secretOutput)
}

// nobodyMay is a hub that permits nothing about pods.
func nobodyMay(w http.ResponseWriter, r *http.Request) {
	if strings.Contains(r.URL.Path, "selfsubjectaccessreviews") && r.Header.Get("Authorization") == "Bearer "+good {
		answerJSON(w, authorizationv1.SelfSubjectAccessReview{})
		return
	}
	hubServer(w, r)
}

// namedHub knows a caller by the name that the caller asks for.
func namedHub(w http.ResponseWriter, r *http.Request) {
	if strings.Contains(r.URL.Path, "selfsubjectreviews") {
		name := cmp.Or(r.Header.Get("Impersonate-User"), "ada")
		answerJSON(w, authenticationv1.SelfSubjectReview{Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: name}}})
		return
	}
	hubServer(w, r)
}

// TestEveryAccessIsLogged: for each log and each connection that a user asks for there is one line, which says who has asked
// for what, and why not. It has neither tokens nor what the command is or prints.
func TestEveryAccessIsLogged(t *testing.T) {
	const exec = podURL + "/exec?container=node&command=echo&command=" + secretArgument
	const gone = "/api/v1/namespaces/team/pods/" + gonePod + "/log"
	at := func(suffix string, answer http.HandlerFunc) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, suffix) {
				return false
			}
			answer(w, r)
			return true
		}
	}
	refusing := func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		answerJSON(w, status(http.StatusForbidden, "Forbidden", "no "+r.URL.RawQuery))
	}
	full := func(w *world) { w.handler().limits.ofAll, w.handler().archived.limits.ofAll = 0, 0 }
	for name, tc := range map[string]struct {
		worker  workerServer
		method  string
		path    string
		header  []string
		prepare func(w *world)
		archive bool
		want    map[string]any // nil: no line.
		code    int
		reason  string
	}{
		"Log": {
			path: logURL + "?container=node&follow=true", code: http.StatusOK,
			worker: workerServer{evil: at("/log", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(secretOutput)) })},
			want:   map[string]any{"verb": "log", "pod": pod, "container": "node", "source": "worker", "workerCluster": "east", "trainJob": "job"},
		},
		"Exec": {
			path: exec, header: upgrade, code: http.StatusSwitchingProtocols, worker: workerServer{evil: at("/exec", upgraded)},
			want: map[string]any{"verb": "exec", "pod": pod, "container": "node", "source": "worker", "workerCluster": "east", "trainJob": "job"},
		},
		"Attach": {
			path: podURL + "/attach", header: upgrade, code: http.StatusSwitchingProtocols, worker: workerServer{evil: at("/attach", upgraded)},
			want: map[string]any{"verb": "attach", "pod": pod, "container": "", "source": "worker", "workerCluster": "east", "trainJob": "job"},
		},
		"PortForward": {
			method: http.MethodPost, path: podURL + "/portforward", header: upgrade, code: http.StatusSwitchingProtocols, worker: workerServer{evil: at("/portforward", upgraded)},
			want: map[string]any{"verb": "portforward", "pod": pod, "container": "", "source": "worker", "workerCluster": "east", "trainJob": "job"},
		},
		"NoSuchContainer": {
			path: logURL + "?container=other", code: http.StatusBadRequest,
			worker: workerServer{evil: at("/log", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) })},
			want:   map[string]any{"verb": "log", "pod": pod, "container": "other", "source": "worker", "workerCluster": "east", "trainJob": "job"},
		},
		"Archive": {
			path: gone, archive: true, code: http.StatusOK,
			want: map[string]any{"verb": "log", "pod": gonePod, "container": "node", "source": "archive", "workerCluster": "east", "trainJob": "job"},
		},
		"NotInArchive": {
			path: gone + "?container=prepare", archive: true, code: http.StatusNotFound, reason: "the pod was gone before its log was read",
			want: map[string]any{"verb": "log", "pod": gonePod, "container": "prepare", "source": "archive", "workerCluster": "east"},
		},
		"TooManyOfArchive": {
			path: gone, archive: true, prepare: full, code: http.StatusTooManyRequests, reason: `user "ada" has 50 watches and streams open`,
			want: map[string]any{"verb": "log", "pod": gonePod, "container": "", "source": "archive", "workerCluster": ""},
		},
		"TooMany": {
			path: exec, header: upgrade, archive: true, prepare: full, code: http.StatusTooManyRequests, reason: `user "ada" has 50 watches and streams open`,
			want: map[string]any{"verb": "exec", "pod": pod, "container": "node", "source": "worker", "workerCluster": "east"},
		},
		"RefusedByTheHub": {
			path: exec, header: upgrade, worker: workerServer{hub: nobodyMay}, code: http.StatusForbidden, reason: "the hub does not permit it",
			want: map[string]any{"verb": "exec", "pod": pod, "container": "node", "source": "hub", "workerCluster": ""},
		},
		"LongNames": {
			path: "/api/v1/namespaces/team/pods/" + strings.Repeat("x", 5000) + "/log?container=" + strings.Repeat("y", 5000), worker: workerServer{hub: nobodyMay},
			code: http.StatusForbidden, reason: "the hub does not permit it",
			want: map[string]any{"verb": "log", "pod": strings.Repeat("x", 253) + " ...", "container": strings.Repeat("y", 253) + " ...", "source": "hub", "workerCluster": ""},
		},
		"RefusedByTheWorker": {
			path: exec, header: upgrade, worker: workerServer{evil: at("/exec", refusing)},
			code: http.StatusForbidden, reason: "the worker does not let Trainyard execute commands",
			want: map[string]any{"verb": "exec", "pod": pod, "container": "node", "source": "worker", "workerCluster": "east"},
		},
		"SilentWorker": {
			path: exec, header: upgrade, code: http.StatusServiceUnavailable, reason: `worker "east" does not answer`,
			worker: workerServer{evil: at("/kube-system", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })},
			want:   map[string]any{"verb": "exec", "pod": pod, "container": "node", "source": "worker", "workerCluster": ""},
		},
		"AsSomebodyElse": {
			path: logURL, header: []string{"Impersonate-User", "eve"}, worker: workerServer{hub: namedHub}, code: http.StatusOK,
			want: map[string]any{
				"user": "eve", "impersonatedBy": "ada", "verb": "log", "pod": pod, "container": "", "source": "worker", "workerCluster": "east", "trainJob": "job",
			},
		},
		"PodOfTheHub":   {path: "/api/v1/namespaces/team/pods/of-the-hub/log"},
		"UnknownCaller": {path: exec, header: append([]string{"Authorization", "Bearer other-token"}, upgrade...)},
		"GetOfAPod":     {path: podURL},
	} {
		t.Run(name, func(t *testing.T) {
			s, log := tc.worker, &logged{}
			s.change = func(o *Options) { o.Logger = log.logger() }
			if tc.archive {
				s.archive = archiveOf(t, "ns-1")
			}
			if strings.HasPrefix(tc.path, gone) {
				s.evil = withoutPods
			}
			w := newWorld(t, &s)
			if tc.prepare != nil {
				tc.prepare(w)
			}
			w.send(t, cmp.Or(tc.method, http.MethodGet), tc.path, tc.header...)
			lines := log.all(t)
			if tc.want == nil {
				check.Equal(t, 0, len(lines), "lines: %v", lines)
				return
			}
			if len(lines) != 1 {
				t.Fatalf("the lines are %v", lines)
			}
			line := lines[0]
			reason, _ := line["reason"].(string)
			if !strings.Contains(reason, tc.reason) || (tc.reason == "") != (line["msg"] == "Access to a pod") {
				t.Errorf("the line is %v, want the reason %q", line, tc.reason)
			}
			delete(line, "reason")
			delete(line, "msg")
			tc.want["namespace"], tc.want["code"] = "team", float64(tc.code)
			if tc.want["user"] == nil {
				tc.want["user"] = "ada"
			}
			check.Diff(t, tc.want, line, "line")
			all := strings.Join(log.lines, "\n")
			for _, secret := range []string{good, workerToken, secretArgument, secretOutput, "command"} {
				if strings.Contains(strings.ReplaceAll(all, "execute commands", ""), secret) {
					t.Errorf("the log has %q: %s", secret, all)
				}
			}
		})
	}
}

// TestLineOfAStreamComesAtItsBegin: who follows a log for hours is in the log from the beginning on.
func TestLineOfAStreamComesAtItsBegin(t *testing.T) {
	log := &logged{}
	ends := make(chan struct{})
	w := newWorld(t, &workerServer{change: func(o *Options) { o.Logger = log.logger() }, evil: func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/log") {
			return false
		}
		_, _ = w.Write([]byte("first\n"))
		_ = http.NewResponseController(w).Flush()
		select {
		case <-ends:
		case <-r.Context().Done():
		}
		return true
	}})
	defer close(ends)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.gateway.URL+logURL+"?follow=true", nil)
	check.Must(t, err)
	r.Header.Set("Authorization", "Bearer "+good)
	res, err := w.gateway.Client().Do(r)
	check.Must(t, err)
	defer func() { _ = res.Body.Close() }()
	check.Equal(t, 1, len(log.all(t)), "lines while the log is followed")
}

// withoutLogs is a store that has lost the logs, and has their indexes.
type withoutLogs struct{ logarchive.Store }

// Get implements Store.
func (s withoutLogs) Get(ctx context.Context, key string, limit int64) ([]byte, error) {
	if strings.Contains(key, gonePod) {
		return nil, errors.New("the store is broken")
	}
	return s.Store.Get(ctx, key, limit)
}

// TestArchiveIsLoggedWhateverIsAsked: no option of a request reads the archive without a line.
func TestArchiveIsLoggedWhateverIsAsked(t *testing.T) {
	log := &logged{}
	archive := archiveOf(t, "ns-1")
	w := newWorld(t, &workerServer{evil: withoutPods, archive: archive, change: func(o *Options) { o.Logger = log.logger() }})
	queries := []string{"", "?container=node", "?tailLines=1", "?tailLines=0", "?limitBytes=1", "?follow=true", "?timestamps=true", "?previous=true", "?tailLines=x", "?container=nobody"}
	for _, query := range queries {
		w.send(t, http.MethodGet, "/api/v1/namespaces/team/pods/"+gonePod+"/log"+query)
	}
	archive.Store = withoutLogs{archive.Store}
	w.send(t, http.MethodGet, "/api/v1/namespaces/team/pods/"+gonePod+"/log")
	lines := log.all(t)
	check.Equal(t, len(queries)+1, len(lines), "lines: %v", lines)
	if last := lines[len(lines)-1]; last["code"] != float64(http.StatusServiceUnavailable) || !strings.Contains(fmt.Sprint(last["reason"]), "does not answer") {
		t.Errorf("the line about an archive that does not answer is %v", last)
	}
	if !slices.ContainsFunc(lines, func(line map[string]any) bool { return line["msg"] == "Access to a pod" && line["source"] == "archive" }) {
		t.Errorf("the lines are %v", lines)
	}
}
