// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// loopback is the only address on which a cluster of processes listens.
const loopback = "127.0.0.1"

// serviceClusterIP is the first address of the service range, which
// kubernetes.default.svc has.
const serviceClusterIP = "10.0.0.1"

// authority is the certificate authority of one cluster.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// keyPair is a certificate and its key, PEM encoded.
type keyPair struct {
	cert, key []byte
}

// identity is what a client certificate says of its bearer.
type identity struct {
	user  string
	group string
}

func newAuthority(cluster string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := certTemplate(pkix.Name{CommonName: cluster + "-ca"})
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &authority{cert: cert, key: key, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, nil
}

// certTemplate is valid from an hour ago, for clocks that differ, for a year.
func certTemplate(subject pkix.Name) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      subject,
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.AddDate(1, 0, 0),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
}

// serving issues a certificate for a server with the given IP addresses and DNS names.
func (a *authority) serving(hosts ...string) (keyPair, error) {
	template := certTemplate(pkix.Name{CommonName: hosts[0]})
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return a.issue(template)
}

func (a *authority) client(id identity) (keyPair, error) {
	template := certTemplate(pkix.Name{CommonName: id.user, Organization: []string{id.group}})
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.issue(template)
}

func (a *authority) issue(template *x509.Certificate) (keyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return keyPair{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return keyPair{}, err
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return keyPair{}, err
	}
	return keyPair{cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key: keyPEM}, nil
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

// writePKI writes what the components read from files: the authority, the API
// server's certificate and the key that signs service account tokens.
func (a *authority) writePKI(dir string) error {
	server, err := a.serving(loopback, serviceClusterIP, "localhost",
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
	if err != nil {
		return fmt.Errorf("issue API server certificate: %w", err)
	}
	tokenKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	tokenPEM, err := encodeKey(tokenKey)
	if err != nil {
		return err
	}
	if err := server.write(dir, "apiserver"); err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "ca.crt"), a.pem, 0o600),
		os.WriteFile(filepath.Join(dir, "sa.key"), tokenPEM, 0o600),
	)
}

// write writes <name>.crt and <name>.key into dir, which is made if missing.
func (k keyPair) write(dir, name string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, name+".crt"), k.cert, 0o600),
		os.WriteFile(filepath.Join(dir, name+".key"), k.key, 0o600),
	)
}

// kubeconfigBytes encodes a kubeconfig with one context, named after the
// cluster, and everything in it that is needed to use it.
func kubeconfigBytes(cluster, server string, ca []byte, user *clientcmdapi.AuthInfo) ([]byte, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters[cluster] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	config.AuthInfos[cluster] = user
	config.Contexts[cluster] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: cluster}
	config.CurrentContext = cluster
	return clientcmd.Write(*config)
}

// writeKubeconfig issues a client certificate and writes a kubeconfig with it.
func (p *processes) writeKubeconfig(path string, id identity) error {
	pair, err := p.ca.client(id)
	if err != nil {
		return fmt.Errorf("issue certificate for %q: %w", id.user, err)
	}
	data, err := kubeconfigBytes(p.options.Name, p.server(), p.ca.pem, &clientcmdapi.AuthInfo{
		ClientCertificateData: pair.cert,
		ClientKeyData:         pair.key,
	})
	if err != nil {
		return err
	}
	return writeFile(path, data)
}

// loadConfig reads a kubeconfig for tests, without a rate limit: tests must not wait for their own client.
func loadConfig(path string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = 1000, 2000
	return config, nil
}

// ServiceAccountKubeconfig returns a kubeconfig with a service account's token that is valid for the given time. The
// API server makes that at least ten minutes. The account has the rights of its role bindings.
func (c *Cluster) ServiceAccountKubeconfig(ctx context.Context, account types.NamespacedName, valid time.Duration) ([]byte, error) {
	seconds := int64(valid.Seconds())
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	response, err := c.kubernetes.CoreV1().ServiceAccounts(account.Namespace).CreateToken(ctx, account.Name, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("request token of service account %s on cluster %q: %w", account, c.Name, err)
	}
	return kubeconfigBytes(c.Name, c.Config.Host, c.Config.CAData, &clientcmdapi.AuthInfo{Token: response.Status.Token})
}
