// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workercluster_test

import (
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/stage"
)

// TestLogsOfAnOlderWorker: a worker that was joined with config/worker, before there was config/worker-logs, is Ready, and
// its message says what to do for logs. The message is as of any worker when that was done.
func TestLogsOfAnOlderWorker(t *testing.T) {
	s := newScene(t, func(o *remote.Options) { o.Logs = true })
	const config = "../../../config/"
	check.Must(t, s.first.Cluster.ApplyKustomization(t.Context(), config+"worker"))
	account := types.NamespacedName{Namespace: stage.SystemNamespace, Name: "trainyard-hub"}
	kubeconfig, err := s.first.Cluster.ServiceAccountKubeconfig(t.Context(), account, time.Hour)
	check.Must(t, err)
	s.WriteKubeconfig(t, "older", kubeconfig)
	s.Register(t, "older", stage.FromSecret)
	t.Cleanup(func() { s.unregister(t, "older") })

	const advice = `; it does not let the hub read logs of pods, so the gateway shows none: run "kubectl trainyard join older" again, ` +
		`or apply config/worker-logs there`
	check.Eventually(t, "the advice", func(g gomega.Gomega) {
		g.Expect(s.readiness(t, "older")).To(gomega.HaveSuffix(advice))
	})
	logs, err := clusters.ReadObjects(config + "worker-logs")
	check.Must(t, err)
	for _, object := range logs {
		s.first.Create(t, object)
	}
	check.Eventually(t, "the message as of any worker", func(g gomega.Gomega) {
		g.Expect(s.readiness(t, "older")).NotTo(gomega.ContainSubstring("logs"))
	})
}

// readiness is the message of a worker that takes jobs.
func (s *scene) readiness(t *testing.T, name string) string {
	t.Helper()
	worker, _ := s.reconcile(t, name)
	if worker.Status.ReadyReason() != v1alpha1.ReasonConnected {
		return "not connected"
	}
	message := meta.FindStatusCondition(worker.Status.Conditions, v1alpha1.WorkerClusterReady).Message
	if !strings.HasPrefix(message, "the worker answers and has the TrainJob and JobSet APIs") {
		t.Errorf("the message is %q", message)
	}
	return message
}
