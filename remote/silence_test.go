// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote_test

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/onsi/gomega"
	"k8s.io/client-go/rest"

	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/ports"
)

// fault is what is wrong with a front.
type fault int32

const (
	none fault = iota
	// blackholed: packets get lost. New connections fail, and old connections are silent.
	blackholed
	// The front accepts connections, and resets them at once, never answers, or answers nonsense.
	resetting
	mute
	babbling
	// failing: the front answers all requests with 500.
	failing
)

// front is the address of a server that serves the kube-system namespace and can be made to fail.
type front struct {
	*net.TCPListener
	server *httptest.Server

	// taken counts the connections that were accepted during a fault.
	taken atomic.Int32

	// accepting is held while a connection may be accepted.
	accepting sync.Mutex

	mu sync.Mutex
	// mu guards what follows. changed is closed when the fault changes. held are connections that are neither answered
	// nor closed.
	fault   fault
	changed chan struct{}
	held    []net.Conn
}

func newFront(t *testing.T) *front {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check.Must(t, err)
	f := &front{TCPListener: listener.(*net.TCPListener), changed: make(chan struct{})}
	// With a backlog of 0, one waiting connection fills the queue. Linux then drops connection requests.
	raw, err := f.SyscallConn()
	check.Must(t, err)
	check.Must(t, raw.Control(func(fd uintptr) { err = syscall.Listen(int(fd), 0) }))
	check.Must(t, err)
	f.server = httptest.NewUnstartedServer(http.HandlerFunc(f.serve))
	f.server.Listener.Close()
	f.server.Listener, f.server.EnableHTTP2 = f, true
	f.server.Config.ErrorLog = log.New(io.Discard, "", 0) // It has much to say.
	f.server.StartTLS()
	t.Cleanup(func() {
		f.mend()
		f.server.CloseClientConnections()
		f.server.Close()
		for _, conn := range f.held {
			conn.Close()
		}
	})
	return f
}

func (f *front) credentials() remote.Credentials {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.server.Certificate().Raw})
	return remote.Credentials{Fingerprint: "f", Config: &rest.Config{Host: f.server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}}
}

