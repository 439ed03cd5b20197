// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/yard"
)

// Workers that cannot be used say why, in words that an admin can act on. They recover when the cause is gone, and do
// not disturb other workers.
func TestWorkersThatCannotBeUsed(t *testing.T) {
	healthy, err := y.WorkerKubeconfig(t.Context(), y.Yard.Workers[small])
	check.Must(t, err)
	bare, err := clusters.Start(t.Context(), clusters.Options{Name: "bare"})
	check.Must(t, err)
	t.Cleanup(func() { check.Must(t, bare.Stop()) })
	server, err := y.Yard.Workers[small].ServerFromPods()
	check.Must(t, err)
	bad := strings.NewReplacer(
		server, "http://worker.example.com",
		"certificate-authority-data", "certificate-authority",
		"token:", "exec: {command: rm, apiVersion: client.authentication.k8s.io/v1}\n    tokenFile: /etc/passwd\n    x-token:",
	).Replace(string(healthy))

	register(t, "down", strings.Replace(string(healthy), server, "https://127.0.0.1:1", 1))
	register(t, "bad", bad)
	register(t, "duplicate", string(healthy))
	register(t, "hub-itself", adminKubeconfig(t, y.Yard.Hub))
	apply(t, workerCluster("forgotten"))
	source, write := registerWithoutKubeconfig(t, "bare")

	expectReady(t, "down", v1alpha1.ReasonUnreachable, "127.0.0.1:1", "connection refused")
	expectReady(t, "bad", v1alpha1.ReasonInsecureKubeconfig, "http", "exec", "tokenFile", "certificate-authority")
	expectReady(t, "duplicate", v1alpha1.ReasonDuplicate, small)
	expectReady(t, "hub-itself", v1alpha1.ReasonDuplicate, "hub")
	expectReady(t, "forgotten", v1alpha1.ReasonCredentialsNotFound, "forgotten-kubeconfig", "trainyard-system")
	expectReady(t, "bare", v1alpha1.ReasonCredentialsNotFound, source)
	for _, change := range []struct{ content, reason string }{
		{"kind: Pod", v1alpha1.ReasonInvalidKubeconfig},
		{adminKubeconfig(t, bare), v1alpha1.ReasonTrainJobAPIMissing},
	} {
		write(change.content)
		expectReady(t, "bare", change.reason)
	}
	job := submit(t, yard.Job{Name: "beside-bad-workers", GPUs: 1, RunFor: "1s"})
	ends(t, job, trainer.TrainJobComplete)

	crds, err := clusters.ModulePaths(t.Context(), clusters.TrainerCRDs, clusters.JobSetCRDs)
	check.Must(t, err)
	check.Must(t, bare.InstallCRDs(t.Context(), crds[0]))
	expectReady(t, "bare", v1alpha1.ReasonJobSetAPIMissing)
	check.Must(t, bare.InstallCRDs(t.Context(), crds[1]))
	expectReady(t, "bare", v1alpha1.ReasonConnected)
}

// registerWithoutKubeconfig registers a worker whose kubeconfig does not exist before the first write. It returns where
// the manager looks for the kubeconfig: a file, or a Secret on kind, where the manager does not see this machine's
// files.
func registerWithoutKubeconfig(t *testing.T, name string) (source string, write func(kubeconfig string)) {
	t.Helper()
	worker := workerCluster(name)
	if !clusters.OnKind() {
		file := filepath.Join(t.TempDir(), "kubeconfig")
		worker.Spec.Connection = v1alpha1.Connection{KubeconfigPath: file}
		apply(t, worker)
		return file, func(kubeconfig string) {
			check.Must(t, os.WriteFile(file, []byte(kubeconfig), 0o600))
		}
	}
	apply(t, worker)
	secret := kubeconfigSecret(name, "")
	return secret.Name, func(kubeconfig string) {
		if secret.StringData = map[string]string{"kubeconfig": kubeconfig}; secret.ResourceVersion == "" {
			apply(t, secret)
		} else if err := y.Hub.Update(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
	}
}

// adminKubeconfig returns the kubeconfig of a cluster's admin, with the URL at which the manager reaches the cluster.
func adminKubeconfig(t *testing.T, cluster *clusters.Cluster) string {
	t.Helper()
	kubeconfig, err := cluster.KubeconfigBytes()
	check.Must(t, err)
	server, err := cluster.ServerFromPods()
	check.Must(t, err)
	return strings.Replace(string(kubeconfig), cluster.Config.Host, server, 1)
}

// A connection needs exactly one source, and the API server says so.
func TestConnectionIsExactlyOne(t *testing.T) {
	for name, connection := range map[string]v1alpha1.Connection{
		"none":          {},
		"two":           {KubeconfigSecretRef: &v1alpha1.SecretReference{Name: "a"}, KubeconfigPath: "/b"},
		"relative path": {KubeconfigPath: "b"},
	} {
		t.Run(name, func(t *testing.T) {
			worker := &v1alpha1.WorkerCluster{
				ObjectMeta: metav1.ObjectMeta{Name: "refused"}, Spec: v1alpha1.WorkerClusterSpec{Connection: connection},
			}
			err := y.Hub.Create(t.Context(), worker)
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.connection") {
				t.Errorf("create: %v; want it refused, naming spec.connection", err)
			}
			t.Log(err)
		})
	}
}

