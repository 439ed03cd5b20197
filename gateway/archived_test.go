// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/logarchive"
	"github.com/trainyard/trainyard/test/check"
)

const gonePod = "job-node-0-0-zzzzz"

// archiveOf keeps the logs of a pod with two containers, of which one is missing, in a namespace with this UID.
func archiveOf(t *testing.T, namespace types.UID) *logarchive.Archive {
	t.Helper()
	dir, err := logarchive.NewDir(t.TempDir())
	check.Must(t, err)
	a := &logarchive.Archive{Store: dir}
	of := logarchive.Attempt{Namespace: "team", Job: "job", UID: "origin-uid", Number: 1}
	node := logarchive.Container{Name: "node", Bytes: 14, Note: "it was followed"}
	check.Must(t, a.Keep(t.Context(), of, gonePod, &node, []byte("one\ntwo\nthree\n")))
	check.Must(t, a.WriteIndex(t.Context(), &logarchive.Index{
		Attempt: of, NamespaceUID: namespace, Worker: "east", Reason: "Drained",
		Pods: []logarchive.Pod{{Name: gonePod, UID: "uid", Phase: corev1.PodRunning, Labels: map[string]string{jobsetv1alpha2.JobSetNameKey: "job"}, Containers: []logarchive.Container{
			{Name: "prepare", Init: true, Missing: "the pod was gone before its log was read"}, node,
		}}},
	}))
	return a
}

// withoutPods is a worker without the pod.
func withoutPods(w http.ResponseWriter, r *http.Request) bool {
	if !strings.Contains(r.URL.Path, "/pods/") {
		return false
	}
	w.WriteHeader(http.StatusNotFound)
	answerJSON(w, status(http.StatusNotFound, "NotFound", "not found"))
	return true
}

// TestArchivedLog: the options of a request count for a log of the archive as for any other.
func TestArchivedLog(t *testing.T) {
	w := newWorld(t, &workerServer{evil: withoutPods, archive: archiveOf(t, "ns-1")})
	const base = "/api/v1/namespaces/team/pods/" + gonePod + "/log"
	for name, tc := range map[string]struct {
		query   string
		code    int
		body    string
		warning string
	}{
		"Whole":      {code: 200, body: "one\ntwo\nthree\n", warning: "the last 14 bytes, and what the container printed before is cut; it was followed"},
		"Container":  {query: "?container=node", code: 200, body: "one\ntwo\nthree\n"},
		"Tail":       {query: "?tailLines=2", code: 200, body: "two\nthree\n"},
		"TailMore":   {query: "?tailLines=20", code: 200, body: "one\ntwo\nthree\n"},
		"TailNone":   {query: "?tailLines=0", code: 200},
		"Limit":      {query: "?limitBytes=3", code: 200, body: "one"},
		"LimitMore":  {query: "?limitBytes=300", code: 200, body: "one\ntwo\nthree\n"},
		"Both":       {query: "?limitBytes=3&tailLines=1", code: 200, body: "thr"},
		"Follow":     {query: "?follow=true", code: 200, body: "one\ntwo\nthree\n"},
		"Times":      {query: "?timestamps=true", code: 200, body: "one\ntwo\nthree\n", warning: "no times of lines"},
		"BadTail":    {query: "?tailLines=-1", code: 400, body: "tailLines"},
		"BadLimit":   {query: "?limitBytes=0", code: 400, body: "limitBytes"},
		"NoNumber":   {query: "?tailLines=x", code: 400, body: "tailLines"},
		"Unknown":    {query: "?container=nobody", code: 400, body: "container nobody is not valid"},
		"Missing":    {query: "?container=prepare", code: 404, body: "the pod was gone before its log was read"},
		"NoPrevious": {query: "?previous=true", code: 404, body: "none is kept"},
	} {
		t.Run(name, func(t *testing.T) {
			a := w.send(t, http.MethodGet, base+tc.query)
			check.Equal(t, tc.code, a.code, "code: %s", a.body)
			if tc.code == 200 && a.body != tc.body || !strings.Contains(a.body, tc.body) {
				t.Errorf("body is %q, want %q", a.body, tc.body)
			}
			if all := strings.Join(a.header.Values("Warning"), "\n"); tc.code == 200 && (!strings.Contains(all, "log archive") || !strings.Contains(all, tc.warning)) {
				t.Errorf("warnings are %s, want %s", all, tc.warning)
			}
		})
	}
	var pod corev1.Pod
	check.Must(t, json.Unmarshal([]byte(w.send(t, http.MethodGet, strings.TrimSuffix(base, "/log")).body), &pod))
	if pod.Name != gonePod || len(pod.Spec.Containers) != 1 || len(pod.Spec.InitContainers) != 1 || pod.Labels[v1alpha1.LabelCluster] != "east" {
		t.Errorf("the pod is %+v", pod)
	}
	a := w.send(t, http.MethodGet, strings.TrimSuffix(base, "/log"), "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	check.Equal(t, 404, a.code, "code of a table")
}

// TestArchiveOfOthers: what belongs to a namespace that was deleted is not served in the new one of its name.
func TestArchiveOfOthers(t *testing.T) {
	w := newWorld(t, &workerServer{evil: withoutPods, archive: archiveOf(t, "ns-0")})
	for _, path := range []string{"", "/log"} {
		a := w.send(t, http.MethodGet, "/api/v1/namespaces/team/pods/"+gonePod+path)
		check.Equal(t, 404, a.code, "code: %s", a.body)
		if all := strings.Join(a.header.Values("Warning"), "\n"); strings.Contains(all, gonePod) || strings.Contains(all, "Drained") {
			t.Errorf("warnings tell of the namespace before: %s", all)
		}
	}
}

// TestWithoutArchive: without an archive a pod that is not there costs the hub no request more.
func TestWithoutArchive(t *testing.T) {
	w := newWorld(t, &workerServer{evil: withoutPods})
	w.send(t, http.MethodGet, "/api/v1/namespaces/team/pods/"+gonePod+"/log")
	var uris []string
	for _, r := range w.hub.all() {
		uris = append(uris, r.method+" "+r.uri)
	}
	if len(uris) != 2 { // The review, and the request itself.
		t.Errorf("the hub received %q", uris)
	}
}

// TestArchiveIsNotForPodsOfTheHub: a caller who may read a log and not the pod gets the log of the hub's own pod, and none
// of the archive in its place.
func TestArchiveIsNotForPodsOfTheHub(t *testing.T) {
	w := newWorld(t, &workerServer{evil: withoutPods, archive: archiveOf(t, "ns-1"), hub: func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/"+gonePod):
			w.WriteHeader(http.StatusForbidden)
			answerJSON(w, status(http.StatusForbidden, "Forbidden", "forbidden"))
		case strings.HasSuffix(r.URL.Path, "/log"):
			_, _ = w.Write([]byte("of the hub\n"))
		default:
			hubServer(w, r)
		}
	}})
	a := w.send(t, http.MethodGet, "/api/v1/namespaces/team/pods/"+gonePod+"/log")
	check.Equal(t, "of the hub\n", a.body, "log")
}

