// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package links

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trainyard/trainyard/test/check"
)

// deadline limits waits for things that come at once on an idle machine. silence is how long to wait for things that
// must not come.
const (
	deadline = 20 * time.Second
	silence  = 300 * time.Millisecond
)

// server answers "served", after the lines of ?lines=, one every 50 ms. It is linked.
func server(t *testing.T) *Link {
	t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lines := 0
		_, _ = fmt.Sscan(r.URL.Query().Get("lines"), &lines)
		for i := range lines {
			_, _ = fmt.Fprintln(w, i)
			_ = http.NewResponseController(w).Flush()
			select {
			case <-r.Context().Done():
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
		_, _ = io.WriteString(w, "served")
	}))
	t.Cleanup(s.Close)
	l, err := New("test", s.Listener.Addr().String(), pki(t))
	check.Must(t, err)
	t.Cleanup(l.Close)
	return l
}

// pki writes a certificate for the interceptor.
func pki(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check.Must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	check.Must(t, err)
	private, err := x509.MarshalECPrivateKey(key)
	check.Must(t, err)
	dir := t.TempDir()
	for name, block := range map[string]*pem.Block{
		"apiserver.crt": {Type: "CERTIFICATE", Bytes: certificate}, "apiserver.key": {Type: "EC PRIVATE KEY", Bytes: private},
	} {
		check.Must(t, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600))
	}
	return dir
}

// newClient makes a client with connections of its own.
func newClient(timeout time.Duration) *http.Client {
	return &http.Client{Timeout: timeout, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true,
	}}
}

// get returns what the server says, or the error.
func get(c *http.Client, url string) (string, error) {
	response, err := c.Get(url)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return fmt.Sprintf("%d %s", response.StatusCode, body), err
}

func expectServed(t *testing.T, c *http.Client, l *Link) {
	t.Helper()
	if got, err := get(c, l.URL()); err != nil || got != "200 served" {
		t.Errorf("got %q, %v; want to be served", got, err)
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

func TestFaults(t *testing.T) {
	cases := map[string]struct {
		reason  string
		fault   func(*Link) error
		fresh   func(error) bool // of the first request on a new connection
		dialled func(error) bool // of making a TCP connection
	}{
		"hang": {
			reason:  "A server that hangs accepts connections and never answers.",
			fault:   (*Link).Hang,
			fresh:   isTimeout,
			dialled: func(err error) bool { return err == nil },
		},
		"reset": {
			reason:  "A reset comes when the connection is used.",
			fault:   (*Link).Reset,
			fresh:   func(err error) bool { return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF) },
			dialled: func(err error) bool { return err == nil },
		},
		"refuse": {
			reason:  "Nobody listens.",
			fault:   func(l *Link) error { l.Refuse(); return nil },
			fresh:   func(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) },
			dialled: func(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) },
		},
		"black hole": {
			reason:  "No connection can be made, and nobody says so.",
			fault:   (*Link).Blackhole,
			fresh:   isTimeout,
			dialled: isTimeout,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			l := server(t)
			expectServed(t, newClient(deadline), l)
			check.Must(t, tc.fault(l))
			for range 3 {
				connection, err := net.DialTimeout("tcp4", strings.TrimPrefix(l.URL(), "https://"), silence)
				if !tc.dialled(err) {
					t.Errorf("%s Dial: %v", tc.reason, err)
				}
				if err == nil {
					_ = connection.Close()
				}
			}
			if got, err := get(newClient(silence), l.URL()); !tc.fresh(err) {
				t.Errorf("%s Request: %q, %v", tc.reason, got, err)
			}
			check.Must(t, l.Heal())
			expectServed(t, newClient(deadline), l)
		})
	}
}

// Data that is on its way when Blackhole begins arrives after Heal, and not before.
func TestBlackholeKeepsWhatIsOnItsWay(t *testing.T) {
	l := server(t)
	c := newClient(deadline)
	response, err := c.Get(l.URL() + "?lines=20")
	check.Must(t, err)
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	if !lines.Scan() {
		t.Fatal("nothing comes")
	}
	check.Must(t, l.Blackhole())
	arrived := make(chan string)
	go func() {
		for lines.Scan() {
			arrived <- lines.Text()
		}
		close(arrived)
	}()
	for quiet := false; !quiet; { // What had passed before may still be read.
		select {
		case line := <-arrived:
			if line == "served" {
				t.Fatal("the answer arrives through a black hole")
			}
		case <-time.After(2 * silence):
			quiet = true
		}
	}
	check.Must(t, l.Heal())
	last := ""
	for line := range arrived {
		last = line
	}
	check.Equal(t, "served", last, "the last that arrives, which is the end of the answer")
}

// Blackhole works a second time, and after Refuse.
func TestFaultsFollowEachOther(t *testing.T) {
	l := server(t)
	for range 3 {
		check.Must(t, l.Blackhole())
		check.Must(t, l.Heal())
		l.Refuse()
		check.Must(t, l.Heal())
		check.Must(t, l.Blackhole())
		l.Refuse()
		check.Must(t, l.Heal())
		expectServed(t, newClient(deadline), l)
	}
}

func TestLatency(t *testing.T) {
	l := server(t)
	check.Must(t, l.Latency(silence, 0))
	began := time.Now()
	expectServed(t, newClient(deadline), l)
	if took := time.Since(began); took < silence {
		t.Errorf("took %v, want at least %v", took, silence)
	}
}

func TestIntercept(t *testing.T) {
	l := server(t)
	c := newClient(deadline)
	expectServed(t, c, l)

	l.Intercept(Answer(http.StatusTooManyRequests, 2))
	response, err := c.Get(l.URL())
	check.Must(t, err)
	_ = response.Body.Close()
	if response.StatusCode != http.StatusTooManyRequests || response.Header.Get("Retry-After") != "2" {
		t.Errorf("got %s, Retry-After %q", response.Status, response.Header.Get("Retry-After"))
	}

	l.Intercept(Watches(EndAfter(silence)))
	c = newClient(deadline) // The other's connections have ended.
	expectServed(t, c, l)
	began := time.Now()
	got, err := get(c, l.URL()+"?watch=1&lines=100")
	if err != nil || !strings.HasPrefix(got, "200 0\n") || strings.Contains(got, "served") {
		t.Errorf("got %q, %v; want an orderly end in the middle", got, err)
	}
	if took := time.Since(began); took < silence {
		t.Errorf("the watch took %v, want at least %v", took, silence)
	}

	check.Must(t, l.Heal())
	expectServed(t, c, l)
	expectServed(t, newClient(deadline), l)
}
