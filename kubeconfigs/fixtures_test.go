// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeconfigs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"testing"
	"time"

	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/yaml"

	"github.com/trainyard/trainyard/test/check"
)

// now is the time of the tests.
var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// newPair returns a self-signed certificate and its key in PEM form.
func newPair(t testing.TB, notAfter time.Time) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check.Must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "hub"},
		NotBefore: now.Add(-365 * 24 * time.Hour), NotAfter: notAfter,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	check.Must(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	check.Must(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}

// newJWT returns a token with the given payload and no valid signature.
func newJWT(payload string) string {
	encode := base64.RawURLEncoding.EncodeToString
	return fmt.Sprintf("%s.%s.%s", encode([]byte(`{"alg":"none"}`)), encode([]byte(payload)), encode([]byte("signature")))
}

// newKubeconfig returns a kubeconfig with one context that Parse accepts.
func newKubeconfig(t testing.TB) *clientcmdv1.Config {
	t.Helper()
	ca, _ := newPair(t, now.Add(time.Hour))
	return &clientcmdv1.Config{
		Kind: "Config", APIVersion: "v1",
		CurrentContext: "worker",
		Clusters: []clientcmdv1.NamedCluster{{Name: "worker", Cluster: clientcmdv1.Cluster{
			Server: "https://worker.example.com:6443", CertificateAuthorityData: ca,
		}}},
		AuthInfos: []clientcmdv1.NamedAuthInfo{{Name: "hub", AuthInfo: clientcmdv1.AuthInfo{Token: "secret-token"}}},
		Contexts:  []clientcmdv1.NamedContext{{Name: "worker", Context: clientcmdv1.Context{Cluster: "worker", AuthInfo: "hub"}}},
	}
}

func toYAML(t testing.TB, config any) []byte {
	t.Helper()
	data, err := yaml.Marshal(config)
	check.Must(t, err)
	return data
}

func toJSON(t testing.TB, config any) []byte {
	t.Helper()
	data, err := json.Marshal(config)
	check.Must(t, err)
	return data
}
