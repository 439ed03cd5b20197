// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/trainyard/trainyard/remote/bounded"
	"github.com/trainyard/trainyard/test/check"
)

// TestAdviceOnRuntimes: who may not read ClusterTrainingRuntimes learns what an admin can do, in the hub's Status with all
// else that the hub says. No other answer is changed.
func TestAdviceOnRuntimes(t *testing.T) {
	const (
		runtimes = "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes"
		said     = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"%s","reason":"Forbidden","details":{"group":"trainer.kubeflow.org","newer":1.0},"code":403}`
		words    = "ada cannot list"
	)
	forbidden := fmt.Sprintf(said, words)
	huge := fmt.Sprintf(said, strings.Repeat("x", bounded.MaxSmall))
	for name, tc := range map[string]struct {
		method, path, body string
		code               int
		header             []string
		advised            bool
	}{
		"List":       {path: runtimes + "?limit=500", body: forbidden, advised: true},
		"Get":        {path: runtimes + "/torch", body: forbidden, advised: true},
		"Watch":      {path: runtimes + "?watch=true", body: forbidden, advised: true},
		"Charset":    {path: runtimes, body: forbidden, header: []string{"Content-Type", "application/json; charset=utf-8"}, advised: true},
		"Delete":     {method: http.MethodDelete, path: runtimes + "/torch", body: forbidden},
		"Namespaced": {path: "/apis/trainer.kubeflow.org/v1alpha1/namespaces/team/trainingruntimes", body: forbidden},
		"NotFound":   {path: runtimes + "/torch", body: forbidden, code: http.StatusNotFound},
		"Protobuf":   {path: runtimes, body: "k8s\x00" + forbidden, header: []string{"Content-Type", "application/vnd.kubernetes.protobuf"}},
		"Encoded":    {path: runtimes, body: forbidden, header: []string{"Content-Encoding", "gzip"}},
		"NoStatus":   {path: runtimes, body: `{"kind":"List","message":"x"}`},
		"NoJSON":     {path: runtimes, body: "Forbidden"},
		"Huge":       {path: runtimes, body: huge},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.code == 0 {
				tc.code = http.StatusForbidden
			}
			w := newWorld(t, &workerServer{hub: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", typeJSON)
				for i := 0; i < len(tc.header); i += 2 {
					w.Header().Set(tc.header[i], tc.header[i+1])
				}
				w.Header().Set("Audit-Id", "one")
				w.WriteHeader(tc.code)
				_, _ = io.WriteString(w, tc.body)
			}})
			if tc.method == "" {
				tc.method = http.MethodGet
			}
			a := w.send(t, tc.method, tc.path, "Accept-Encoding", "identity")
			check.Equal(t, tc.code, a.code, "code")
			check.Equal(t, "one", a.header.Get("Audit-Id"), "header of the hub")
			if !tc.advised {
				check.Equal(t, true, tc.body == a.body, "the answer is the hub's: %.500s", a.body)
				return
			}
			var want, got map[string]any
			check.Must(t, json.Unmarshal([]byte(tc.body), &want))
			check.Must(t, json.Unmarshal([]byte(a.body), &got))
			want["message"] = words + `; an admin of the hub permits it to everybody with "kubectl apply -k config/users-runtimes", or with hub.users.runtimes=true of the chart`
			check.Diff(t, want, got, "status")
		})
	}
}
