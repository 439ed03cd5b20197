// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/yard"
)

// The manager answers probes, and its metrics tell how long jobs wait and what workers are asked.
func TestManagerEndpoints(t *testing.T) {
	ends(t, submit(t, yard.Job{Name: "measured", GPUs: 1, RunFor: "1s"}), trainer.TrainJobComplete)
	reader := accountToken(t, "prometheus", "trainyard-metrics-reader")
	y.Eventually(t, func(g gomega.Gomega) {
		fetch(t, g, y.Managers.HealthURL()+"/healthz", "", http.StatusOK)
		fetch(t, g, y.Managers.HealthURL()+"/readyz", "", http.StatusOK)
		metrics := fetch(t, g, y.Managers.MetricsURL(), reader, http.StatusOK)
		for _, series := range []string{
			`trainyard_time_to_place_seconds_count{policy="`, "trainyard_time_to_copy_seconds_count ", "trainyard_time_to_report_seconds_count ",
			`trainyard_jobs{cluster="`, `trainyard_jobs_finished_total{cluster="`,
			`trainyard_worker_state{cluster="small",state="Connected"} 1`,
			`trainyard_worker_requests_total{cluster="`, `verb="create"`,
			`trainyard_worker_gpus{cluster="small",product="`, `trainyard_worker_free_gpus{cluster="small",product="`,
		} {
			g.Expect(metrics).To(gomega.ContainSubstring(series))
		}
	})
}

// The metrics are for callers that the hub knows and that may read them.
func TestMetricsAreGuarded(t *testing.T) {
	stranger := accountToken(t, "stranger", "view")
	for name, tc := range map[string]struct {
		reason, url, token string
		want               int
	}{
		"NoToken":     {"Nobody is known without a token.", y.Managers.MetricsURL(), "", http.StatusUnauthorized},
		"WrongToken":  {"The hub refuses the token; the filter makes a 500 of that.", y.Managers.MetricsURL(), "guessed", http.StatusInternalServerError},
		"NoRight":     {"The account may not get /metrics.", y.Managers.MetricsURL(), stranger, http.StatusForbidden},
		"AnotherPath": {"Only /metrics is served.", strings.TrimSuffix(y.Managers.MetricsURL(), "metrics") + "debug/pprof/", stranger, http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Log(tc.reason)
			fetch(t, gomega.NewWithT(t), tc.url, tc.token, tc.want)
		})
	}
}

// accountToken makes a ServiceAccount on the hub with a ClusterRole, and returns a token of it.
func accountToken(t *testing.T, name, role string) string {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}
	account := &corev1.ServiceAccount{ObjectMeta: meta}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: meta.Namespace, Name: name}},
	}
	for _, object := range []client.Object{account, binding} {
		check.Must(t, y.Hub.Create(t.Context(), object))
		t.Cleanup(func() { check.Must(t, y.Hub.Delete(context.Background(), object)) })
	}
	request := &authenticationv1.TokenRequest{}
	check.Must(t, y.Hub.SubResource("token").Create(t.Context(), account, request))
	return request.Status.Token
}

// fetch gets a URL of the manager, whose certificate is self-signed. It expects an answer with this status.
func fetch(t *testing.T, g gomega.Gomega, url, token string, status int) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	caller := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
	}}
	response, err := caller.Do(request)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	g.Expect(response.StatusCode).To(gomega.Equal(status), "%s: %s", url, body)
	return string(body)
}
