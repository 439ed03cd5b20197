// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"net"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/test/ports"
	"github.com/trainyard/trainyard/test/yard"
)

// PatientLease are arguments of leader election. A leader renews its lease as often as by default. But it keeps the
// lease when a busy machine makes it late by more than the ten seconds of the default.
var PatientLease = []string{"--leader-election-lease-duration=60s", "--leader-election-renew-deadline=50s"}

// agentNamespace is where the agents have their leases.
const agentNamespace = "kubeflow-system"

// startAgents starts worker-agents with their defaults, except for PatientLease. The first answers the webhooks.
func (c *Cluster) startAgents(ctx context.Context, count int, version yard.Version) error {
	if err := c.Admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: agentNamespace}}); err != nil {
		return err
	}
	server, err := c.Cluster.NewWebhookServer("worker-agent")
	if err != nil {
		return err
	}
	webhooks := []string{
		"--webhook-bind-address=" + net.JoinHostPort(server.Host, strconv.Itoa(server.Port)), "--webhook-cert-dir=" + server.CertDir,
	}
	for range count {
		health, err := ports.Free()
		if err != nil {
			return err
		}
		args := slices.Concat([]string{
			"--kubeconfig=" + c.Cluster.KubeconfigPath, "--health-probe-bind-address=" + health, "--metrics-bind-address=0",
		}, PatientLease, webhooks)
		webhooks = nil
		process, err := c.Cluster.Run(ctx, "worker-agent", version.Program("worker-agent"), args...)
		if err != nil {
			return err
		}
		if err := yard.AwaitReady(ctx, process, health); err != nil {
			return err
		}
		c.Agents = append(c.Agents, process)
	}
	return yard.ApplyWebhooks(ctx, c.Cluster, server, version)
}
