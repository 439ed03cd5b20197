// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package credentials_test

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onsi/gomega"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/credentials"
	"github.com/trainyard/trainyard/kubeconfigs"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/stage"
)

// token is a token as an API server makes it, with times of the test's choice and so many bytes more.
type token struct {
	issued  time.Time
	life    time.Duration
	account string
	more    int
}

func (t token) String() string {
	payload, _ := json.Marshal(map[string]any{
		"iat": t.issued.Unix(), "exp": t.issued.Add(t.life).Unix(), "more": strings.Repeat("x", t.more),
		"kubernetes.io": map[string]any{"namespace": namespace, "serviceaccount": map[string]any{"name": t.account}},
	})
	return "e30." + base64.RawURLEncoding.EncodeToString(payload) + ".c2ln"
}

// taken is a worker that was taken over: it answers as the test says.
type taken struct {
	*httptest.Server
	requests atomic.Int32
}

// newTaken starts a worker whose answer to a request for a token is that of a function.
func newTaken(t *testing.T, answer func(http.ResponseWriter, *http.Request)) *taken {
	t.Helper()
	worker := &taken{}
	worker.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(req.URL.Path, "/token") {
			worker.requests.Add(1)
			answer(w, req)
			return
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}`)
	}))
	t.Cleanup(worker.Close)
	return worker
}

func give(w http.ResponseWriter, token token) {
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1","status":{"token":%q}}`, token.String())
}

// useWorker points the scene's Secret at another worker, with a token.
func (s *scene) useWorker(t *testing.T, address string, ca []byte, with token) {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["w"] = &clientcmdapi.Cluster{Server: address, CertificateAuthorityData: ca}
	config.AuthInfos["w"] = &clientcmdapi.AuthInfo{Token: with.String()}
	config.Contexts["w"] = &clientcmdapi.Context{Cluster: "w", AuthInfo: "w"}
	config.CurrentContext = "w"
	data, err := clientcmd.Write(*config)
	check.Must(t, err)
	check.Must(t, s.Hub.Admin.Update(t.Context(), withData(s.secret(t), map[string][]byte{kubeconfigs.SecretKey: data})))
}

func (w *taken) ca() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.Certificate().Raw})
}

// TestTokensThatAreNotTaken lets a worker answer a renewal with what must not take the place of a token that works.
func TestTokensThatAreNotTaken(t *testing.T) {
	elsewhere := atomic.Int32{}
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	t.Cleanup(other.Close)
	now := time.Now()
	cases := map[string]struct {
		reason  string
		answer  func(http.ResponseWriter, *http.Request)
		message string
	}{
		"Redirect": {
			"The worker would choose who gets the token.",
			func(w http.ResponseWriter, req *http.Request) {
				http.Redirect(w, req, other.URL, http.StatusTemporaryRedirect)
			},
			"redirects are not followed",
		},
		"DueAtOnce": {
			"It would be renewed again and again.",
			func(w http.ResponseWriter, _ *http.Request) { give(w, token{now, 2 * time.Second, account, 0}) },
			"and must live for at least 2m30s from now on",
		},
		"Over": {
			"It would take the place of a token that works.",
			func(w http.ResponseWriter, _ *http.Request) { give(w, token{now.Add(-100 * day), day, account, 0}) },
			"and must live for at least 2m30s from now on",
		},
		"Large": {
			"It would be written into the Secret, and sent with each request.",
			func(w http.ResponseWriter, _ *http.Request) { give(w, token{now, day, account, 200 << 10}) },
			"and may have 16384",
		},
		"Endless": {
			"It would fill the manager's memory.",
			func(w http.ResponseWriter, _ *http.Request) { give(w, token{now, day, account, 900 << 10}) },
			"the answer has more than 512 KiB",
		},
		"Account": {
			"It would be the last one: the right to renew names one account.",
			func(w http.ResponseWriter, _ *http.Request) { give(w, token{now, day, "other", 0}) },
			"it is of ServiceAccount trainyard-system/other, and must be of trainyard-system/trainyard-hub",
		},
		"Words": {
			"A condition has room for 32 KiB.",
			func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusForbidden)
				fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":%q}`,
					strings.Repeat("no ", 20<<10))
			},
			"no no no",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, managed)
			worker := newTaken(t, tc.answer)
			s.useWorker(t, worker.URL, worker.ca(), token{now, day, account, 0})
			before := s.secret(t)
			s.Clock.SetTime(now.Add(20 * time.Hour))
			again := s.reconcile(t).RequeueAfter
			if reason, message := s.expiring(t); reason != v1alpha1.ReasonRenewalFailed || !strings.Contains(message, tc.message) {
				t.Errorf("%s\nthe worker says %q: %q", tc.reason, reason, message)
			}
			if again < time.Minute || again > 10*time.Minute {
				t.Errorf("%s\nthe next try is after %s", tc.reason, again)
			}
			check.Equal(t, before.ResourceVersion, s.secret(t).ResourceVersion, "%s\nthe Secret was written", tc.reason)
		})
	}
	if n := elsewhere.Load(); n > 0 {
		t.Errorf("%d requests were sent to the address of a redirect", n)
	}
}

