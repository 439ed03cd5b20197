// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package commands_test

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/trainyard/trainyard/test/check"
)

// standIn stands in for a gateway: the hub's API with the pods of a namespace in the place of those of another. The pods
// of the one namespace are those of a worker.
type standIn struct {
	url, authority string
	// logs counts the logs that were asked for.
	logs atomic.Int32
}

func startStandIn(t *testing.T, from, worker string) *standIn {
	t.Helper()
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(world.cluster.Config))
	check.Must(t, err)
	hub, err := url.Parse(world.cluster.Config.Host)
	check.Must(t, err)
	s := &standIn{}
	pods := "/api/v1/namespaces/" + from + "/pods"
	server := httptest.NewTLSServer(&httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(hub)
			if strings.HasSuffix(p.Out.URL.Path, "/log") {
				s.logs.Add(1)
			}
			if rest, ok := strings.CutPrefix(p.Out.URL.Path, pods); ok {
				p.Out.URL.Path = "/api/v1/namespaces/" + worker + "/pods" + rest
				query := p.Out.URL.Query()
				if selector := query.Get("labelSelector"); selector != "" { // A worker's pods do not have the gateway's label.
					query.Set("labelSelector", strings.ReplaceAll(selector, ",trainyard.dev/cluster", ""))
					p.Out.URL.RawQuery = query.Encode()
				}
			}
		},
	})
	t.Cleanup(server.Close)
	s.url = server.URL
	s.authority = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	return s
}

// publish writes the ConfigMap of a manager in a namespace.
func publish(t *testing.T, namespace string, data map[string]string) {
	t.Helper()
	published := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "trainyard-gateway"}, Data: data}
	_, err := world.kubernetes.CoreV1().ConfigMaps(namespace).Create(t.Context(), published, metav1.CreateOptions{})
	check.Must(t, err)
}

// tokenOfUser returns a token of somebody with the rights of a user of the hub, in namespace and worker.
func tokenOfUser(t *testing.T, namespace, worker string) string {
	t.Helper()
	check.Must(t, world.cluster.Apply(t.Context(), strings.NewReplacer("NS", namespace, "WORKER", worker).Replace(`
apiVersion: v1
kind: ServiceAccount
metadata: {name: user, namespace: NS}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: user, namespace: NS}
rules:
- {apiGroups: [trainer.kubeflow.org], resources: [trainjobs], verbs: [get, list, watch]}
- {apiGroups: [trainyard.dev], resources: [dispatches], verbs: [get]}
- {apiGroups: [""], resources: [configmaps], verbs: [get]}
- {apiGroups: [""], resources: [events], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: user, namespace: NS}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: user}
subjects: [{kind: ServiceAccount, name: user, namespace: NS}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: user, namespace: WORKER}
rules:
- {apiGroups: [""], resources: [pods], verbs: [get, list, watch]}
- {apiGroups: [""], resources: [pods/log], verbs: [get]}
- {apiGroups: [""], resources: [pods/exec], verbs: [get, create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: user, namespace: WORKER}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: user}
subjects: [{kind: ServiceAccount, name: user, namespace: NS}]
`)))
	text, err := world.cluster.ServiceAccountKubeconfig(t.Context(), types.NamespacedName{Namespace: namespace, Name: "user"}, time.Hour)
	check.Must(t, err)
	config, err := clientcmd.RESTConfigFromKubeConfig(text)
	check.Must(t, err)
	return config.BearerToken
}

// gatewayScene is a namespace of the hub, its namespace on a worker, and a gateway that is published in the former.
type gatewayScene struct {
	*standIn
	namespace, worker, token string
}

func setUpGateway(t *testing.T) *gatewayScene {
	t.Helper()
	s := &gatewayScene{namespace: setUp(t)}
	s.worker = s.namespace + "-worker"
	_, err := world.kubernetes.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.worker}}, metav1.CreateOptions{})
	check.Must(t, err)
	s.standIn = startStandIn(t, s.namespace, s.worker)
	publish(t, s.namespace, map[string]string{"url": s.url, "ca.crt": s.authority})
	s.token = tokenOfUser(t, s.namespace, s.worker)
	return s
}

// start runs a command in the namespace of the scene.
func (s *gatewayScene) start(t *testing.T, args ...string) *call {
	t.Helper()
	return start(t, append(args, "-n", s.namespace, "--manager-namespace", s.namespace)...)
}

