// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/remote/bounded"
	"github.com/trainyard/trainyard/test/check"
)

// podsOfHub is hubServer with pods, and answers lists of them with pages.
func podsOfHub(pods ...corev1.Pod) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/pods") || r.Header.Get("Authorization") != "Bearer "+good {
			hubServer(w, r)
			return
		}
		list := corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
		rest := pods
		if from := r.URL.Query().Get("continue"); from != "" {
			rest = rest[len(from):]
		}
		if size := 2; r.URL.Query().Get("limit") != "" && r.URL.Query().Get("resourceVersion") != "0" && len(rest) > size {
			left := int64(len(rest) - size)
			list.Continue, list.RemainingItemCount = strings.Repeat("x", len(pods)-int(left)), &left
			rest = rest[:size]
		}
		list.Items = rest
		answerJSON(w, list)
	}
}

func namesIn(t *testing.T, body string) (names []string, meta metav1.ListMeta) {
	t.Helper()
	var list corev1.PodList
	check.Must(t, json.Unmarshal([]byte(body), &list))
	for _, item := range list.Items {
		names = append(names, item.Name)
	}
	return names, list.ListMeta
}

// TestLargeHub: the hub may have more pods of its own than fit into a page of a worker.
func TestLargeHub(t *testing.T) {
	var pods []corev1.Pod
	for i := range bounded.MaxPage>>20 + 1 {
		large := corev1.Pod{ObjectMeta: metaOf("team", fmt.Sprint("large-", i), "")}
		large.Annotations = map[string]string{"a": strings.Repeat("x", 1<<20)}
		pods = append(pods, large)
	}
	w := newWorld(t, &workerServer{hub: podsOfHub(pods...)})
	a := w.send(t, http.MethodGet, podsURL+"?resourceVersion=trainyard/:7/east:9")
	check.Equal(t, http.StatusOK, a.code, "code: %.500s", a.body)
	names, _ := namesIn(t, a.body)
	check.Equal(t, len(pods)+1, len(names), "pods in the list")
}

// TestPagesOfTheHub: the gateway reads a list of the hub in pages, unless the caller does or the list is at a version. The
// caller gets one page where workers have pods.
func TestPagesOfTheHub(t *testing.T) {
	var pods []corev1.Pod
	var all []string
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		pods = append(pods, corev1.Pod{ObjectMeta: metaOf("team", name, "")})
		all = append(all, name)
	}
	merged := slices.Concat(all, []string{pod})
	for name, tc := range map[string]struct {
		query    string
		noWorker bool
		want     []string
		next     string
		// asked are limit, continue and version of the requests to the hub.
		asked []string
	}{
		"All":             {want: merged, asked: []string{"500  ", "500 xx ", "500 xxxx "}},
		"Limit":           {query: "?limit=1", want: merged, asked: []string{"500  ", "500 xx ", "500 xxxx "}},
		"AnyVersion":      {query: "?resourceVersion=0&resourceVersionMatch=NotOlderThan", want: merged, asked: []string{"500  ", "500 xx ", "500 xxxx "}},
		"Version":         {query: "?resourceVersion=trainyard/:7/east:9&limit=1", want: merged, asked: []string{"  7"}},
		"Continue":        {query: "?limit=2&continue=xx", want: all[2:4], next: "xxxx", asked: []string{"2 xx "}},
		"NoWorker":        {noWorker: true, want: all, asked: []string{"500  ", "500 xx ", "500 xxxx "}},
		"NoWorkerLimit":   {noWorker: true, query: "?limit=2", want: all[:2], next: "xx", asked: []string{"2  "}},
		"NoWorkerNoLimit": {noWorker: true, query: "?limit=0", want: all, asked: []string{"500  ", "500 xx ", "500 xxxx "}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, &workerServer{hub: podsOfHub(pods...)})
			if tc.noWorker {
				w.place(t, "", "", 1)
			}
			a := w.send(t, http.MethodGet, podsURL+tc.query)
			names, meta := namesIn(t, a.body)
			check.Diff(t, tc.want, names, "pods")
			check.Equal(t, tc.next, meta.Continue, "token for the next page")
			check.Equal(t, tc.next == "", meta.RemainingItemCount == nil, "no count of what remains")
			var asked []string
			for _, r := range w.hub.all() {
				u, err := url.Parse(r.uri)
				check.Must(t, err)
				query := u.Query()
				asked = append(asked, query.Get("limit")+" "+query.Get("continue")+" "+query.Get("resourceVersion"))
			}
			check.Diff(t, tc.asked, asked, "requests to the hub")
		})
	}
}
