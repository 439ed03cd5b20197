// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeconfigs

import (
	"net/url"
	"testing"
	"time"

	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
)

// FuzzParse checks that Parse never panics and never returns insecure credentials.
func FuzzParse(f *testing.F) {
	good := newKubeconfig(f)
	f.Add(toYAML(f, good))
	f.Add(toJSON(f, good))
	bad := good.DeepCopy()
	bad.Clusters[0].Cluster.InsecureSkipTLSVerify = true
	bad.Clusters[0].Cluster.Server = "http://user@worker:80?x#y"
	bad.AuthInfos[0].AuthInfo = clientcmdv1.AuthInfo{
		Exec: &clientcmdv1.ExecConfig{Command: "x"}, TokenFile: "/x", ClientKey: "/x", ClientCertificate: "/x", Username: "x",
		Impersonate: "x", AuthProvider: &clientcmdv1.AuthProviderConfig{Name: "x"}, Token: newJWT(`{"exp":1}`),
	}
	f.Add(toYAML(f, bad))
	cert, key := newPair(f, now.Add(time.Hour))
	certified := good.DeepCopy()
	certified.AuthInfos[0].AuthInfo = clientcmdv1.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
	f.Add(toJSON(f, certified))
	f.Add([]byte(`{"Users":[{"NAME":"hub","User":{"EXEC":{},"Token":"x"}}]}`))
	f.Add([]byte("a: &a [*a]"))

	f.Fuzz(func(t *testing.T, data []byte) {
		credentials, err := Parse(data, now)
		if err != nil {
			if credentials != nil {
				t.Fatal("an error and credentials")
			}
			if ReasonOf(err) == "" || err.Error() == "" {
				t.Fatalf("an error without a reason: %q", err)
			}
			return
		}
		c := credentials.Config
		u, err := url.Parse(c.Host)
		if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" {
			t.Errorf("host %q", c.Host)
		}
		if c.Insecure || c.CAFile != "" || c.CertFile != "" || c.KeyFile != "" || c.BearerTokenFile != "" || c.Username != "" ||
			c.Password != "" || c.ExecProvider != nil || c.AuthProvider != nil || c.Proxy != nil || c.Impersonate.UserName != "" {
			t.Error("an insecure config")
		}
		if c.BearerToken == "" && (len(c.CertData) == 0 || len(c.KeyData) == 0) {
			t.Error("no credentials")
		}
		if len(credentials.Fingerprint) != 32 {
			t.Errorf("fingerprint %q", credentials.Fingerprint)
		}
		if !credentials.Expires.IsZero() && credentials.Expires.Before(now) {
			t.Error("expired credentials")
		}
	})
}
