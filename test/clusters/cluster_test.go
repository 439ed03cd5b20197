// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/upstream"
)

func TestKubeconfigVerifiesTLS(t *testing.T) {
	c := sharedCluster(t)
	data, err := c.KubeconfigBytes()
	check.Must(t, err)
	config, err := clientcmd.RESTConfigFromKubeConfig(data)
	check.Must(t, err)
	if config.Insecure || len(config.CAData) == 0 || !strings.HasPrefix(config.Host, "https://127.0.0.1:") {
		t.Errorf("kubeconfig leads to %s, insecure %v, with %d bytes of CA", config.Host, config.Insecure, len(config.CAData))
	}
	config.CAData = nil
	_, err = kubernetes.NewForConfigOrDie(config).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	if unknown := new(x509.UnknownAuthorityError); !errors.As(err, unknown) {
		t.Errorf("without the cluster's CA: want an unknown authority, got: %v", err)
	}
}

func TestRequestsWithoutRightsAreRefused(t *testing.T) {
	c := sharedCluster(t)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.Config.CAData)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
	for _, path := range []string{"/api/v1/namespaces", "/readyz", "/version"} {
		resp, err := client.Get(c.Config.Host + path)
		check.Must(t, err)
		_ = resp.Body.Close()
		check.Equal(t, http.StatusUnauthorized, resp.StatusCode,
			"anonymous GET %s: got %s, want 401", path, resp.Status)
	}
	// With credentials, but without a role.
	kubeconfig, err := c.ServiceAccountKubeconfig(t.Context(), types.NamespacedName{Namespace: "default", Name: "default"}, time.Hour)
	check.Must(t, err)
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	check.Must(t, err)
	_, err = kubernetes.NewForConfigOrDie(config).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("default service account lists nodes: want Forbidden, got: %v", err)
	}
}

func clientWithToken(c *Cluster, token string) kubernetes.Interface {
	config := rest.AnonymousClientConfig(c.Config)
	config.BearerToken = token
	return kubernetes.NewForConfigOrDie(config)
}

func TestServiceAccountTokenSecretIsFilledIn(t *testing.T) {
	g := gomega.NewWithT(t)
	c := sharedCluster(t)
	ns := namespace(t, c)
	core := c.kubernetes.CoreV1()
	if _, err := core.ServiceAccounts(ns).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "hub"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "hub-token", Annotations: map[string]string{corev1.ServiceAccountNameKey: "hub"}},
		Type:       corev1.SecretTypeServiceAccountToken,
	}
	if _, err := core.Secrets(ns).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "hub"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: "hub", Namespace: ns}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
	}
	if _, err := c.kubernetes.RbacV1().RoleBindings(ns).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	g.Eventually(func(g gomega.Gomega) {
		s, err := core.Secrets(ns).Get(t.Context(), "hub-token", metav1.GetOptions{})
		g.Expect(err).NotTo(gomega.HaveOccurred())
		g.Expect(s.Data).To(gomega.HaveKeyWithValue("ca.crt", c.Config.CAData))
		_, err = clientWithToken(c, string(s.Data["token"])).CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{})
		g.Expect(err).NotTo(gomega.HaveOccurred())
	}, deadline, tick).Should(gomega.Succeed())
}

func TestVersionCanBeParsed(t *testing.T) {
	c := sharedCluster(t)
	version, err := c.kubernetes.Discovery().ServerVersion()
	check.Must(t, err)
	if c.options.Release != version.Major+"."+version.Minor || !strings.HasPrefix(version.GitVersion, "v"+c.options.Release+".") {
		t.Errorf("got %+v", version)
	}
}

func TestOpenAPIDocuments(t *testing.T) {
	if os.Getenv(upstream.Variable) != "" {
		t.Skip("an API server of a release always serves all documents")
	}
	c := sharedCluster(t)
	const builtIn, custom = "apis/batch/v1", "apis/jobset.x-k8s.io/v1alpha2"
	gomega.NewWithT(t).Eventually(func() ([]string, error) {
		paths, err := c.kubernetes.Discovery().OpenAPIV3().Paths()
		return slices.Collect(maps.Keys(paths)), err
	}, deadline, tick).Should(gomega.And(gomega.ContainElement(custom), gomega.Not(gomega.ContainElement(builtIn))))
}

const widgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Widget, plural: widgets}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

func TestAPIServerThatIsKilledKeepsDataAndPort(t *testing.T) {
	g := gomega.NewWithT(t)
	dir := t.TempDir()
	crd := filepath.Join(dir, "widgets.yaml")
	check.Must(t, os.WriteFile(crd, []byte(widgets), 0o600))
	c := startCluster(t, Options{Name: "killed", Audit: true})
	check.Must(t, c.InstallCRDs(t.Context(), dir))
	check.Must(t, c.Apply(t.Context(), "{apiVersion: example.com/v1, kind: Widget, metadata: {name: w}}"))

	check.Must(t, c.KillAPIServer())
	if _, err := c.kubernetes.Discovery().ServerVersion(); err == nil {
		t.Error("a killed API server answers")
	}
	check.Must(t, c.StartAPIServer(t.Context()))
	// The API server finds out which CustomResourceDefinitions it serves after it has become ready.
	g.Eventually(func() (string, error) {
		out, err := c.Kubectl(t.Context(), "get", "widgets", "-o", "name")
		return string(out), err
	}, deadline, tick).Should(gomega.Equal("widget.example.com/w\n"))

	check.Must(t, c.PauseAPIServer())
	hurried := rest.CopyConfig(c.Config)
	hurried.Timeout = time.Second
	if _, err := kubernetes.NewForConfigOrDie(hurried).Discovery().ServerVersion(); err == nil {
		t.Error("a paused API server answers")
	}
	check.Must(t, c.ResumeAPIServer())
	g.Eventually(func() error {
		_, err := kubernetes.NewForConfigOrDie(hurried).Discovery().ServerVersion()
		return err
	}, deadline, tick).Should(gomega.Succeed())

	metrics, err := c.Metrics(t.Context())
	if err != nil || !strings.Contains(string(metrics), `apiserver_request_total{code="200",`) {
		t.Errorf("metrics do not count requests: %v", err)
	}
	audit, err := os.ReadFile(c.AuditLog())
	if err != nil || !strings.Contains(string(audit), `"requestURI":"/apis/example.com/v1/namespaces/default/widgets/w?`) {
		t.Errorf("the audit log does not name the widget: %v", err)
	}
}

func TestClusterIsRestoredFromBackup(t *testing.T) {
	g := gomega.NewWithT(t)
	c := startCluster(t, Options{Name: "restored"})
	create := func(name string) {
		t.Helper()
		check.Must(t, c.Apply(t.Context(), "{apiVersion: v1, kind: ConfigMap, metadata: {namespace: default, name: "+name+"}}"))
	}
	create("before")
	backup := filepath.Join(t.TempDir(), "backup")
	check.Must(t, c.BackUp(backup))
	create("after")

	check.Must(t, c.Restore(t.Context(), backup))
	maps := c.kubernetes.CoreV1().ConfigMaps("default")
	if _, err := maps.Get(t.Context(), "before", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := maps.Get(t.Context(), "after", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("what was created after the backup: %v, want NotFound", err)
	}

	check.Must(t, c.KillEtcd())
	check.Must(t, c.StartEtcd(t.Context()))
	g.Eventually(func() error { // The API server tells its clients of etcd's absence for a while.
		return c.Apply(t.Context(), "{apiVersion: v1, kind: ConfigMap, metadata: {namespace: default, name: again}}")
	}, deadline, tick).Should(gomega.Succeed())
}

func TestStartAllStartsAllOrNone(t *testing.T) {
	both, err := StartAll(t.Context(), Options{Name: "one"}, Options{Name: "two"})
	check.Must(t, err)
	if both[0].Config.Host == both[1].Config.Host {
		t.Errorf("both clusters are at %s", both[0].Config.Host)
	}
	check.Must(t, StopAll(both...))
	for _, c := range both {
		if _, err := os.Stat(c.Dir); !os.IsNotExist(err) {
			t.Errorf("temporary directory %s is left behind: %v", c.Dir, err)
		}
	}

	dir := t.TempDir()
	_, err = StartAll(t.Context(), Options{Name: "good", Dir: dir}, Options{Name: "bad", APIServerArgs: []string{"--no-such-flag"}})
	if err == nil || !strings.Contains(err.Error(), "no-such-flag") {
		t.Errorf("want an error with the words of the API server that ended, got: %v", err)
	}
	config, err := loadConfig(filepath.Join(dir, "kubeconfig"))
	if err == nil {
		_, err = kubernetes.NewForConfigOrDie(config).Discovery().ServerVersion()
	}
	if err == nil {
		t.Error("the good cluster runs on after the bad one has failed to start")
	}
}

func TestMissingBinaryNamesTheTarget(t *testing.T) {
	if os.Getenv(upstream.Variable) != "" {
		t.Skip("with a release nobody has to build our own control plane")
	}
	_, err := Start(t.Context(), Options{Name: "none", BinDir: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "make controlplane") {
		t.Errorf("got: %v", err)
	}
}

func TestKindWithoutEngineSaysWhatIsMissing(t *testing.T) {
	client := filepath.Join(t.TempDir(), "docker")
	script := `#!/bin/sh
case "$1" in
-v) echo "Docker version 28.0.0, build 0" ;;
*) echo "Cannot connect to the Docker daemon. Is it running?" >&2; exit 1 ;;
esac
`
	check.Must(t, os.WriteFile(client, []byte(script), 0o700))
	tests := map[string]struct {
		reason string
		path   string
		want   string
	}{
		"NoClient": {reason: "no engine is installed", path: t.TempDir(), want: "needs Docker, Podman or nerdctl"},
		"NoEngine": {reason: "only a client is there", path: filepath.Dir(client), want: "Is it running?"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TRAINYARD_CLUSTERS", "kind")
			t.Setenv("PATH", tc.path)
			_, err := Start(t.Context(), Options{Name: "kind"})
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: want one line with %q, got: %v", tc.reason, tc.want, err)
			}
		})
	}
}