// TestWorkerWithAnotherClock checks that the life of a token is counted from the hub's request: a worker whose clock is
// behind, or that says so, is not asked again at once.
func TestWorkerWithAnotherClock(t *testing.T) {
	s := newScene(t, managed)
	now := time.Now()
	worker := newTaken(t, func(w http.ResponseWriter, _ *http.Request) {
		give(w, token{now.Add(-23 * time.Hour), day, account, 0})
	})
	s.useWorker(t, worker.URL, worker.ca(), token{now.Add(-12 * time.Hour), day, account, 0})
	s.reconcile(t)
	if reason, message := s.expiring(t); reason != "" {
		t.Fatalf("the worker says %s: %s", reason, message)
	}
	for range 3 {
		if again := s.reconcile(t).RequeueAfter; again < 23*time.Minute || again > 30*time.Minute {
			t.Errorf("the new token is renewed after %s", again)
		}
	}
	if n := worker.requests.Load(); n != 1 {
		t.Errorf("the worker was asked for %d tokens", n)
	}
	// A token of somebody else's making counts from its own beginning.
	s.useWorker(t, worker.URL, worker.ca(), token{now, 2 * day, account, 0})
	if again := s.reconcile(t).RequeueAfter; again < 19*time.Hour || again > 24*time.Hour {
		t.Errorf("the token of an admin is renewed after %s", again)
	}
}

// TestHangingWorkersDelayNobody runs the controller with workers that accept connections and say nothing.
func TestHangingWorkersDelayNobody(t *testing.T) {
	s := newScene(t, managed)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	check.Must(t, err)
	t.Cleanup(func() { check.Must(t, listener.Close()) })
	now := time.Now()
	worker := newTaken(t, func(w http.ResponseWriter, _ *http.Request) { give(w, token{now, day, account, 0}) })
	due := token{now.Add(-12 * time.Hour), day, account, 0}
	var names []string
	for i := range 20 {
		names = append(names, fmt.Sprintf("hanging-%d", i))
	}
	data := s.secret(t).Data
	s.useWorker(t, "https://"+listener.Addr().String(), worker.ca(), due)
	hanging := s.secret(t).Data
	check.Must(t, s.Hub.Admin.Update(t.Context(), withData(s.secret(t), data)))
	for _, name := range names {
		s.register(t, name, managed, hanging)
	}
	mgr := s.NewManager(t, s.Hub.Cluster.Config)
	loader := &kubeconfigs.Loader{Reader: mgr.GetClient(), Namespace: namespace, Clock: s.Clock}
	options := credentials.Options{Hub: mgr.GetClient(), Loader: loader, Clock: s.Clock, Timeout: 2 * patience}
	check.Must(t, credentials.NewReconciler(options).Add(mgr))
	stage.RunFor(t, mgr)
	check.Must(t, listenerIsBusy(listener, len(names)/4))
	s.useWorker(t, worker.URL, worker.ca(), due)
	gomega.NewWithT(t).Eventually(worker.requests.Load, patience, 10*time.Millisecond).Should(gomega.BeNumerically("==", 1))
}

// listenerIsBusy accepts connections and keeps them open.
func listenerIsBusy(listener net.Listener, connections int) error {
	for range connections {
		if _, err := listener.Accept(); err != nil {
			return err
		}
	}
	return nil
}
