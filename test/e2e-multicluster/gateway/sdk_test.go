// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/yard"
)

// python sends a request of a user as the Python client of Kubernetes does: HTTP/1.1, plain JSON.
func python(t *testing.T, u *yard.User, path string, query url.Values) (code int, body []byte) {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(y.Gateway.CABundle)
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots}, TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{},
	}}
	defer client.CloseIdleConnections()
	target := "https://" + y.GatewayAddress() + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
	check.Must(t, err)
	r.Header.Set("Authorization", "bearer "+u.Token)
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "OpenAPI-Generator/34.1.0/python")
	res, err := client.Do(r)
	check.Must(t, err)
	defer func() { _ = res.Body.Close() }()
	body, err = io.ReadAll(res.Body)
	check.Must(t, err)
	return res.StatusCode, body
}

// TestSDK sends the requests of the Kubeflow SDK's TrainerClient for a job, and reads of the answers what the SDK reads.
func TestSDK(t *testing.T) {
	t.Parallel()
	job := submit(t, yard.Job{Name: "by-the-sdk", Nodes: 2}, east, "step 1\nstep 2")
	names := runs(t, east, job)
	t.Run("get_job", func(t *testing.T) {
		t.Parallel()
		pods := sdkPods(t, job.Name)
		check.Equal(t, 2, len(pods), "pods of the job")
		indices := map[int]bool{}
		for _, pod := range pods {
			check.Equal(t, "node", pod.Labels["jobset.sigs.k8s.io/replicatedjob-name"], "step of %s", pod.Name)
			index, err := strconv.Atoi(pod.Labels["batch.kubernetes.io/job-completion-index"])
			check.Must(t, err)
			indices[index] = true
			if !slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == "node" }) {
				t.Errorf("pod %s has no container of its step", pod.Name)
			}
			check.Equal(t, corev1.PodRunning, pod.Status.Phase, "phase of %s", pod.Name)
		}
		check.Diff(t, map[int]bool{0: true, 1: true}, indices, "completion indices")
	})
	t.Run("get_job_logs", func(t *testing.T) {
		t.Parallel()
		code, body := python(t, editor, "/api/v1/namespaces/"+team+"/pods/"+names[0]+"/log", url.Values{"container": {"node"}, "follow": {"False"}})
		check.Equal(t, http.StatusOK, code, "code: %s", body)
		check.Equal(t, "step 1\nstep 2\n", string(body), "log")
	})
	t.Run("get_job_events", func(t *testing.T) {
		t.Parallel()
		kinds := map[string]bool{}
		eventually(t, func() bool {
			code, body := python(t, editor, "/api/v1/namespaces/"+team+"/events", nil)
			check.Equal(t, http.StatusOK, code, "code: %s", body)
			var events corev1.EventList
			check.Must(t, json.Unmarshal(body, &events))
			for _, event := range events.Items {
				about := event.InvolvedObject
				if !strings.HasPrefix(about.Name, job.Name) {
					continue
				}
				if event.FirstTimestamp.IsZero() || event.LastTimestamp.IsZero() || event.Count < 1 {
					t.Errorf("the SDK does not show the Event %s of %s: %v", event.Reason, about.Name, event)
				}
				if about.Kind == "TrainJob" && about.UID != job.UID {
					t.Errorf("the Event %s is about another TrainJob: %s", event.Reason, about.UID)
				}
				kinds[about.Kind] = true
			}
			return kinds["TrainJob"] && kinds["Pod"] && kinds["Job"]
		})
	})
	t.Run("get_runtime", func(t *testing.T) {
		t.Parallel()
		code, _ := python(t, editor, "/apis/trainer.kubeflow.org/v1alpha1/namespaces/"+team+"/trainingruntimes/none", nil)
		check.Equal(t, http.StatusNotFound, code, "code for a runtime that is not there")
	})
}

func sdkPods(t *testing.T, job string) []corev1.Pod {
	t.Helper()
	selector := "jobset.sigs.k8s.io/jobset-name=" + job + ",jobset.sigs.k8s.io/replicatedjob-name in (dataset-initializer, model-initializer, launcher, node)"
	code, body := python(t, editor, "/api/v1/namespaces/"+team+"/pods", url.Values{"labelSelector": {selector}})
	check.Equal(t, http.StatusOK, code, "code: %s", body)
	var pods corev1.PodList
	check.Must(t, json.Unmarshal(body, &pods))
	return pods.Items
}