func TestDirectoryOfRunningClusterIsRefused(t *testing.T) {
	c := sharedCluster(t)
	_, err := Start(t.Context(), Options{Name: "second", Dir: c.Dir})
	if err == nil || !strings.Contains(err.Error(), "lock "+c.Dir) {
		t.Errorf("got: %v", err)
	}
	if _, err := c.kubernetes.Discovery().ServerVersion(); err != nil {
		t.Errorf("the first cluster has been harmed: %v", err)
	}
}

const (
	// deadline limits every wait of a test, on a machine with other work.
	deadline = 90 * time.Second
	tick     = 50 * time.Millisecond

	// helperEnv makes the test binary a program that starts a cluster in the
	// directory it names and then waits to be killed.
	helperEnv = "TRAINYARD_CLUSTERS_HELPER"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(helperEnv); dir != "" {
		os.Exit(helper(dir))
	}
	code := m.Run()
	if err := stopShared(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// helper starts a cluster with all parts, prints the IDs of its processes and
// stays until it is killed.
func helper(dir string) int {
	o := Full("orphan", NodeShape{Count: 1})
	o.Dir = dir
	c, err := Start(context.Background(), o)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var pids []string
	for _, p := range append(c.backend.(*processes).running, c.beside...) {
		pids = append(pids, fmt.Sprint(p.PID()))
	}
	fmt.Println(strings.Join(pids, " "))
	select {}
}

// full is a cluster with everything, started by the first test that wants it.
var full struct {
	sync.Once
	cluster *Cluster
	err     error
}

func sharedCluster(t *testing.T) *Cluster {
	t.Helper()
	full.Do(func() {
		started := time.Now()
		full.cluster, full.err = Start(context.Background(), Full("full", NodeShape{
			Count:      2,
			NamePrefix: "gpu",
			Capacity:   corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")},
		}))
		if full.err == nil {
			t.Logf("Cluster with everything started in %v", time.Since(started).Round(time.Millisecond))
		}
	})
	if full.err != nil {
		t.Fatal(full.err)
	}
	return full.cluster
}

func stopShared() error {
	if full.cluster == nil {
		return nil
	}
	return full.cluster.Stop()
}

// startCluster starts a cluster that ends with the test, in a directory that
// stays readable until then.
func startCluster(t *testing.T, o Options) *Cluster {
	t.Helper()
	started := time.Now()
	c, err := Start(t.Context(), o)
	check.Must(t, err)
	t.Logf("Cluster %q started in %v", c.Name, time.Since(started).Round(time.Millisecond))
	t.Cleanup(func() { check.Must(t, c.Stop()) })
	return c
}
