// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror_test

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/copies"
	"github.com/trainyard/trainyard/test/check"
)

// hang makes the worker ask a webhook about TrainJobs of the job's namespace. The webhook never answers. called is
// called for each request to it.
func (s *scene) hang(t *testing.T, failurePolicy string, seconds int, called func()) {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		called()
		<-req.Context().Done()
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	config := fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: %[1]s}
webhooks:
- name: hangs.example.com
  failurePolicy: %[2]s
  timeoutSeconds: %[3]d
  sideEffects: None
  admissionReviewVersions: [v1]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}
  rules: [{apiGroups: [trainer.kubeflow.org], apiVersions: ["*"], operations: [CREATE], resources: [trainjobs]}]
  clientConfig: {url: "%[4]s", caBundle: %[5]s}
`, s.key.Namespace, failurePolicy, seconds, server.URL, base64.StdEncoding.EncodeToString(ca))
	must(t, s.worker.Cluster.Apply(t.Context(), config))
}

// If a webhook hangs and may fail, the worker creates the copy when the webhook's time is over. For other requests the
// manager does not wait that long.
func TestWebhookThatHangsAndMayFail(t *testing.T) {
	s := newScene(t, setting{})
	asked := make(chan struct{}, 10)
	s.hang(t, "Ignore", 12, func() { asked <- struct{}{} })
	s.awaitWebhook(t, asked)
	s.reconcile(t)
	if s.copy(t) == nil {
		t.Error("there is no copy")
	}
	if n := len(asked); n != 1 {
		t.Errorf("the webhook was asked about %d creations, want 1", n)
	}
}

// awaitWebhook waits until the worker asks its webhook. It does not wait for the answers to the creations that it
// tries.
func (s *scene) awaitWebhook(t *testing.T, asked chan struct{}) {
	t.Helper()
	eventually(t, "webhook of the worker", func(g gomega.Gomega) {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		probe := s.job(t).DeepCopy()
		probe.SetResourceVersion("")
		probe.SetUID("")
		g.Expect(s.worker.Admin.Create(ctx, probe, client.DryRunAll)).NotTo(gomega.Succeed())
		g.Expect(asked).To(gomega.Receive())
	})
	for len(asked) > 0 {
		<-asked
	}
}

// A webhook that may not fail fails each creation slowly. Their time counts, not only their number, and the next
// worker is tried.
func TestWebhookThatHangsAndMayNotFail(t *testing.T) {
	s := newScene(t, setting{})
	s.Clock.Step(time.Minute) // The hub's caches are believed.
	asked := make(chan struct{}, 100)
	s.hang(t, "Fail", 1, func() {
		asked <- struct{}{}
		s.Clock.Step(30 * time.Second) // As long as a webhook can take.
	})
	s.awaitWebhook(t, asked)
	for range 3 {
		_, _ = s.mirror.Reconcile(t.Context(), reconcile.Request{NamespacedName: s.key}) // Its errors are what the worker said.
	}
	s.expectEnd(t, v1alpha1.OutcomeRejected, "hangs.example.com")
	if n := len(asked); n != 2 {
		t.Errorf("the webhook was asked about %d creations, want 2", n)
	}
}

// slowWorker takes a minute for each creation of a TrainJob, by the clock of the test, and says then that it has run
// out of time.
type slowWorker struct {
	copies.Connection
	step    func()
	asked   atomic.Int32
	arrives bool
}

// Client implements copies.Connection.
func (w *slowWorker) Client() (client.Client, error) {
	c, err := w.Connection.Client()
	if err != nil {
		return nil, err
	}
	return interceptor.NewClient(watchless{c}, interceptor.Funcs{
		Create: func(ctx context.Context, _ client.WithWatch, object client.Object, options ...client.CreateOption) error {
			w.asked.Add(1)
			w.step()
			if w.arrives {
				if err := c.Create(ctx, object, options...); err != nil {
					return err
				}
			}
			return apierrors.NewTimeoutError("request did not complete within the allotted timeout", 0)
		},
	}), nil
}

// A worker that answers no creation is given up when the last creation cannot arrive any more. No other creation is
// sent before that.
func TestCreationsThatHang(t *testing.T) {
	for name, arrives := range map[string]bool{"Lost": false, "Arrives": true} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, setting{})
			w := &slowWorker{Connection: s.worker.Connection, step: func() { s.Clock.Step(time.Minute) }, arrives: arrives}
			s.options.Worker = w
			s.restart()
			s.Clock.Step(time.Minute) // The hub's caches are believed.
			for range 7 {
				result := s.reconcile(t)
				if s.dispatch(t).AttemptEnded() {
					t.Fatal("the attempt has ended though its creation may still arrive")
				}
				if result.RequeueAfter <= 0 && !arrives {
					t.Fatal("nobody looks again")
				}
				s.Clock.Step(10 * time.Second)
			}
			s.reconcile(t)
			check.Equal(t, 1, w.asked.Load(), "creations that were sent")
			if arrives {
				if s.copy(t) == nil || s.dispatch(t).AttemptEnded() {
					t.Error("the copy that is there is not the attempt's")
				}
				return
			}
			s.expectEnd(t, v1alpha1.OutcomeRejected, "check whether an admission webhook hangs there")
			if words := s.dispatch(t).Status.History[0].Message; !strings.Contains(words, "1m0s") {
				t.Errorf("the words are %q, want how long it took in them", words)
			}
		})
	}
}
