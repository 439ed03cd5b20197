// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"net/http"
	"testing"

	"github.com/trainyard/trainyard/test/check"
)

func TestClassify(t *testing.T) {
	cases := map[string]struct {
		reason       string
		method, path string
		contentType  string
		want         string
	}{
		"Create": {
			reason: "What is created has no name in the path.", method: http.MethodPost, path: TrainJobsIn("a"), want: "POST trainjobs",
		},
		"Status": {
			reason: "A subresource follows the name.", method: http.MethodPatch, path: TrainJobsIn("a") + "/b/status", contentType: MergePatch,
			want: "PATCH trainjobs/status",
		},
		"Apply": {
			reason: "The servers tell server-side apply from other patches.", method: http.MethodPatch, path: "/api/v1/namespaces/a/secrets/b",
			contentType: "application/apply-patch+yaml", want: "APPLY secrets",
		},
		"Namespace": {
			reason: "A namespace is an object too.", method: http.MethodGet, path: "/api/v1/namespaces/kube-system", want: "GET namespaces",
		},
		"NamespaceStatus": {
			reason: "Its status is no resource in it.", method: http.MethodPut, path: "/api/v1/namespaces/a/status", want: "PUT namespaces/status",
		},
		"List":   {reason: "A list is for no name.", method: http.MethodGet, path: TrainJobs + "?limit=1", want: "LIST trainjobs"},
		"Watch":  {reason: "A watch is told by its parameter.", method: http.MethodGet, path: TrainJobs + "?watch=1", want: "WATCH trainjobs"},
		"DryRun": {reason: "Nothing is stored.", method: http.MethodPost, path: TrainJobsIn("a") + "?dryRun=All", want: "POST trainjobs (dry run)"},
		"DeleteAll": {
			reason: "A deletion for no name.", method: http.MethodDelete, path: TrainJobsIn("a"), want: "DELETECOLLECTION trainjobs",
		},
		"NoResource": {reason: "The servers count it apart, and so do we not.", method: http.MethodGet, path: "/metrics"},
		"Discovery":  {reason: "A group is no resource.", method: http.MethodGet, path: "/apis/trainer.kubeflow.org/v1alpha1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			request, err := http.NewRequestWithContext(t.Context(), tc.method, "https://server"+tc.path, http.NoBody)
			check.Must(t, err)
			request.Header.Set("Content-Type", tc.contentType)
			got := ""
			if classified, ok := classify(request); ok {
				got = classified.String()
			}
			check.Equal(t, tc.want, got, "%s", tc.reason)
		})
	}
}

func TestMinus(t *testing.T) {
	get, post := Request{Verb: "GET", Resource: "a"}, Request{Verb: "POST", Resource: "a"}
	put := Request{Verb: "PUT", Resource: "a"}
	got := Counts{get: 3, post: 2}.Minus(Counts{get: 1, post: 2, put: 4})
	check.Diff(t, Counts{get: 2, put: -4}, got, "difference")
}
