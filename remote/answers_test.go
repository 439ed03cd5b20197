// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote_test

import (
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
)

// bomb is a text that begins an object, goes on for 256 MiB, and has 256 KiB when it is packed.
func bomb(t *testing.T, begin string) []byte {
	t.Helper()
	packed := &bytes.Buffer{}
	writer, err := gzip.NewWriterLevel(packed, gzip.BestCompression)
	check.Must(t, err)
	_, err = io.WriteString(writer, begin)
	check.Must(t, err)
	part := strings.Repeat("x", 1<<20)
	for range 256 {
		_, err = io.WriteString(writer, part)
		check.Must(t, err)
	}
	check.Must(t, writer.Close())
	return packed.Bytes()
}

// liar is a worker whose API server was taken over: a proxy before a real one, with answers of its own.
type liar struct {
	credentials remote.Credentials
	// answer answers a request itself, or returns false.
	answer atomic.Pointer[func(http.ResponseWriter, *http.Request) bool]
}

func newLiar(t *testing.T, server *clusters.Cluster, account remote.Credentials) *liar {
	t.Helper()
	address, err := url.Parse(server.Config.Host)
	check.Must(t, err)
	config, err := rest.TLSConfigFor(account.Config)
	check.Must(t, err)
	proxy := httputil.NewSingleHostReverseProxy(address)
	proxy.Transport, proxy.FlushInterval = &http.Transport{TLSClientConfig: config, DisableCompression: true}, -1
	l := &liar{}
	front := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if answer := l.answer.Load(); answer == nil || !(*answer)(w, req) {
			proxy.ServeHTTP(w, req)
		}
	}))
	front.EnableHTTP2 = true
	front.TLS = &tls.Config{MinVersion: tls.VersionTLS13}
	front.StartTLS()
	t.Cleanup(front.Close)
	t.Cleanup(front.CloseClientConnections)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: front.Certificate().Raw})
	l.credentials = remote.Credentials{Fingerprint: "liar", Config: &rest.Config{
		Host: front.URL, BearerToken: account.Config.BearerToken, TLSClientConfig: rest.TLSClientConfig{CAData: ca},
	}}
	return l
}

func (l *liar) lie(answer func(http.ResponseWriter, *http.Request) bool) { l.answer.Store(&answer) }

// packed answers with a gzip.
func packed(w http.ResponseWriter, kind string, data []byte) bool {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Encoding", "gzip")
	_, _ = w.Write(data)
	return true
}

// heap watches the heap until the test asks for its highest value.
func heap(t *testing.T) (highest func() uint64) {
	t.Helper()
	percent := debug.SetGCPercent(100) // The bound is about what is in use.
	t.Cleanup(func() { debug.SetGCPercent(percent) })
	stop, result := make(chan struct{}), make(chan uint64, 1)
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	go func() {
		ticker, most := time.NewTicker(5*time.Millisecond), before.HeapAlloc
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				var now runtime.MemStats
				runtime.ReadMemStats(&now)
				most = max(most, now.HeapAlloc)
			case <-stop:
				result <- most - before.HeapAlloc
				return
			}
		}
	}()
	return func() uint64 { close(stop); return <-result }
}

// TestAnswerToProbeIsBounded checks that a worker of which nothing is known cannot fill the manager's memory: a small
// answer that unpacks to 256 MiB is read to a bound, and the status says so.
func TestAnswerToProbeIsBounded(t *testing.T) {
	data := bomb(t, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"`)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		packed(w, "application/json", data)
	}))
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	highest := heap(t)
	fleet := newFleet(t)
	fleet.Ensure("a", remote.Credentials{Config: &rest.Config{
		Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca},
	}}, "")
	status := reach(t, get(t, fleet, "a"), remote.Unreachable)
	if !strings.Contains(status.Message, "the answer has more than 512 KiB") {
		t.Errorf("message %q", status.Message)
	}
	if most := highest(); most > 64<<20 {
		t.Errorf("%d KiB have raised the heap by %d MiB", len(data)>>10, most>>20)
	}
}

