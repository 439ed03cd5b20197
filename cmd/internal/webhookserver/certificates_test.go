// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/onsi/gomega"
	"github.com/open-policy-agent/cert-controller/pkg/rotator"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/ports"
)

const waitLimit = 60 * time.Second

var eventually = check.Within(waitLimit, 50*time.Millisecond)

// handshake returns nil if the server has a certificate for the name from the authority.
func handshake(ctx context.Context, address, name string, ca []byte) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: name}}
	connection, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return connection.Close()
}

// issue returns the contents of a Secret as the rotator writes it.
func issue(t *testing.T) (*corev1.Secret, []byte) {
	t.Helper()
	r := rotator.CertRotator{CAName: "ca", DNSName: "agent.test.svc", ExtKeyUsages: &[]x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	begin, end := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	ca, err := r.CreateCACert(begin, end)
	check.Must(t, err)
	cert, key, err := r.CreateCertPEM(ca, begin, end)
	check.Must(t, err)
	return &corev1.Secret{Data: map[string][]byte{"tls.crt": cert, "tls.key": key, "ca.crt": ca.CertPEM, "ca.key": ca.KeyPEM}}, ca.CertPEM
}

// TestServesWhenThereAreCertificates checks that the server waits for certificates, and reloads newer ones.
func TestServesWhenThereAreCertificates(t *testing.T) {
	address, err := ports.Free()
	check.Must(t, err)
	o := Options{Address: address, Service: "test/agent"}
	server, certs, err := o.New()
	check.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- server.Start(ctx) }()
	defer func() {
		cancel()
		check.Must(t, <-stopped)
	}()

	certs.take(&corev1.Secret{}) // As in config/webhook.
	secret, ca := issue(t)
	certs.take(&corev1.Secret{Data: map[string][]byte{"tls.crt": secret.Data["tls.crt"], "tls.key": []byte("torn")}})
	if server.StartedChecker()(nil) == nil || certs.CheckInjected(nil) == nil {
		t.Error("ready without certificates")
	}
	if entries, err := os.ReadDir(certs.dir); err != nil || len(entries) > 0 {
		t.Errorf("files without certificates: %v (error %v)", entries, err)
	}

	certs.take(secret)
	eventually(t, "server to be ready", func(g gomega.Gomega) {
		g.Expect(server.StartedChecker()(nil)).To(gomega.Succeed())
		g.Expect(handshake(t.Context(), address, "agent.test.svc", ca)).To(gomega.Succeed())
	})
	close(certs.injected)
	check.Must(t, certs.CheckInjected(nil))

	newer, newerCA := issue(t)
	certs.take(newer)
	eventually(t, "newer certificate", func(g gomega.Gomega) {
		g.Expect(handshake(t.Context(), address, "agent.test.svc", newerCA)).To(gomega.Succeed())
	})
}

// TestServerThatNeverStarts checks that an agent without certificates can stop.
func TestServerThatNeverStarts(t *testing.T) {
	server := &waitingServer{ready: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	check.Equal(t, nil, server.Start(ctx), "the server ends")
}

// TestKeysAreKept checks that only this user can read the key, and that the authority's key is not copied.
func TestKeysAreKept(t *testing.T) {
	certs, err := newCertificates(types.NamespacedName{Namespace: "test", Name: "agent"}, "configuration")
	check.Must(t, err)
	secret, _ := issue(t)
	certs.take(secret)
	modes := map[string]os.FileMode{}
	err = filepath.Walk(certs.dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && path != certs.dir {
			modes[info.Name()] = info.Mode()
		} else if err == nil {
			modes["."] = info.Mode().Perm()
		}
		return err
	})
	check.Must(t, err)
	check.Diff(t, map[string]os.FileMode{".": 0o700, "ca.crt": 0o600, "tls.crt": 0o600, "tls.key": 0o600}, modes, "files")
	certs.Remove()
	if _, err := os.Stat(certs.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is still there, error %v", err)
	}
}
