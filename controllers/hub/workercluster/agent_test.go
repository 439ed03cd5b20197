// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workercluster_test

import (
	"bytes"
	"net/url"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/executionlease/protocol"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/ports"
)

func agentReady(worker *v1alpha1.WorkerCluster) metav1.Condition {
	if ready := meta.FindStatusCondition(worker.Status.Conditions, v1alpha1.WorkerClusterAgentReady); ready != nil {
		return *ready
	}
	return metav1.Condition{}
}

// The condition says what is known of the agent and what to do about it. It is written only when it changes.
func TestAgentReady(t *testing.T) {
	s := newScene(t)
	s.agent.clusterID, s.agent.longest = s.first.ID, new(v1alpha1.WorkerCluster).FenceAfter()
	s.register(t, "fenced", s.first)
	check.Equal(t, "", agentReady(s.become(t, "fenced", v1alpha1.ReasonConnected)).Type,
		"of an agent that has not been looked for")
	for _, step := range []struct {
		state  protocol.AgentState
		reason string
		advice string
	}{
		{protocol.AgentUnsupported, v1alpha1.ReasonAgentMissing, "config/worker-agent"},
		{protocol.AgentForbidden, v1alpha1.ReasonAgentMissing, "kubectl apply -k config/worker"},
		{protocol.AgentAbsent, v1alpha1.ReasonAgentMissing, "install the agent"},
		{protocol.AgentAlive, v1alpha1.ReasonAgentAnswers, "answers"},
		{protocol.AgentSilent, v1alpha1.ReasonAgentSilent, "fencing.trainyard.dev"},
	} {
		s.agent.state = step.state
		worker := s.become(t, "fenced", v1alpha1.ReasonConnected)
		ready := agentReady(worker)
		if ready.Reason != step.reason || (ready.Status == metav1.ConditionTrue) != (step.state == protocol.AgentAlive) {
			t.Errorf("%s: %s/%s, want %s", step.state, ready.Status, ready.Reason, step.reason)
		}
		if !strings.Contains(ready.Message, step.advice) || ready.ObservedGeneration != worker.Generation {
			t.Errorf("%s: %+v does not say what to do, %q, or is not of generation %d", step.state, ready, step.advice, worker.Generation)
		}
		s.Clock.Step(time.Minute)
		check.Equal(t, worker.ResourceVersion, s.become(t, "fenced", v1alpha1.ReasonConnected).ResourceVersion,
			"%s: written again although nothing has changed", step.state)
	}
}

// If the next process cannot reach the worker, it only has the condition. So the condition stays while contact is lost,
// and says for which generation's fenceAfter it holds.
func TestAgentReadyOutlastsContact(t *testing.T) {
	s := newScene(t)
	s.agent.clusterID, s.agent.state, s.agent.longest = s.first.ID, protocol.AgentAlive, new(v1alpha1.WorkerCluster).FenceAfter()
	s.register(t, "lost", s.first)
	expect := func(when string, worker *v1alpha1.WorkerCluster, bounded bool) {
		t.Helper()
		ready := agentReady(worker)
		if ready.Status != metav1.ConditionTrue || (ready.ObservedGeneration == worker.Generation) != bounded {
			t.Errorf("%s: %+v at generation %d; want True, and of this generation: %t", when, ready, worker.Generation, bounded)
		}
	}
	expect("alive", s.become(t, "lost", v1alpha1.ReasonConnected), true)
	s.change(t, "lost", func(worker *v1alpha1.WorkerCluster) {
		worker.Spec.Failover.FenceAfter = &metav1.Duration{Duration: time.Minute}
	})
	expect("shortened", s.become(t, "lost", v1alpha1.ReasonConnected), false)
	s.agent.longest = time.Minute
	expect("shortened, and the agent knows", s.become(t, "lost", v1alpha1.ReasonConnected), true)

	s.lose(t, "lost", s.first.Cluster.Config.Host)
	expect("lost", s.become(t, "lost", v1alpha1.ReasonUnreachable), true)
	// Earlier, the worker would still answer, and the condition would say Silent.
	s.agent.state = protocol.AgentSilent
	s.change(t, "lost", func(worker *v1alpha1.WorkerCluster) { worker.Spec.Unschedulable, worker.Spec.Drain = true, true })
	expect("cordoned", s.become(t, "lost", v1alpha1.ReasonUnreachable), true)
	s.change(t, "lost", func(worker *v1alpha1.WorkerCluster) {
		worker.Spec.Failover.FenceAfter = &metav1.Duration{Duration: 5 * time.Second}
	})
	expect("shortened without contact", s.become(t, "lost", v1alpha1.ReasonUnreachable), false)

	s.writeCredentials(t, "lost", s.second)
	s.become(t, "lost", v1alpha1.ReasonIdentityChanged)
	s.accept(t, "lost", s.second.ID)
	check.Equal(t, "", agentReady(s.become(t, "lost", v1alpha1.ReasonConnected)).Type,
		"of the agent of another cluster")
}

// lose makes a WorkerCluster's credentials lead to an address where no server listens.
func (s *scene) lose(t *testing.T, name, host string) {
	t.Helper()
	kubeconfig, err := s.first.Cluster.KubeconfigBytes()
	check.Must(t, err)
	closed, err := ports.Free()
	check.Must(t, err)
	server, err := url.Parse(host)
	check.Must(t, err)
	led := bytes.ReplaceAll(kubeconfig, []byte(server.Host), []byte(closed))
	if bytes.Equal(led, kubeconfig) {
		t.Fatalf("the kubeconfig does not lead to %s", server.Host)
	}
	s.WriteKubeconfig(t, name, led)
}