// kubeconfig writes a kubeconfig that leads through the gateway, and returns its path.
func (s *gatewayScene) kubeconfig(t *testing.T) string {
	t.Helper()
	c := s.start(t, "kubeconfig", "--token", s.token)
	if code := c.wait(t); code != 0 {
		t.Fatalf("kubeconfig ends with %d: %s", code, &c.err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	check.Must(t, os.WriteFile(path, []byte(c.out.String()), 0o600))
	return path
}

// TestKubeconfig checks that an unmodified client reaches the gateway with what the command prints.
func TestKubeconfig(t *testing.T) {
	s := setUpGateway(t)
	path := s.kubeconfig(t)
	kubeconfig, err := clientcmd.LoadFromFile(path)
	check.Must(t, err)
	check.Equal(t, s.namespace, kubeconfig.Contexts[kubeconfig.CurrentContext].Namespace, "namespace of the context")
	config, err := clientcmd.BuildConfigFromFlags("", path)
	check.Must(t, err)
	check.Equal(t, s.url, config.Host, "server")
	client, err := rest.HTTPClientFor(config)
	check.Must(t, err)
	for path, want := range map[string]int{
		"/pods": http.StatusOK, "/secrets": http.StatusForbidden, // The user's own rights.
	} {
		response, err := client.Get(config.Host + "/api/v1/namespaces/" + s.namespace + path)
		check.Must(t, err)
		check.Must(t, response.Body.Close())
		check.Equal(t, want, response.StatusCode, "answer to a list of %s", path)
	}
}

func TestKubeconfigIsRefused(t *testing.T) {
	s := setUpGateway(t)
	authority := filepath.Join(t.TempDir(), "ca.crt")
	check.Must(t, os.WriteFile(authority, []byte("nothing"), 0o600))
	empty := s.worker
	publish(t, empty, nil)
	for name, tc := range map[string]struct {
		reason string
		args   []string
		want   []string
	}{
		"Certificate": {"the gateway cannot pass it on", nil, []string{"takes tokens only", "client certificate", "kubectl create token", "--token"}},
		"NoConfigMap": {
			"the hub has no gateway", []string{"--token", s.token, "--manager-namespace=default"},
			[]string{"publishes no gateway", "--gateway-bind-address", "config/gateway", "--manager-namespace"},
		},
		"NotForUser": {"a hub without a gateway has no role for its reader", []string{"--as=nobody"}, []string{"publishes no gateway"}},
		"NoURL":      {"no manager serves it yet", []string{"--manager-namespace", empty}, []string{"no manager has written", "--gateway-bind-address"}},
		"PlainURL":   {"a token goes through TLS only", []string{"--token", s.token, "--url=http://x"}, []string{"must be such as https://"}},
		"Authority":  {"it is no certificate", []string{"--token", s.token, "--certificate-authority", authority}, []string{"no certificate in PEM"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := start(t, append([]string{"kubeconfig", "--manager-namespace", s.namespace}, tc.args...)...)
			if code := c.wait(t); code != 1 || c.out.String() != "" {
				t.Errorf("%s: exit code %d, stdout %q", tc.reason, code, &c.out)
			}
			for _, want := range tc.want {
				if !strings.Contains(c.err.String(), want) {
					t.Errorf("%s: want %q in: %s", tc.reason, want, &c.err)
				}
			}
		})
	}
}

// TestKubeconfigOfAnAddress checks that flags count more than the ConfigMap, and replace a ConfigMap that is not there.
func TestKubeconfigOfAnAddress(t *testing.T) {
	setUp(t)
	c := start(t, "kubeconfig", "--token=t", "--manager-namespace=default", "--url=https://localhost:9444", "--tls-server-name=trainyard-gateway.trainyard-system.svc")
	check.Equal(t, 0, c.wait(t), "exit code")
	kubeconfig, err := clientcmd.Load([]byte(c.out.String()))
	check.Must(t, err)
	for _, cluster := range kubeconfig.Clusters {
		check.Equal(t, "https://localhost:9444", cluster.Server, "server")
		check.Equal(t, "trainyard-gateway.trainyard-system.svc", cluster.TLSServerName, "name in the certificate")
	}
}
