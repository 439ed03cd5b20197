// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package yard

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/utils/ptr"

	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/ports"
)

// restartDelay is how long an agent that has ended stays so.
const restartDelay = time.Second

// Agent is a worker-agent of a cluster. If its process ends, it is started again, as by the kubelet: an agent ends if
// it cannot renew its lease, for example because the API server is away.
type Agent struct {
	run    func(ctx context.Context, program string) (*clusters.Process, error)
	health string
	yard   *Yard

	mu      sync.Mutex
	program string            // what the next process runs; under mu
	process *clusters.Process // under mu
	down    bool              // under mu: it is not to be started again
}

// Process returns the latest process of the agent.
func (a *Agent) Process() *clusters.Process {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.process
}

// Down kills the agent. It stays down until Up.
func (a *Agent) Down() error {
	a.mu.Lock()
	a.down = true
	process := a.process
	a.mu.Unlock()
	return process.Kill()
}

// Up starts an agent that is down, and waits until it is ready.
func (a *Agent) Up(ctx context.Context) error {
	process, err := a.start(ctx)
	if err != nil {
		return err
	}
	return process.AwaitReady(ctx, a.health)
}

func (a *Agent) start(ctx context.Context) (*clusters.Process, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	process, err := a.run(ctx, a.program)
	if err != nil {
		return nil, err
	}
	a.process, a.down = process, false
	go a.keepRunning(process)
	return process, nil
}

// keepRunning starts the agent again when its process has ended, unless it is down.
func (a *Agent) keepRunning(process *clusters.Process) {
	select {
	case <-a.yard.stopped:
		return
	case <-process.Done():
	}
	select {
	case <-a.yard.stopped:
		return
	case <-time.After(restartDelay):
	}
	a.mu.Lock()
	replaced := a.down || a.process != process
	a.mu.Unlock()
	if !replaced {
		_, _ = a.start(context.Background()) // An error means that the cluster is stopping.
	}
}

func (y *Yard) startAgents(ctx context.Context) error {
	var wg sync.WaitGroup
	errs := make(chan error, len(y.Workers)+1)
	for _, cluster := range y.Clusters() {
		wg.Go(func() { errs <- y.startAgentsOf(ctx, cluster) })
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// startAgentsOf applies what config/worker-agent has, except the Deployment, and runs the agents as processes. They
// also answer the webhooks of config/webhook, which work when the agents are ready. On kind it applies everything.
func (y *Yard) startAgentsOf(ctx context.Context, cluster *clusters.Cluster) error {
	if clusters.OnKind() {
		return y.deployAgent(ctx, cluster)
	}
	if err := applyAgentRights(ctx, cluster, y.options.Version); err != nil {
		return err
	}
	kubeconfig, err := serviceAccountKubeconfig(ctx, cluster, cluster.Config.Host, agentNamespace, "trainyard-worker-agent")
	if err != nil {
		return err
	}
	server, err := cluster.NewWebhookServer("worker-agent")
	if err != nil {
		return err
	}
	address := net.JoinHostPort(server.Host, strconv.Itoa(server.Port))
	if cluster == y.Hub || y.options.Agents == 1 {
		err = y.startAgent(ctx, cluster, kubeconfig, address, server.CertDir)
	} else {
		err = y.startReplicas(ctx, cluster, kubeconfig, address, server.CertDir)
	}
	if err != nil {
		return err
	}
	y.mu.Lock()
	y.webhooks[cluster.Name] = server
	y.mu.Unlock()
	return ApplyWebhooks(ctx, cluster, server, y.options.Version)
}

// applyAgentRights applies what config/worker-agent of a version has, except the Deployment, the CRDs and the webhooks.
func applyAgentRights(ctx context.Context, cluster *clusters.Cluster, version Version) error {
	dir := filepath.Join(version.Root, "config/worker-agent")
	for _, file := range []string{
		"namespace", "service_account", "cluster_role", "cluster_role_binding", "role", "role_binding",
	} {
		if err := cluster.ApplyFiles(ctx, filepath.Join(dir, file+".yaml")); err != nil {
			return err
		}
	}
	return nil
}

// startReplicas starts several agents, with something in the place of the Service at their webhooks' address.
func (y *Yard) startReplicas(ctx context.Context, cluster *clusters.Cluster, kubeconfig, address, certDir string) error {
	var backends []string
	for range y.options.Agents {
		backend, err := ports.Free()
		if err != nil {
			return err
		}
		if err := y.startAgent(ctx, cluster, kubeconfig, backend, certDir); err != nil {
			return err
		}
		backends = append(backends, backend)
	}
	return y.balance(ctx, address, backends)
}

// startAgent starts an agent of a cluster that answers webhooks at the address, and waits until it is ready.
func (y *Yard) startAgent(ctx context.Context, cluster *clusters.Cluster, kubeconfig, address, certDir string) error {
	health, err := ports.Free()
	if err != nil {
		return err
	}
	args := []string{
		"--kubeconfig=" + kubeconfig, "--health-probe-bind-address=" + health, "--metrics-bind-address=0",
		"--webhook-bind-address=" + address, "--webhook-cert-dir=" + certDir,
	}
	if cluster == y.Hub {
		// No TrainJob can be created while the only agent of the hub starts again, and no test is about its election.
		args = append(args, patientLease...)
	} else {
		args = slices.Concat(args, y.options.Lease, y.options.AgentArgs)
	}
	agent := &Agent{
		yard: y, health: health, program: y.options.Version.Program("worker-agent"),
		run: func(ctx context.Context, program string) (*clusters.Process, error) {
			return cluster.Run(ctx, "worker-agent", program, args...)
		},
	}
	y.mu.Lock()
	y.Agents[cluster.Name] = append(y.Agents[cluster.Name], agent)
	y.mu.Unlock()
	return agent.Up(ctx)
}

// ApplyWebhooks applies the webhook configurations of a version, with the server in the place of the Service.
func ApplyWebhooks(ctx context.Context, cluster *clusters.Cluster, server *clusters.WebhookServer, version Version) error {
	dir := filepath.Join(version.Root, "config/webhook")
	objects, err := clusters.ReadObjects(filepath.Join(dir, "mutating.yaml"), filepath.Join(dir, "validating.yaml"))
	if err != nil {
		return err
	}
	if err := clusters.WebhookURLs(server, objects...); err != nil {
		return err
	}
	return cluster.ApplyObjects(ctx, objects...)
}

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
		container.Args = append(container.Args, patientLease...)
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
		container.Args = slices.Concat(container.Args, []string{"--v=1", "--worker-probe-interval=2s", slowWorkers}, patientLease, y.options.ManagerArgs)
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
	return process.AwaitReady(ctx, local[0])
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
