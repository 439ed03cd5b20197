// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/trainyard/trainyard/test/check"
)

// TestConfigMap checks that the plugin asks for the ConfigMap that config/gateway makes.
func TestConfigMap(t *testing.T) {
	text, err := os.ReadFile("../../../../config/gateway/config_map.yaml")
	check.Must(t, err)
	var made corev1.ConfigMap
	check.Must(t, yaml.UnmarshalStrict(text, &made))
	check.Equal(t, made.Name, ConfigMap, "name of the ConfigMap")
}

func TestParse(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, url, authority, want string
	}{
		"NotWritten":  {reason: "the manager has not been there", want: "no manager has written the address"},
		"Plain":       {reason: "a token must not be sent without TLS", url: "http://gateway.example.com", want: "must be such as https://"},
		"NoAuthority": {reason: "clients would refuse the kubeconfig", url: "https://gateway.example.com", authority: "nothing", want: "no certificate in PEM"},
		"Public":      {reason: "an authority of the system", url: "https://gateway.example.com"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(map[string]string{keyURL: tc.url, keyAuthority: tc.authority})
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: want %q, got %v", tc.reason, tc.want, err)
			}
		})
	}
}

// TestReach checks which credentials come into a kubeconfig, and that it can be read again.
func TestReach(t *testing.T) {
	exec := &clientcmdapi.ExecConfig{
		Command: "login", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
	}
	provider := &clientcmdapi.AuthProviderConfig{Name: "oidc", Config: map[string]string{"client-id": "kubernetes"}}
	certificate := rest.TLSClientConfig{CertData: []byte("certificate"), KeyData: []byte("key"), CAData: []byte("the hub's")}
	for name, tc := range map[string]struct {
		reason string
		config rest.Config
		want   *clientcmdapi.AuthInfo
		err    string
	}{
		"Token": {reason: "as it is", config: rest.Config{BearerToken: "t"}, want: &clientcmdapi.AuthInfo{Token: "t"}},
		"TokenFile": {
			reason: "a pod's token is renewed in its file", config: rest.Config{BearerToken: "t", BearerTokenFile: "/var/run/token"},
			want: &clientcmdapi.AuthInfo{TokenFile: "/var/run/token"},
		},
		"Exec":     {reason: "it makes tokens", config: rest.Config{ExecProvider: exec}, want: &clientcmdapi.AuthInfo{Exec: exec}},
		"Provider": {reason: "it makes tokens", config: rest.Config{AuthProvider: provider}, want: &clientcmdapi.AuthInfo{AuthProvider: provider}},
		"Both": {
			reason: "a token that was given counts", config: rest.Config{BearerToken: "t", TLSClientConfig: certificate},
			want: &clientcmdapi.AuthInfo{Token: "t"},
		},
		"Impersonation": {
			reason: "the hub decides about it", config: rest.Config{BearerToken: "t", Impersonate: rest.ImpersonationConfig{UserName: "jane"}},
			want: &clientcmdapi.AuthInfo{Token: "t", Impersonate: "jane"},
		},
		"Certificate": {reason: "the gateway cannot pass it on", config: rest.Config{TLSClientConfig: certificate}, err: "has a client certificate: give a token with --token"},
		"Password":    {reason: "nor a password", config: rest.Config{Username: "jane", Password: "p"}, err: "has a password"},
		"Nothing":     {reason: "nobody", err: "has no credentials"},
	} {
		t.Run(name, func(t *testing.T) {
			published := &Published{URL: "https://gateway.example.com", Authority: []byte("authority")}
			through, err := published.Reach(&tc.config)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("%s: want %q, got %v", tc.reason, tc.err, err)
				}
				return
			}
			check.Must(t, err)
			text, err := clientcmd.Write(*Kubeconfig(through, "prod", "vision"))
			check.Must(t, err)
			got, err := clientcmd.Load(text)
			check.Must(t, err)
			check.Equal(t, "prod-gateway", got.CurrentContext, "context")
			check.Equal(t, "vision", got.Contexts["prod-gateway"].Namespace, "namespace")
			hub := got.Clusters["prod-gateway"]
			check.Equal(t, published.URL, hub.Server, "server")
			check.Equal(t, "authority", string(hub.CertificateAuthorityData), "authority")
			tc.want.Extensions, tc.want.ImpersonateUserExtra = nil, map[string][]string{}
			user := got.AuthInfos["prod-gateway"]
			user.Extensions = nil
			want, err := clientcmd.Write(clientcmdapi.Config{AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": tc.want}})
			check.Must(t, err)
			is, err := clientcmd.Write(clientcmdapi.Config{AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": user}})
			check.Must(t, err)
			check.Diff(t, string(want), string(is), tc.reason)
		})
	}
}

// TestNames checks the name of a context that is made of a context through the gateway, or in a pod.
func TestNames(t *testing.T) {
	for context, want := range map[string]string{"prod": "prod-gateway", "prod-gateway": "prod-gateway", "": "hub-gateway"} {
		check.Equal(t, want, Kubeconfig(&rest.Config{}, context, "").CurrentContext, "context made of %q", context)
	}
}

func TestIs(t *testing.T) {
	published := &Published{URL: "https://gateway.example.com", Authority: []byte("authority")}
	for host, authority := range map[string]string{"https://gateway.example.com/": "", "https://localhost:9444": "authority"} {
		if !published.Is(&rest.Config{Host: host, TLSClientConfig: rest.TLSClientConfig{CAData: []byte(authority)}}) {
			t.Errorf("%s with authority %q is not taken for the gateway", host, authority)
		}
	}
	if (&Published{URL: published.URL}).Is(&rest.Config{Host: "https://hub.example.com"}) {
		t.Error("two servers without an authority of their own are taken for one")
	}
}