// Fault: a worker's API server dies and comes back. Its jobs stay and end there. New jobs go elsewhere meanwhile.
func TestWorkerAPIServerDies(t *testing.T) {
	y.Cordon(t, large, true)
	job := submit(t, yard.Job{Name: "rides-it-out", GPUs: 1, RunFor: "3s"})
	copied := &trainer.TrainJob{}
	y.Eventually(t, func(g gomega.Gomega) {
		g.Expect(y.Workers[small].Get(t.Context(), client.ObjectKeyFromObject(job), copied)).To(gomega.Succeed())
	})
	y.Cordon(t, large, false)
	check.Must(t, y.Yard.Workers[small].KillAPIServer())
	expectReady(t, small, v1alpha1.ReasonUnreachable)
	lost := &v1alpha1.WorkerCluster{ObjectMeta: metav1.ObjectMeta{Name: small}}
	if current(t.Context(), gomega.NewWithT(t), y.Hub, lost).Status.LastSeenTime == nil {
		t.Error("an unreachable worker does not say when it was last seen")
	}
	elsewhere := submit(t, yard.Job{Name: "meanwhile", GPUs: 1, RunFor: "1s"})
	ends(t, elsewhere, trainer.TrainJobComplete)

	check.Must(t, y.Yard.Workers[small].StartAPIServer(t.Context()))
	expectReady(t, small, v1alpha1.ReasonConnected)
	ends(t, job, trainer.TrainJobComplete)
	d := y.DispatchOf(gomega.NewWithT(t), job)
	if d.Spec.Attempt != 1 || d.Spec.Cluster != small {
		t.Errorf("attempt %d on %s, want the first on %s: a short loss changes nothing", d.Spec.Attempt, d.Spec.Cluster, small)
	}
}

// Fault: the worker revokes the hub's token. The status says so, and the worker does not count as lost. With a new
// token all jobs continue.
func TestCredentialsRevokedAndRenewed(t *testing.T) {
	y.Cordon(t, small, true)
	job := submit(t, yard.Job{Name: "keeps-running", GPUs: 1, RunFor: "3s"})
	copied := &trainer.TrainJob{}
	y.Eventually(t, func(g gomega.Gomega) {
		g.Expect(y.Workers[large].Get(t.Context(), client.ObjectKeyFromObject(job), copied)).To(gomega.Succeed())
	})
	y.Cordon(t, small, false)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "trainyard-system", Name: "trainyard-hub"}}
	check.Must(t, y.Workers[large].Delete(t.Context(), account))
	expectReady(t, large, v1alpha1.ReasonCredentialsInvalid)

	check.Must(t, y.Register(t.Context(), yard.Worker{Name: large, Labels: map[string]string{"size": large}}))
	expectReady(t, large, v1alpha1.ReasonConnected)
	ends(t, job, trainer.TrainJobComplete)
	check.Equal(t, 1, y.DispatchOf(gomega.NewWithT(t), job).Spec.Attempt,
		"attempt: want 1: revoked credentials are no reason to move a job")
}

