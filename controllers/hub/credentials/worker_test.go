// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package credentials_test

import (
	"context"
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
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/credentials"
	"github.com/trainyard/trainyard/kubeconfigs"
	"github.com/trainyard/trainyard/test/check"
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
func (s *scene) useWorker(address string, ca []byte, with token) {
	s.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["w"] = &clientcmdapi.Cluster{Server: address, CertificateAuthorityData: ca}
	config.AuthInfos["w"] = &clientcmdapi.AuthInfo{Token: with.String()}
	config.Contexts["w"] = &clientcmdapi.Context{Cluster: "w", AuthInfo: "w"}
	config.CurrentContext = "w"
	data, err := clientcmd.Write(*config)
	check.Must(s.T, err)
	check.Must(s.T, s.Hub.Admin.Update(s.Context(), withData(s.secret(), map[string][]byte{kubeconfigs.SecretKey: data})))
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
			s.useWorker(worker.URL, worker.ca(), token{now, day, account, 0})
			before := s.secret()
			s.clock.SetTime(now.Add(20 * time.Hour))
			again := s.reconcile().RequeueAfter
			if reason, message := s.expiring(); reason != v1alpha1.ReasonRenewalFailed || !strings.Contains(message, tc.message) {
				t.Errorf("%s\nthe worker says %q: %q", tc.reason, reason, message)
			}
			if again < time.Minute || again > 10*time.Minute {
				t.Errorf("%s\nthe next try is after %s", tc.reason, again)
			}
			if after := s.secret(); after.ResourceVersion != before.ResourceVersion {
				t.Errorf("%s\nthe Secret was written", tc.reason)
			}
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
	s.useWorker(worker.URL, worker.ca(), token{now.Add(-12 * time.Hour), day, account, 0})
	s.reconcile()
	if reason, message := s.expiring(); reason != "" {
		t.Fatalf("the worker says %s: %s", reason, message)
	}
	for range 3 {
		if again := s.reconcile().RequeueAfter; again < 23*time.Minute || again > 30*time.Minute {
			t.Errorf("the new token is renewed after %s", again)
		}
	}
	if n := worker.requests.Load(); n != 1 {
		t.Errorf("the worker was asked for %d tokens", n)
	}
	// A token of somebody else's making counts from its own beginning.
	s.useWorker(worker.URL, worker.ca(), token{now, 2 * day, account, 0})
	if again := s.reconcile().RequeueAfter; again < 19*time.Hour || again > 24*time.Hour {
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
	data := s.secret().Data
	s.useWorker("https://"+listener.Addr().String(), worker.ca(), due)
	hanging := s.secret().Data
	check.Must(t, s.Hub.Admin.Update(t.Context(), withData(s.secret(), data)))
	for _, name := range names {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: managed}, Data: hanging}
		check.Must(t, s.Hub.Admin.Create(t.Context(), secret))
		of := &v1alpha1.WorkerCluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.WorkerClusterSpec{
			Connection: v1alpha1.Connection{KubeconfigSecretRef: &v1alpha1.SecretReference{Name: name}},
		}}
		check.Must(t, s.Hub.Admin.Create(t.Context(), of))
		t.Cleanup(func() {
			check.Must(t, client.IgnoreNotFound(s.Hub.Admin.Delete(context.Background(), of)))
			check.Must(t, client.IgnoreNotFound(s.Hub.Admin.Delete(context.Background(), secret)))
		})
	}
	mgr, err := ctrl.NewManager(s.Hub.Cluster.Config, ctrl.Options{
		Scheme: s.Hub.Admin.Scheme(), Metrics: server.Options{BindAddress: "0"},
	})
	check.Must(t, err)
	loader := &kubeconfigs.Loader{Reader: mgr.GetClient(), Namespace: namespace, Clock: s.clock}
	options := credentials.Options{Hub: mgr.GetClient(), Loader: loader, Clock: s.clock, Timeout: 2 * patience}
	check.Must(t, credentials.NewReconciler(options).Add(mgr))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() { cancel(); check.Must(t, <-ended) })
	check.Must(t, listenerIsBusy(listener, len(names)/4))
	s.useWorker(worker.URL, worker.ca(), due)
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
