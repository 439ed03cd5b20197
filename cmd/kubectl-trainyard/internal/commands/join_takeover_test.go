// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package commands_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/registration"
	"github.com/trainyard/trainyard/kubeconfigs"
	"github.com/trainyard/trainyard/test/check"
)

// TestJoinTakesOver joins a worker that the scripts of an earlier release have registered. The hub gets a token that is
// renewed. join names the lasting token, and leave deletes it.
func TestJoinTakesOver(t *testing.T) {
	setUpPair(t)
	const worker = "old"
	if _, errOut, code := onPair(t, "join", worker, "--agent=none", "--wait=false"); code != 0 {
		t.Fatal(errOut)
	}
	defer leave(t, worker)
	before := makeOld(t, worker)

	out, errOut, code := onPair(t, "join", worker, "--agent=none", "--wait=false")
	want := "Secret trainyard-system/trainyard-hub-token of the worker has a token without an end"
	if code != 0 || !strings.Contains(out+errOut, want) {
		t.Fatalf("join ends with %d, want %q in:\n%s%s", code, want, out, errOut)
	}
	after := kubeconfigOfJoined(t, worker)
	if bytes.Equal(before, after) {
		t.Error("the hub keeps the lasting token")
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(after)
	check.Must(t, err)
	token, err := kubeconfigs.ParseServiceAccountToken(config.BearerToken)
	if err != nil || time.Until(token.Expires) > registration.DefaultTokenLife {
		t.Errorf("the new token is %+v: %v", token, err)
	}
	secret, err := world.kubernetes.CoreV1().Secrets("trainyard-system").Get(t.Context(), worker+"-kubeconfig", metav1.GetOptions{})
	if err != nil || secret.Labels[v1alpha1.LabelRenew] != v1alpha1.RenewToken {
		t.Errorf("the Secret has labels %v, so the manager does not renew its token: %v", secret.Labels, err)
	}
	// The deferred leave fails the test if the lasting token stays.
}

// makeOld makes of a registration what the scripts would have made, and returns the kubeconfig.
func makeOld(t *testing.T, worker string) []byte {
	t.Helper()
	ctx, hub, far := t.Context(), world.kubernetes.CoreV1(), far.kubernetes.CoreV1()
	bound, err := far.Secrets("trainyard-system").List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelHub})
	if err != nil || len(bound.Items) != 1 {
		t.Fatalf("%d Secrets for tokens: %v", len(bound.Items), err)
	}
	check.Must(t, far.Secrets("trainyard-system").Delete(ctx, bound.Items[0].Name, metav1.DeleteOptions{}))
	lasting := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "trainyard-hub-token", Annotations: map[string]string{corev1.ServiceAccountNameKey: "trainyard-hub"}},
		Type:       corev1.SecretTypeServiceAccountToken,
	}
	if _, err := far.Secrets("trainyard-system").Create(ctx, lasting, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// There is no controller that fills the Secret. A token that is bound to nothing stands for the lasting token.
	request, err := far.ServiceAccounts("trainyard-system").CreateToken(ctx, "trainyard-hub", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	check.Must(t, err)
	config, err := clientcmd.Load(kubeconfigOfJoined(t, worker))
	check.Must(t, err)
	config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo].Token = request.Status.Token
	data, err := clientcmd.Write(*config)
	check.Must(t, err)
	secret, err := hub.Secrets("trainyard-system").Get(ctx, worker+"-kubeconfig", metav1.GetOptions{})
	check.Must(t, err)
	secret.Labels, secret.Data = nil, map[string][]byte{kubeconfigs.SecretKey: data}
	if _, err := hub.Secrets("trainyard-system").Update(ctx, secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	return data
}

// TestLeaveSparesAnOldHub takes out a worker that another hub has registered with the scripts of an earlier release:
// that hub keeps its account and its token.
func TestLeaveSparesAnOldHub(t *testing.T) {
	setUpPair(t)
	const worker, other = "beside-old", "0d0d0d0d-0000-4000-8000-000000000000"
	if _, errOut, code := onPair(t, "join", worker, "--agent=none", "--wait=false"); code != 0 {
		t.Fatal(errOut)
	}
	crd := "../../../../config/crd/worker"
	check.Must(t, far.cluster.InstallCRDs(t.Context(), crd))
	lease := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "trainyard.dev/v1alpha1", "kind": "ExecutionLease", "metadata": map[string]any{"name": other},
		"spec": map[string]any{"fenceAfter": "1m"},
	}}
	leases := far.dynamic.Resource(v1alpha1.GroupVersion.WithResource("executionleases"))
	if _, err := leases.Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	lasting := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "trainyard-hub-token", Annotations: map[string]string{corev1.ServiceAccountNameKey: "trainyard-hub"}},
		Type:       corev1.SecretTypeServiceAccountToken,
	}
	secrets := far.kubernetes.CoreV1().Secrets("trainyard-system")
	if _, err := secrets.Create(t.Context(), lasting, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	out, errOut, code := onPair(t, "leave", worker, "--force")
	if want := "another hub uses them (ID " + other + ")"; code != 0 || !strings.Contains(out+errOut, want) {
		t.Errorf("leave ends with %d, want %q in:\n%s%s", code, want, out, errOut)
	}
	if _, err := secrets.Get(t.Context(), "trainyard-hub-token", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := far.kubernetes.CoreV1().ServiceAccounts("trainyard-system").Get(t.Context(), "trainyard-hub", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	check.Must(t, leases.Delete(t.Context(), other, metav1.DeleteOptions{}))
	leave(t, worker)
}

// TestLeaveNamesTheHelmRelease takes out a worker whose rights come from a chart: Helm does not see that they are gone.
func TestLeaveNamesTheHelmRelease(t *testing.T) {
	setUpPair(t)
	const worker = "of-a-chart"
	if _, errOut, code := onPair(t, "join", worker, "--agent=none", "--wait=false"); code != 0 {
		t.Fatal(errOut)
	}
	patch := `{"metadata": {"annotations": {"meta.helm.sh/release-name": "yard", "meta.helm.sh/release-namespace": "kubeflow-system"}}}`
	_, err := far.kubernetes.CoreV1().ServiceAccounts("trainyard-system").Patch(t.Context(), "trainyard-hub", types.MergePatchType,
		[]byte(patch), metav1.PatchOptions{})
	check.Must(t, err)
	out, errOut, code := onPair(t, "leave", worker, "--force")
	want := "Helm release yard, which Helm shows as deployed: helm --kubeconfig " + far.cluster.KubeconfigPath +
		" --kube-context far uninstall yard --namespace kubeflow-system"
	if code != 0 || !strings.Contains(out+errOut, want) {
		t.Errorf("leave ends with %d, want %q in:\n%s%s", code, want, out, errOut)
	}
}

// TestJoinComparesClocks gives the worker a clock that is wrong.
func TestJoinComparesClocks(t *testing.T) {
	setUpPair(t)
	for name, tc := range map[string]struct {
		skew time.Duration
		want string
	}{
		"Right":  {0, "ok    worker  its clock agrees with the hub's"},
		"Little": {20 * time.Second, "ok    worker  its clock agrees with the hub's"},
		"Ahead":  {10 * time.Minute, "s ahead of the hub's: tokens are renewed by the hub's clock"},
		"Behind": {-10 * time.Minute, "s behind the hub's: tokens are renewed by the hub's clock"},
	} {
		t.Run(name, func(t *testing.T) {
			hub, err := registration.NewCluster(registration.HubSide, "", world.cluster.Config, true)
			check.Must(t, err)
			worker, err := registration.NewCluster(registration.WorkerSide, "", skewed(far.cluster.Config, tc.skew), true)
			check.Must(t, err)
			items, err := registration.NewJoin(hub, worker, registration.Options{
				Name: "skewed", Namespace: "trainyard-system", Agent: registration.AgentNone, TokenLife: registration.DefaultTokenLife,
			}, func(string) error { return nil }).Preflight(t.Context())
			check.Must(t, err)
			var lines []string
			for _, item := range items {
				lines = append(lines, item.String())
			}
			if all := strings.Join(lines, "\n"); !strings.Contains(all, tc.want) {
				t.Errorf("want %q in:\n%s", tc.want, all)
			}
		})
	}
}

// skewed makes the answers of a cluster have another time.
func skewed(config *rest.Config, skew time.Duration) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(request *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(request)
			if err == nil {
				response.Header.Set("Date", time.Now().Add(skew).UTC().Format(http.TimeFormat))
			}
			return response, err
		})
	})
	return config
}
