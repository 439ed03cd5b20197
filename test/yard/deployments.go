// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package yard

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/utils/ptr"

	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/ports"
)

// Images of the Deployments on kind clusters. make images builds them.
const (
	managerImage = "trainyard/manager:latest"
	agentImage   = "trainyard/worker-agent:latest"
)

// kindImages are the images that a cluster of a yard on kind needs.
func (y *Yard) kindImages(cluster string) []string {
	images := append([]string{agentImage, clusters.JobSetImage}, y.options.KindImages...)
	if cluster == HubName {
		images = append(images, managerImage)
	}
	return images
}

// deployAgent applies config/worker-agent as an admin does: the webhooks are called by their Service.
func (y *Yard) deployAgent(ctx context.Context, cluster *clusters.Cluster) error {
	return cluster.DeployKustomization(ctx, filepath.Join(y.options.Version.Root, "config/worker-agent"), func(d *appsv1.Deployment) {
		d.Spec.Replicas = ptr.To[int32](1)
		container := &d.Spec.Template.Spec.Containers[0]
		container.Args = append(container.Args, PatientLease...)
		if cluster != y.Hub {
			d.Spec.Replicas = ptr.To(int32(y.options.Agents))
			container.Args = append(container.Args, y.options.AgentArgs...)
		}
	})
}

// deployManager applies config/hub. Its CRDs are there already. The manager has the credentials of its pod.
func (y *Yard) deployManager(ctx context.Context) error {
	err := y.Hub.DeployKustomization(ctx, filepath.Join(y.options.Version.Root, "config/hub"), func(d *appsv1.Deployment) {
		d.Spec.Replicas = ptr.To[int32](1) // So that the probes and metrics below come from the manager that works.
		container := &d.Spec.Template.Spec.Containers[0]
		container.Args = slices.Concat(container.Args, []string{"--v=1", "--worker-probe-interval=2s"}, PatientLease, y.options.ManagerArgs)
	})
	if err != nil {
		return err
	}
	return y.forwardManager(ctx)
}

// forwardManager makes the ports of the manager's pod ports of this machine.
func (y *Yard) forwardManager(ctx context.Context) error {
	args := []string{"port-forward", "--namespace=" + managerNamespace, "deployment/trainyard-manager"}
	var local []string
	for _, port := range []string{"8081", "8443"} {
		address, err := ports.Free()
		if err != nil {
			return err
		}
		local = append(local, address)
		_, number, _ := strings.Cut(address, ":")
		args = append(args, number+":"+port)
	}
	y.Managers.health, y.Managers.metrics = local[0], local[1]
	process, err := y.Hub.Run(ctx, "port-forward", "kubectl", args...)
	if err != nil {
		return fmt.Errorf("forward the manager's ports: %w", err)
	}
	go y.keepForwarding(process, args)
	return AwaitReady(ctx, process, local[0])
}

// keepForwarding starts the forwarding again when it has ended: it ends with the manager's container.
func (y *Yard) keepForwarding(process *clusters.Process, args []string) {
	for {
		select {
		case <-y.stopped:
			return
		case <-process.Done():
		}
		select {
		case <-y.stopped:
			return
		case <-time.After(restartDelay):
		}
		next, err := y.Hub.Run(context.Background(), "port-forward", "kubectl", args...)
		if err != nil {
			return // The cluster is stopping.
		}
		process = next
	}
}