func (f *front) serve(w http.ResponseWriter, req *http.Request) {
	for {
		now, changed := f.current()
		switch now {
		case none:
			if strings.HasPrefix(req.URL.Path, "/apis/") { // It has neither Trainer nor JobSet.
				http.NotFound(w, req)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "gitVersion": "v1.36.0",
				"metadata": {"name": "kube-system", "uid": "the-id"}}`)
			return
		case failing:
			w.WriteHeader(http.StatusInternalServerError)
			return
		case blackholed, resetting, mute, babbling:
			select {
			case <-changed:
			case <-req.Context().Done():
				return
			}
		}
	}
}

// Accept implements net.Listener.
func (f *front) Accept() (net.Conn, error) {
	for {
		f.accepting.Lock()
		if now, changed := f.current(); now == blackholed {
			f.accepting.Unlock()
			<-changed
			continue
		}
		conn, err := f.TCPListener.Accept()
		f.accepting.Unlock()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		if err != nil {
			return nil, err
		}
		now, _ := f.current()
		if now == none || now == failing {
			return conn, nil
		}
		f.taken.Add(1)
		f.mistreat(conn, now)
	}
}

// current returns the fault, and a channel that is closed when it changes.
func (f *front) current() (fault, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fault, f.changed
}

func (f *front) mistreat(conn net.Conn, now fault) {
	switch now {
	case resetting:
		_ = conn.(*net.TCPConn).SetLinger(0)
		conn.Close()
	case babbling:
		fmt.Fprint(conn, "220 mail.example.com\r\n")
		conn.Close()
	case none, blackholed, mute, failing:
		f.mu.Lock()
		defer f.mu.Unlock()
		f.held = append(f.held, conn)
	}
}

// suffer starts a fault, or changes from one to another: nothing is answered in between.
func (f *front) suffer(t *testing.T, what fault) {
	t.Helper()
	f.become(what)
	if what != blackholed {
		return
	}
	check.Must(t, f.SetDeadline(time.Unix(1, 0))) // Whoever waits for connections stops.
	f.accepting.Lock()                            // Now it has stopped, and does not take what fills the queue.
	defer f.accepting.Unlock()
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		filler, err := (&net.Dialer{}).DialContext(ctx, "tcp", f.Addr().String())
		cancel()
		if err != nil {
			return // The queue is full.
		}
		t.Cleanup(func() { filler.Close() })
	}
}

// mend ends the fault.
func (f *front) mend() {
	f.become(none)
}

func (f *front) become(what fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = what
	_ = f.SetDeadline(time.Time{})
	close(f.changed)
	f.changed = make(chan struct{})
}

// nervousFleet returns a fleet that soon reports a worker as Unreachable.
func nervousFleet(t *testing.T) *remote.Fleet {
	t.Helper()
	return newFleet(t, func(o *remote.Options) {
		o.ProbeInterval, o.ProbeTimeout, o.FailureThreshold = 100*time.Millisecond, time.Second, 2
	})
}

// TestSilence checks that an outage is silent only if nothing at all answers at the address. If something answers, the
// worker's API server may be down while its jobs run on.
func TestSilence(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		fault  fault
		silent bool
		// closing says that the open connections are closed first.
		closing bool
	}{
		"Blackholed": {reason: "Packets get lost.", fault: blackholed, silent: true},
		"Closed":     {reason: "Somebody has ended the connections: that was no loss of packets.", fault: blackholed, closing: true},
		"Reset":      {reason: "Somebody takes the connection and resets it.", fault: resetting},
		"Mute":       {reason: "The machine is there; it is its API server that hangs.", fault: mute},
		"Babbling":   {reason: "It is no TLS, but something.", fault: babbling},
		"Error":      {reason: "A machine on the way says that there is no backend.", fault: failing},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			front, fleet := newFront(t), nervousFleet(t)
			fleet.Ensure("a", front.credentials(), "")
			cluster := get(t, fleet, "a")
			awaitID(t, cluster)
			front.suffer(t, tc.fault)
			if tc.closing {
				front.server.CloseClientConnections()
			}
			before := time.Now()
			status := reach(t, cluster, remote.Unreachable)
			if tc.silent {
				if status.SilentSince.IsZero() && !status.Untried {
					t.Errorf("%s\nwhat has not been tried is taken for an answer: %+v", tc.reason, status)
				}
				if status = awaitSilence(t, cluster); status.Untried {
					t.Errorf("%s\nsilent, and not tried: %+v", tc.reason, status)
				}
				if !status.SilentSince.Equal(status.Since) || status.SilentSince.Before(before) {
					t.Errorf("%s\nsilent since %s, unreachable since %s; want the same, after %s", tc.reason, status.SilentSince, status.Since, before)
				}
				return
			}
			if tc.closing {
				gomega.NewWithT(t).Consistently(func() bool { return cluster.Status().SilentSince.IsZero() }, 2*time.Second).Should(
					gomega.BeTrue(), tc.reason)
				return
			}
			gomega.NewWithT(t).Eventually(func() bool {
				// Failed requests are sent on the open connection.
				return front.taken.Load() >= 2 || tc.fault == failing
			}, patience, 5*time.Millisecond).Should(gomega.BeTrue(), "connections are made again after contact was lost")
			gomega.NewWithT(t).Eventually(func() bool { return cluster.Status().Untried }, patience, 5*time.Millisecond).Should(
				gomega.BeFalse(), tc.reason)
			if status := cluster.Status(); !status.SilentSince.IsZero() {
				t.Errorf("%s\nwant no silence, got %+v", tc.reason, status)
			}
		})
	}
}

// TestNoSilenceFromTheBeginning checks that a closed port and an unknown host never count as silent.
func TestNoSilenceFromTheBeginning(t *testing.T) {
	closed, err := ports.Free()
	check.Must(t, err)
	fleet := nervousFleet(t)
	for name, host := range map[string]string{"refused": closed, "unknown": "worker.invalid:6443"} {
		fleet.Ensure("a", remote.Credentials{Fingerprint: name, Config: &rest.Config{Host: "https://" + host}}, "")
		if status := reach(t, get(t, fleet, "a"), remote.Unreachable); !status.SilentSince.IsZero() {
			t.Errorf("%s: silent since %s: %s", name, status.SilentSince, status.Message)
		}
	}
}

// TestSilenceAfterAPIs checks that an answer about APIs after the last probe is no sign of life in the next outage.
func TestSilenceAfterAPIs(t *testing.T) {
	t.Parallel()
	front, fleet := newFront(t), newFleet(t, func(o *remote.Options) {
		o.ProbeInterval, o.ProbeTimeout, o.FailureThreshold = 3*time.Second, time.Second, 2
	})
	fleet.Ensure("a", front.credentials(), "the-id")
	cluster := get(t, fleet, "a")
	reach(t, cluster, remote.TrainJobAPIMissing) // With the first probe it has been asked what it serves.
	front.suffer(t, blackholed)
	awaitSilence(t, cluster)
}

// TestSilenceIsBroken checks that one sign of life ends the silence of an outage, but not of the next outage.
func TestSilenceIsBroken(t *testing.T) {
	t.Parallel()
	front, fleet := newFront(t), nervousFleet(t)
	fleet.Ensure("a", front.credentials(), "")
	cluster := get(t, fleet, "a")
	awaitID(t, cluster)
	front.suffer(t, blackholed)
	first := awaitSilence(t, cluster)

	front.suffer(t, resetting)
	g := gomega.NewWithT(t)
	g.Eventually(func() bool { return cluster.Status().SilentSince.IsZero() }, patience, 5*time.Millisecond).Should(gomega.BeTrue())
	front.suffer(t, blackholed)
	message := func() string { return cluster.Status().Message }
	g.Eventually(message, patience, 5*time.Millisecond).Should(gomega.ContainSubstring("in time"))
	if status := cluster.Status(); !status.SilentSince.IsZero() || !status.Since.Equal(first.Since) {
		t.Errorf("status %+v, want the same outage as %+v, and that it is not silent", status, first)
	}

	front.mend()
	reach(t, cluster, remote.Connecting)
	if status := cluster.Status(); !status.SilentSince.IsZero() {
		t.Errorf("silent since %s although it answers", status.SilentSince)
	}
	front.suffer(t, blackholed)
	if second := awaitSilence(t, cluster); !second.SilentSince.After(first.SilentSince) {
		t.Errorf("silent since %s, want this outage, not that since %s", second.SilentSince, first.SilentSince)
	}
}

// TestSilenceWithShortRequests checks that a dial ends before its request, even if requests have less time than probes.
// If the request ended first, nobody would know that the outage is silent.
func TestSilenceWithShortRequests(t *testing.T) {
	t.Parallel()
	front, fleet := newFront(t), newFleet(t, func(o *remote.Options) {
		o.ProbeInterval, o.ProbeTimeout, o.RequestTimeout, o.FailureThreshold = 100*time.Millisecond, 30*time.Second, time.Second, 2
	})
	fleet.Ensure("a", front.credentials(), "")
	cluster := get(t, fleet, "a")
	awaitID(t, cluster)
	front.suffer(t, blackholed)
	awaitSilence(t, cluster)
}

func awaitID(t *testing.T, cluster *remote.Cluster) {
	t.Helper()
	gomega.NewWithT(t).Eventually(func() string { return string(cluster.Status().ClusterID) }, patience, 5*time.Millisecond).Should(
		gomega.Equal("the-id"))
}

func awaitSilence(t *testing.T, cluster *remote.Cluster) remote.Status {
	t.Helper()
	var status remote.Status
	gomega.NewWithT(t).Eventually(func() string {
		if status = cluster.Status(); status.SilentSince.IsZero() {
			return status.State.String() + ": " + status.Message
		}
		return "silent"
	}, patience, 5*time.Millisecond).Should(gomega.Equal("silent"))
	return status
}
