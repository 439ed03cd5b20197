// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package hub_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/trainyard/trainyard/internal/hub"
	"github.com/trainyard/trainyard/test/check"
)

func newHub(t *testing.T, handler http.HandlerFunc) *hub.Hub {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	h, err := hub.New(&rest.Config{Host: server.URL}, "prod")
	check.Must(t, err)
	return h
}

func TestHints(t *testing.T) {
	status := func(code int, reason string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"message":"the server's words","code":%d}`, reason, code)
		}
	}
	tests := map[string]struct {
		reason  string
		handler http.HandlerFunc
		want    []string
	}{
		"KindMissing":  {reason: "Trainyard is not there", handler: http.NotFound, want: []string{"list WorkerClusters: ", `Trainyard is not installed on this cluster (context "prod"), or it is a worker; name the hub with --context`}},
		"Unauthorized": {reason: "the user has to log in", handler: status(401, "Unauthorized"), want: []string{"the server's words", `you must be logged in to the hub (context "prod")`}},
		"Forbidden":    {reason: "the server's words are enough", handler: status(403, "Forbidden"), want: []string{"list WorkerClusters: the server's words"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := newHub(t, tc.handler).Workers(t.Context())
			for _, want := range tc.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("Workers() = %v, want %q: %s", err, want, tc.reason)
				}
			}
		})
	}
}

func TestUnreachable(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	h, err := hub.New(&rest.Config{Host: server.URL}, "prod")
	check.Must(t, err)
	const want = `unable to connect to the hub (context "prod"): list Dispatches: `
	if _, err := h.Dispatches(t.Context(), ""); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("Dispatches() = %v, want %q", err, want)
	}
}

// TestPages checks that a list of several pages has all objects of all pages, unchanged.
func TestPages(t *testing.T) {
	requests := 0
	h := newHub(t, func(w http.ResponseWriter, r *http.Request) {
		if requests++; requests > 2 {
			http.Error(w, "there are two pages", http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		next, item := `"continue":"more"`, `{"metadata":{"name":"a","namespace":"n","labels":{"first":"x"}},"spec":{"trainJob":{"name":"a","uid":"1"},"cluster":"east"}}`
		if r.URL.Query().Get("continue") == "more" {
			next, item = "", `{"metadata":{"name":"b","namespace":"n","labels":{"second":"x"}},"spec":{"trainJob":{"name":"b","uid":"2"}}}`
		}
		fmt.Fprintf(w, `{"kind":"DispatchList","apiVersion":"trainyard.dev/v1alpha1","metadata":{%s},"items":[%s]}`, next, item)
	})
	all, err := h.Dispatches(t.Context(), "n")
	check.Must(t, err)
	if len(all) != 2 || all[0].Spec.Cluster != "east" || len(all[0].Labels) != 1 || all[1].Spec.Cluster != "" || len(all[1].Labels) != 1 {
		t.Errorf("Dispatches() = %+v, want two that share nothing", all)
	}
}

func TestNearestJob(t *testing.T) {
	h := newHub(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/trainjobs") {
			fmt.Fprint(w, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","items":[{"metadata":{"name":"llama"}}]}`)
			return
		}
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"details":{"name":"lama","kind":"trainjobs"}}`)
	})
	const want = `there is no TrainJob "lama" in namespace "research" of context "prod" (did you mean "llama"?)`
	if _, err := h.Job(t.Context(), types.NamespacedName{Namespace: "research", Name: "lama"}); err == nil || err.Error() != want {
		t.Errorf("Job() = %v, want %q", err, want)
	}
}