// TestArchivedPods: a list that selects them has the pods of one job whose logs are kept, for who may list pods.
func TestArchivedPods(t *testing.T) {
	const archived, ofJob = "trainyard.dev/log-archived", "jobset.sigs.k8s.io/jobset-name=job"
	for name, tc := range map[string]struct {
		namespace types.UID
		selector  string
		hub       func(http.ResponseWriter, *http.Request)
		code      int
		pods      []string
	}{
		"Exists":    {selector: archived + "," + ofJob, code: 200, pods: []string{gonePod}},
		"True":      {selector: archived + "=true," + ofJob, code: 200, pods: []string{gonePod}},
		"OfTheUID":  {selector: archived + "=true,trainyard.dev/origin-uid=origin-uid," + ofJob, code: 200, pods: []string{gonePod}},
		"OfAnother": {selector: archived + "=true,trainyard.dev/origin-uid=other," + ofJob, code: 200},
		"Worker":    {selector: archived + ",trainyard.dev/cluster=east," + ofJob, code: 200, pods: []string{gonePod}},
		"Elsewhere": {selector: archived + ",trainyard.dev/cluster=west," + ofJob, code: 200},
		"NotAsked":  {selector: ofJob, code: 200},
		"Not":       {selector: "!" + archived + "," + ofJob, code: 200},
		"AllJobs":   {selector: archived, code: 200},
		"Before":    {namespace: "ns-0", selector: archived + "," + ofJob, code: 200},
		"Forbidden": {selector: archived + "," + ofJob, code: 403, hub: func(w http.ResponseWriter, r *http.Request) {
			switch {
			case strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"):
				w.Header().Set("Content-Type", typeJSON)
				_, _ = w.Write([]byte(`{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":false}}`))
			case strings.HasSuffix(r.URL.Path, "/pods"):
				w.WriteHeader(http.StatusForbidden)
				answerJSON(w, status(http.StatusForbidden, "Forbidden", "forbidden"))
			default:
				hubServer(w, r)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := tc.namespace
			if namespace == "" {
				namespace = "ns-1"
			}
			w := newWorld(t, &workerServer{evil: withoutPods, archive: archiveOf(t, namespace), hub: tc.hub})
			a := w.send(t, http.MethodGet, "/api/v1/namespaces/team/pods?labelSelector="+url.QueryEscape(tc.selector))
			check.Equal(t, tc.code, a.code, "code: %s", a.body)
			var list corev1.PodList
			check.Must(t, json.Unmarshal([]byte(a.body), &list))
			var names []string
			for i := range list.Items {
				if pod := &list.Items[i]; pod.Name == gonePod {
					names = append(names, pod.Name)
					check.Equal(t, "1", pod.Annotations["trainyard.dev/attempt"], "attempt")
				}
			}
			check.Diff(t, tc.pods, names, "pods that are gone")
		})
	}
}
