// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard/logarchive"
	"github.com/trainyard/trainyard/logarchive/bucket"
)

const key, secret = "trainyard", "a-secret-of-the-test"

// server is a running S3 server with one bucket.
type server struct {
	url   string
	dir   string // It has the objects as files.
	trust http.RoundTripper
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// start starts the server, and waits until it answers.
func start(t *testing.T) *server {
	t.Helper()
	dir := t.TempDir()
	program, err := filepath.Abs("../../bin/versitygw")
	must(t, err)
	if _, err := os.Stat(program); err != nil {
		t.Skipf("run make test-s3, which builds the server: %v", err) // It takes minutes.
	}
	pool := certificate(t, dir)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	address := listener.Addr().String()
	must(t, listener.Close())
	s := &server{
		url: "https://" + address + "/logs", dir: filepath.Join(dir, "objects", "logs"),
		trust: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}},
	}
	must(t, os.MkdirAll(s.dir, 0o700))
	var said bytes.Buffer
	command := exec.Command(program, "--access", key, "--secret", secret, "--port", address, "--quiet",
		"--cert", filepath.Join(dir, "tls.crt"), "--key", filepath.Join(dir, "tls.key"), "posix", filepath.Join(dir, "objects"))
	command.Stdout, command.Stderr = &said, &said
	must(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		if t.Failed() {
			t.Logf("the server said: %s", said.String())
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
		must(t, err)
		res, err := s.trust.RoundTrip(request)
		if err == nil {
			_ = res.Body.Close()
			return s
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the server does not answer: %v: %s", err, said.String())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// certificate writes a certificate for the server, and returns who trusts it.
func certificate(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	must(t, err)
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	must(t, err)
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	must(t, os.WriteFile(filepath.Join(dir, "tls.crt"), text, 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "tls.key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}), 0o600))
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	return pool
}

func (s *server) archive(t *testing.T, prefix string) *logarchive.Archive {
	t.Helper()
	b, err := bucket.New(s.url+prefix, s.trust)
	must(t, err)
	return &logarchive.Archive{Store: b}
}

// TestBucket keeps and finds logs in a bucket of a real server, as in a directory.
func TestBucket(t *testing.T) {
	s := start(t)
	t.Setenv("AWS_ACCESS_KEY_ID", key)
	t.Setenv("AWS_SECRET_ACCESS_KEY", secret)
	for name, prefix := range map[string]string{"Root": "", "Prefix": "/of/hub-1/"} {
		t.Run(name, func(t *testing.T) {
			a := s.archive(t, prefix)
			attempt := logarchive.Attempt{Namespace: "team", Job: "job", UID: "uid-1", Number: 2}
			has, err := a.Has(t.Context(), attempt)
			if has || err != nil {
				t.Fatalf("an empty bucket has the attempt: %t, %v", has, err)
			}
			big := strings.Repeat("0123456789abcde\n", 1<<16) // 1 MiB
			c := logarchive.Container{Name: "node", Bytes: int64(len(big))}
			index := &logarchive.Index{Attempt: attempt, NamespaceUID: "ns-1", Worker: "east", Reason: "Complete"}
			for i := range 3 {
				pod := fmt.Sprintf("job-node-0-%d-aaaaa", i)
				must(t, a.Keep(t.Context(), attempt, pod, &c, []byte(big)))
				index.Pods = append(index.Pods, logarchive.Pod{Name: pod, Containers: []logarchive.Container{c}})
			}
			if has, err = a.Has(t.Context(), attempt); has || err != nil {
				t.Fatalf("an attempt without an index counts as kept: %t, %v", has, err)
			}
			must(t, a.WriteIndex(t.Context(), index))
			if has, err = a.Has(t.Context(), attempt); !has || err != nil {
				t.Fatalf("the attempt is not there: %t, %v", has, err)
			}
			found, err := a.Find(t.Context(), "team", "ns-1", "job-node-0-1-aaaaa", []string{"job-node", "job"})
			must(t, err)
			if found.Pod == nil {
				t.Fatal("the pod is not found")
			}
			text, err := a.Read(t.Context(), found.Index.Attempt, found.Pod.Name, found.Pod.Log("node", false))
			must(t, err)
			if string(text) != big {
				t.Errorf("the log has %d bytes", len(text))
			}
			if _, err := a.Store.Get(t.Context(), "team/job/none", 10); !errors.Is(err, logarchive.ErrNotFound) {
				t.Errorf("an object that is not there: %v", err)
			}
			names, err := a.Store.List(t.Context(), "team/job/uid-1/2")
			must(t, err)
			want := []string{"index.json", "job-node-0-0-aaaaa", "job-node-0-1-aaaaa", "job-node-0-2-aaaaa"}
			if !slices.Equal(names, want) {
				t.Errorf("names are %q, want %q", names, want)
			}
			if names, err = a.Store.List(t.Context(), "team/jo"); err != nil || len(names) > 0 {
				t.Errorf("a job with another name has %q, %v", names, err)
			}
		})
	}
	if _, err := os.Stat(filepath.Join(s.dir, "of/hub-1/team/job/uid-1/2/index.json")); err != nil {
		t.Errorf("the object is not where the URL says: %v", err)
	}
}

// TestBucketRefuses: wrong credentials and a server that nobody trusts are errors, and nothing is sent there.
func TestBucketRefuses(t *testing.T) {
	s := start(t)
	t.Setenv("AWS_ACCESS_KEY_ID", key)
	t.Setenv("AWS_SECRET_ACCESS_KEY", "wrong")
	if err := s.archive(t, "").Store.Put(t.Context(), "a", []byte("x")); err == nil {
		t.Error("a wrong secret is taken")
	} else if strings.Contains(err.Error(), "wrong") {
		t.Errorf("the error has the secret: %v", err)
	}
	t.Setenv("AWS_SECRET_ACCESS_KEY", secret)
	untrusted, err := bucket.New(s.url, nil)
	must(t, err)
	if err := untrusted.Put(t.Context(), "a", []byte("x")); err == nil {
		t.Error("a server is trusted whose authority nobody knows")
	}
	entries, err := os.ReadDir(s.dir)
	must(t, err)
	if len(entries) > 0 {
		t.Errorf("the bucket has %v", entries)
	}
}
