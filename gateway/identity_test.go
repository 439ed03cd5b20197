// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/trainyard/trainyard/test/check"
)

// TestHeadersOfIdentity: what a proxy in front of an API server would say of a user never reaches the hub. Whom the caller
// wants to be reaches the hub in each request, so that the hub decides, and never a worker.
func TestHeadersOfIdentity(t *testing.T) {
	claims := map[string]string{
		"X-Remote-User": "root", "X-Remote-Group": "system:masters", "X-Remote-Uid": "0", "X-Remote-Extra-Scopes": "all", "x-remote-extra-more": "more",
	}
	wishes := map[string]string{
		"Impersonate-User": "eve", "Impersonate-Group": "system:masters", "Impersonate-Uid": "7", "Impersonate-Extra-Reason": "curiosity",
	}
	var headers []string
	for _, all := range []map[string]string{claims, wishes} {
		for name, value := range all {
			headers = append(headers, name, value)
		}
	}
	for name, tc := range map[string]struct {
		method, path string
		header       []string
		atHub        bool // No worker is asked.
	}{
		"Secrets":      {path: "/api/v1/namespaces/team/secrets", atHub: true},
		"Create":       {method: http.MethodPost, path: "/api/v1/namespaces/team/pods", atHub: true},
		"ExecAtTheHub": {path: "/api/v1/namespaces/team/pods/of-the-hub/exec", header: upgrade, atHub: true},
		"LogAtTheHub":  {path: "/api/v1/namespaces/team/pods/of-the-hub/log", atHub: true},
		"List":         {path: "/api/v1/namespaces/team/pods"},
		"Watch":        {path: "/api/v1/namespaces/team/pods?watch=1&timeoutSeconds=1", atHub: true},
		"Events":       {path: "/api/v1/namespaces/team/events"},
		"Get":          {path: podURL},
		"Log":          {path: logURL},
		"Exec":         {path: podURL + "/exec?command=true", header: upgrade},
		"Delete":       {method: http.MethodDelete, path: podURL},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, &workerServer{})
			if tc.method == "" {
				tc.method = http.MethodGet
			}
			w.send(t, tc.method, tc.path, append(tc.header, headers...)...)
			ofHub, ofWorker := w.hub.all(), w.worker.all()
			if len(ofHub) == 0 || !tc.atHub && len(ofWorker) == 0 {
				t.Fatalf("the hub received %v, and the worker %v", ofHub, ofWorker)
			}
			for _, r := range ofHub {
				for header := range r.header {
					if strings.HasPrefix(header, "X-Remote-") {
						t.Errorf("the hub received %s %s with %s", r.method, r.uri, header)
					}
				}
				if strings.Contains(r.uri, "selfsubjectreviews") && r.header.Get("Impersonate-User") == "" {
					continue // It asks for the caller's own name, for the log.
				}
				for header, want := range wishes {
					check.Equal(t, want, r.header.Get(header), "%s of %s %s at the hub", header, r.method, r.uri)
				}
			}
			for _, r := range ofWorker {
				for header := range r.header {
					if strings.HasPrefix(header, "X-Remote-") || strings.HasPrefix(header, prefixImpersonate) {
						t.Errorf("the worker received %s %s with %s", r.method, r.uri, header)
					}
				}
			}
		})
	}
}

// certificateOf makes a certificate of a user, in PEM.
func certificateOf(t *testing.T, name string, groups ...string) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check.Must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name, Organization: groups}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	check.Must(t, err)
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	check.Must(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})
}

// TestClientCertificate: a certificate is no token, whether the server asks for one or not. Nothing is asked of the hub or
// of a worker for who has only a certificate.
func TestClientCertificate(t *testing.T) {
	pair, err := tls.X509KeyPair(certificateOf(t, "root", "system:masters"))
	check.Must(t, err)
	for name, ask := range map[string]tls.ClientAuthType{
		"AsTheManagerServes": tls.NoClientCert, "Asked": tls.RequestClientCert, "Required": tls.RequireAnyClientCert,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, &workerServer{})
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
				check.Equal(t, ask != tls.NoClientCert, len(r.TLS.PeerCertificates) > 0, "the server has got a certificate")
				w.handler().ServeHTTP(out, r)
			}))
			server.TLS = &tls.Config{ClientAuth: ask, MinVersion: tls.VersionTLS12}
			server.EnableHTTP2 = true
			server.StartTLS()
			t.Cleanup(server.Close)
			client := server.Client()
			client.Transport.(*http.Transport).TLSClientConfig.Certificates = []tls.Certificate{pair}
			for _, path := range []string{"/api", "/version", "/api/v1/secrets", "/api/v1/namespaces/team/pods", "/api/v1/namespaces/team/pods?watch=1", podURL, logURL, podURL + "/exec?command=true"} {
				for header, value := range map[string]string{"Accept": "*/*", "X-Remote-User": "root", "Impersonate-User": "root", "Authorization": "Basic cm9vdDpyb290"} {
					r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
					check.Must(t, err)
					r.Header.Set(header, value)
					res, err := client.Do(r)
					check.Must(t, err)
					_ = res.Body.Close()
					check.Equal(t, http.StatusUnauthorized, res.StatusCode, "code of %s with %s", path, header)
				}
			}
			check.Equal(t, 0, len(w.hub.all()), "requests that the hub received")
			check.Equal(t, 0, len(w.worker.all()), "requests that the worker received")
		})
	}
}

// TestManagersCertificateIsNotLent: a manager that itself logs in to the hub with a certificate, and a password, and as
// somebody else, sends none of that with a caller's requests.
func TestManagersCertificateIsNotLent(t *testing.T) {
	var mu sync.Mutex
	received, lent := 0, []string{}
	hub := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		received++
		if got := r.Header.Get("Authorization"); got != "Bearer "+good && got != "Bearer other" {
			lent = append(lent, r.URL.Path+": "+got)
		}
		for _, certificate := range r.TLS.PeerCertificates {
			lent = append(lent, r.URL.Path+": certificate of "+certificate.Subject.String())
		}
		if as := r.Header.Get("Impersonate-User"); as != "" {
			lent = append(lent, r.URL.Path+": as "+as)
		}
		mu.Unlock()
		hubServer(w, r)
	}))
	hub.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	hub.EnableHTTP2 = true
	hub.StartTLS()
	t.Cleanup(hub.Close)
	certificate, key := certificateOf(t, "manager", "system:masters")
	w := newWorld(t, &workerServer{change: func(o *Options) {
		o.Config = &rest.Config{
			Host: hub.URL, Username: "manager", Password: "secret", Impersonate: rest.ImpersonationConfig{UserName: "root"},
			TLSClientConfig: rest.TLSClientConfig{Insecure: true, CertData: certificate, KeyData: key},
		}
	}})
	for _, token := range []string{good, "other"} {
		for _, path := range []string{"/api", "/api/v1/namespaces/team/pods", "/api/v1/namespaces/team/pods?watch=1", podURL, logURL, "/api/v1/namespaces/team/pods/of-the-hub/log"} {
			w.send(t, http.MethodGet, path, "Authorization", "Bearer "+token)
		}
		w.send(t, http.MethodGet, "/api/v1/namespaces/team/pods/of-the-hub/exec", "Authorization", "Bearer "+token, "Connection", "Upgrade", "Upgrade", "websocket")
	}
	mu.Lock()
	defer mu.Unlock()
	if received == 0 {
		t.Error("the hub received nothing")
	}
	check.Diff(t, []string{}, lent, "credentials of the manager")
}
