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
	"github.com/trainyard/trainyard/executionlease/protocol"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/stage"
)

// TestRightsThatAWorkerRefuses: a worker that was joined with config/worker alone is Ready, and its message says what to do
// for logs and, if it has no agent, to look for what jobs name. The message is as of any worker when that was done.
func TestRightsThatAWorkerRefuses(t *testing.T) {
	s := newScene(t, func(o *remote.Options) {
		o.Rights, o.ProbeInterval = []remote.Right{remote.ReadLogs, remote.LookUp}, time.Second
	})
	const config = "../../../config/"
	check.Must(t, s.first.Cluster.ApplyKustomization(t.Context(), config+"worker"))
	s.agent.clusterID, s.agent.state = s.first.ID, protocol.AgentAbsent
	account := types.NamespacedName{Namespace: stage.SystemNamespace, Name: "trainyard-hub"}
	kubeconfig, err := s.first.Cluster.ServiceAccountKubeconfig(t.Context(), account, time.Hour)
	check.Must(t, err)
	s.WriteKubeconfig(t, "older", kubeconfig)
	s.Register(t, "older", stage.FromSecret)
	t.Cleanup(func() { s.unregister(t, "older") })

	const ofLogs = `; it does not let the hub read logs of pods, so the gateway shows none: run "kubectl trainyard join older" again, ` +
		`or apply config/worker-logs there`
	const ofLookUp = `; it does not let the hub look for what jobs name, so jobs that lack a Secret hang there: ` +
		`run "kubectl trainyard join older --lookup" again, or apply config/worker-lookup there`
	says := func(what string, matches gomega.OmegaMatcher) {
		t.Helper()
		check.Eventually(t, what, func(g gomega.Gomega) { g.Expect(s.readiness(t, "older")).To(matches) })
	}
	grants := func(part string) {
		t.Helper()
		objects, err := clusters.ReadObjects(config + part)
		check.Must(t, err)
		for _, object := range objects {
			s.first.Create(t, object)
		}
	}
	says("the advice about both", gomega.HaveSuffix(ofLogs+ofLookUp))
	s.agent.state = protocol.AgentAlive
	says("no advice to look where the agent looks", gomega.HaveSuffix(ofLogs))
	grants("worker-logs")
	says("no advice about logs", gomega.Not(gomega.ContainSubstring("logs")))
	s.agent.state = protocol.AgentUnsupported
	says("the advice to look", gomega.HaveSuffix(ofLookUp))
	grants("worker-lookup")
	says("the message as of any worker", gomega.Not(gomega.ContainSubstring("does not let")))
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
