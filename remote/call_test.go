// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trainyard/trainyard/test/check"
)

func TestCallOf(t *testing.T) {
	const jobs = "/apis/trainer.kubeflow.org/v1alpha1/"
	cases := map[string]struct {
		reason string
		method string
		url    string
		prefix string
		want   call
	}{
		"Version":      {reason: "No resource.", method: "GET", url: "/version", want: call{verb: "get"}},
		"Discovery":    {reason: "No resource.", method: "GET", url: "/apis/trainer.kubeflow.org/v1alpha1", want: call{verb: "get"}},
		"Namespace":    {reason: "The probe.", method: "GET", url: "/api/v1/namespaces/kube-system", want: call{verb: "get", resource: "namespaces"}},
		"Namespaces":   {reason: "A list.", method: "GET", url: "/api/v1/namespaces", want: call{verb: "list", resource: "namespaces"}},
		"NamespaceSub": {reason: "A subresource.", method: "PUT", url: "/api/v1/namespaces/a/finalize", want: call{verb: "update", resource: "namespaces/finalize"}},
		"Pods":         {reason: "All of them.", method: "GET", url: "/api/v1/pods", want: call{verb: "list", resource: "pods"}},
		"Create":       {reason: "In a namespace.", method: "POST", url: jobs + "namespaces/a/trainjobs", want: call{verb: "create", resource: "trainjobs"}},
		"Patch":        {reason: "By name.", method: "PATCH", url: jobs + "namespaces/a/trainjobs/b/status", want: call{verb: "patch", resource: "trainjobs/status"}},
		"Delete":       {reason: "One.", method: "DELETE", url: jobs + "namespaces/a/trainjobs/b", want: call{verb: "delete", resource: "trainjobs"}},
		"DeleteAll":    {reason: "Many.", method: "DELETE", url: jobs + "namespaces/a/trainjobs", want: call{verb: "deletecollection", resource: "trainjobs"}},
		"Watch": {
			reason: "A stream without a list.", method: "GET", url: "/api/v1/nodes?watch=true&resourceVersion=7",
			want: call{verb: "watch", resource: "nodes", watch: true},
		},
		"StreamedList": {
			reason: "A stream that begins with a list.", method: "GET", url: "/api/v1/nodes?watch=1&sendInitialEvents=true",
			want: call{verb: "watch", resource: "nodes", watch: true, initial: true},
		},
		"Prefix": {
			reason: "An API server behind a proxy.", method: "GET", url: "/k8s/clusters/c-1/api/v1/nodes/a", prefix: "/k8s/clusters/c-1",
			want: call{verb: "get", resource: "nodes"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequest(tc.method, "https://worker"+tc.url, nil)
			check.Must(t, err)
			check.Diff(t, tc.want, callOf(req, tc.prefix), tc.reason, cmp.AllowUnexported(call{}))
		})
	}
}