// TestAnswersToCachesAreBounded lets a worker that was Connected answer the caches with too much, and says the truth
// again.
func TestAnswersToCachesAreBounded(t *testing.T) {
	server := shared.Get(t)
	list := `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"`
	event := `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"`
	pods := func(req *http.Request) bool { return req.URL.Path == "/api/v1/pods" }
	cases := map[string]struct {
		reason string
		begin  string
		lies   func(*http.Request) bool
		// lists says that the worker streams no lists.
		lists   bool
		message string
	}{
		"Event": {
			"A watch has no end, but its events have.", event, pods, false,
			"watch pods: an event of the watch has more than 4 MiB",
		},
		"Page": {
			"A page has a bound, also if few objects are asked for.", list, pods, true, "list pods: the answer has more than 32 MiB",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			credentials := account(t, server, "liar-"+strings.ToLower(name), hubRules()...)
			worker := newLiar(t, server, credentials)
			data := bomb(t, tc.begin)
			worker.lie(func(w http.ResponseWriter, req *http.Request) bool {
				if !tc.lies(req) {
					return false
				}
				if tc.lists && req.URL.Query().Get("sendInitialEvents") != "" {
					w.WriteHeader(http.StatusUnprocessableEntity)
					return true
				}
				return packed(w, "application/json", data)
			})
			highest := heap(t)
			fleet := newFleet(t, func(o *remote.Options) { o.SyncTimeout = 10 * time.Second })
			fleet.Ensure("a", worker.credentials, uidOf(t, server))
			cluster := get(t, fleet, "a")
			gomega.NewWithT(t).Eventually(func() string { return cluster.Status().Message }, patience, 5*time.Millisecond).Should(
				gomega.ContainSubstring(tc.message), tc.reason)
			check.Equal(t, remote.Connecting, cluster.Status().State, "the state")
			if most := highest(); most > 256<<20 {
				t.Errorf("%d KiB have raised the heap by %d MiB", len(data)>>10, most>>20)
			}
			worker.lie(func(http.ResponseWriter, *http.Request) bool { return false })
			gomega.NewWithT(t).Eventually(func() remote.State { return cluster.Status().State }, 5*time.Minute, 50*time.Millisecond).Should(
				gomega.Equal(remote.Connected), "the worker tells the truth again")
		})
	}
}

// TestPagesBecomeSmaller checks that large objects, which users can make, keep no worker away: the caches ask for pages
// that fit. The worker streams no lists, and answers a list at a resource version in one page.
func TestPagesBecomeSmaller(t *testing.T) {
	server := shared.Get(t)
	worker := newLiar(t, server, account(t, server, "large-pages", hubRules()...))
	var limits atomic.Pointer[[]string]
	limits.Store(&[]string{})
	filler := strings.Repeat("x", 1<<20)
	worker.lie(func(w http.ResponseWriter, req *http.Request) bool {
		query := req.URL.Query()
		if query.Get("sendInitialEvents") != "" {
			w.WriteHeader(http.StatusUnprocessableEntity)
			return true
		}
		if req.URL.Path != "/api/v1/pods" || query.Get("watch") != "" {
			return false
		}
		count := 200 // A list at a resource version has one page.
		if query.Get("resourceVersion") == "" {
			_, _ = fmt.Sscan(query.Get("limit"), &count)
			count = min(count, 200)
		}
		seen := append(append([]string{}, *limits.Load()...), query.Get("limit"))
		limits.Store(&seen)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[`)
		for i := range count {
			separator := ","
			if i == 0 {
				separator = ""
			}
			fmt.Fprintf(w, `%s{"metadata":{"name":"p%d","namespace":"default","annotations":{"a":"%s"}}}`, separator, i, filler)
		}
		fmt.Fprint(w, `]}`)
		return true
	})
	fleet := newFleet(t)
	fleet.Ensure("a", worker.credentials, uidOf(t, server))
	cluster := get(t, fleet, "a")
	gomega.NewWithT(t).Eventually(func() []string { return *limits.Load() }, patience, 5*time.Millisecond).Should(
		gomega.HaveExactElements("500", "125", "31"))
	reach(t, cluster, remote.Connected)
}

// TestCallersAnswersAreBounded checks the answers to the clients of the controllers.
func TestCallersAnswersAreBounded(t *testing.T) {
	server := shared.Get(t)
	worker := newLiar(t, server, account(t, server, "callers", hubRules()...))
	fleet := newFleet(t)
	fleet.Ensure("a", worker.credentials, uidOf(t, server))
	cluster := get(t, fleet, "a")
	reach(t, cluster, remote.Connected)
	data := bomb(t, `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"`)
	worker.lie(func(w http.ResponseWriter, req *http.Request) bool {
		return req.URL.Path == "/api/v1/namespaces/default" && packed(w, "application/json", data)
	})
	reader, err := cluster.APIReader()
	check.Must(t, err)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	err = reader.Get(t.Context(), client.ObjectKeyFromObject(namespace), namespace)
	if err == nil || !strings.Contains(err.Error(), "the answer has more than 4 MiB") {
		t.Errorf("the answer of 256 MiB: %v", err)
	}
}