// expectReady waits until a WorkerCluster's Ready condition has the reason, and its message the words.
func expectReady(t *testing.T, name, reason string, words ...string) {
	t.Helper()
	worker := workerCluster(name)
	y.Eventually(t, func(g gomega.Gomega) {
		current(t.Context(), g, y.Hub, worker)
		condition := meta.FindStatusCondition(worker.Status.Conditions, v1alpha1.WorkerClusterReady)
		g.Expect(condition).NotTo(gomega.BeNil())
		g.Expect(condition.Reason).To(gomega.Equal(reason), condition.Message)
		g.Expect(condition.Status == metav1.ConditionTrue).To(gomega.Equal(reason == v1alpha1.ReasonConnected))
		for _, word := range words {
			g.Expect(condition.Message).To(gomega.ContainSubstring(word))
		}
	})
	t.Logf("%s: %s: %s", name, reason, meta.FindStatusCondition(worker.Status.Conditions, v1alpha1.WorkerClusterReady).Message)
}

func workerCluster(name string) *v1alpha1.WorkerCluster {
	return &v1alpha1.WorkerCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.WorkerClusterSpec{Connection: v1alpha1.Connection{
			KubeconfigSecretRef: &v1alpha1.SecretReference{Name: name + "-kubeconfig"},
		}},
	}
}

// register registers a worker with a kubeconfig of the test's own until the test ends.
func register(t *testing.T, name, kubeconfig string) {
	t.Helper()
	apply(t, kubeconfigSecret(name, kubeconfig))
	apply(t, workerCluster(name))
}

func kubeconfigSecret(worker, kubeconfig string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "trainyard-system", Name: worker + "-kubeconfig"},
		StringData: map[string]string{"kubeconfig": kubeconfig},
	}
}

// A worker is registered under another name. It keeps the copies of jobs that were placed under the old name, and these
// jobs continue when the old name is back.
func TestWorkerIsRenamed(t *testing.T) {
	t.Parallel()
	job := submit(t, yard.Job{Name: "survives-renaming", Nodes: 2, GPUs: 8, RunFor: "forever"}) // Only on large.
	copied := &trainer.TrainJob{}
	y.Eventually(t, func(g gomega.Gomega) {
		g.Expect(y.Workers[large].Get(t.Context(), client.ObjectKeyFromObject(job), copied)).To(gomega.Succeed())
		// Until the copy is on record, each new connection waits a minute for creations that nobody has answered.
		g.Expect(y.DispatchOf(g, job).Status.Phase).To(gomega.Equal(v1alpha1.PhaseRunning))
	})
	kubeconfig, err := y.WorkerKubeconfig(t.Context(), y.Yard.Workers[large])
	check.Must(t, err)
	old := workerCluster(large)
	check.Must(t, y.Hub.Delete(t.Context(), old))
	reader := accountToken(t, "renamed-reader", "trainyard-metrics-reader")
	t.Run("other name", func(t *testing.T) {
		register(t, "renamed", string(kubeconfig))
		expectReady(t, "renamed", v1alpha1.ReasonConnected)
		y.Eventually(t, func(g gomega.Gomega) { // The worker has been swept, and the job's owner learns what is missing.
			g.Expect(fetch(t, g, y.Managers.MetricsURL(), reader, http.StatusOK)).To(gomega.ContainSubstring(`trainyard_unknown_copies{cluster="renamed"} 0`))
			lost := meta.FindStatusCondition(y.DispatchOf(g, job).Status.Conditions, v1alpha1.DispatchWorkerLost)
			g.Expect(lost).To(gomega.HaveValue(gomega.HaveField("Reason", v1alpha1.ReasonHold)))
		})
		check.Equal(t, nil, current(t.Context(), gomega.NewWithT(t), y.Workers[large], copied).DeletionTimestamp,
			"the copy is being deleted because its cluster has another name")
	})
	check.Must(t, y.Register(t.Context(), yard.Worker{Name: large, Labels: map[string]string{"size": large}}))
	if uid := copied.UID; current(t.Context(), gomega.NewWithT(t), y.Workers[large], copied).UID != uid {
		t.Error("the copy was created again")
	}
	check.Equal(t, 1, y.DispatchOf(gomega.NewWithT(t), job).Spec.Attempt, "attempt")
}

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
