// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package yard

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/test/clusters"
)

const (
	managerNamespace = "trainyard-system"
	agentNamespace   = "kubeflow-system"
	// restartDelay is how long a process that has ended stays so.
	restartDelay = time.Second
	// readyPoll is how often a process that starts is asked whether it is ready.
	readyPoll = 50 * time.Millisecond
	// tokenLife is longer than any test and most demos.
	tokenLife = 24 * time.Hour
)

// fastLease makes a replacement for a killed process take over in seconds.
var fastLease = []string{
	"--leader-election-lease-duration=3s", "--leader-election-renew-deadline=2s", "--leader-election-retry-period=500ms",
}

// installHub applies what config/hub has but the CRDs, which are there, and the Deployment, whose place the local process takes.
func (y *Yard) installHub(ctx context.Context) error {
	for _, part := range []string{"config/namespace", "config/rbac"} {
		if _, err := y.Hub.Kubectl(ctx, "apply", "--server-side", "-k", filepath.Join(y.root, part)); err != nil {
			return err
		}
	}
	kubeconfig, err := serviceAccountKubeconfig(ctx, y.Hub, managerNamespace, "trainyard-manager")
	if err != nil {
		return err
	}
	y.managerKubeconfig = kubeconfig
	return nil
}

// StartManager starts a manager, beside those that run.
func (y *Yard) StartManager(ctx context.Context) error {
	health, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	metrics, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	y.ManagerHealth, y.ManagerMetrics = "http://"+health, "http://"+metrics+"/metrics"
	args := slices.Concat([]string{
		"--kubeconfig=" + y.managerKubeconfig, "--namespace=" + managerNamespace, "--v=1",
		"--health-probe-bind-address=" + health, "--metrics-bind-address=" + metrics, "--worker-probe-interval=2s",
	}, fastLease)
	process, err := y.Hub.Run(ctx, "manager", "manager", args...)
	if err != nil {
		return err
	}
	y.Manager = process
	return nil
}

// freeAddress is one that nobody listens on now.
func freeAddress(ctx context.Context) (string, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	return listener.Addr().String(), listener.Close()
}

func (y *Yard) startAgents(ctx context.Context) error {
	for _, cluster := range y.Clusters() {
		if err := y.startAgent(ctx, cluster); err != nil {
			return err
		}
	}
	return nil
}

// startAgent applies what config/worker-agent has but the Deployment, and runs the agent as a process, which also answers the
// webhooks of config/webhook. They are there when it is ready.
func (y *Yard) startAgent(ctx context.Context, cluster *clusters.Cluster) error {
	dir := filepath.Join(y.root, "config/worker-agent")
	for _, file := range []string{
		"namespace", "service_account", "cluster_role", "cluster_role_binding", "role", "role_binding",
	} {
		if err := cluster.ApplyFiles(ctx, filepath.Join(dir, file+".yaml")); err != nil {
			return err
		}
	}
	kubeconfig, err := serviceAccountKubeconfig(ctx, cluster, agentNamespace, "trainyard-worker-agent")
	if err != nil {
		return err
	}
	server, err := cluster.NewWebhookServer("worker-agent")
	if err != nil {
		return err
	}
	health, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	args := slices.Concat([]string{
		"--kubeconfig=" + kubeconfig, "--health-probe-bind-address=" + health, "--metrics-bind-address=0",
		"--webhook-bind-address=" + net.JoinHostPort(server.Host, strconv.Itoa(server.Port)), "--webhook-cert-dir=" + server.CertDir,
	}, fastLease)
	process, err := cluster.Run(ctx, "worker-agent", "worker-agent", args...)
	if err != nil {
		return err
	}
	go y.keepRunning(process, func() (*clusters.Process, error) {
		return cluster.Run(context.Background(), "worker-agent", "worker-agent", args...)
	})
	if err := awaitReady(ctx, process, health); err != nil {
		return err
	}
	return y.applyWebhooks(ctx, cluster, server)
}

// applyWebhooks applies the webhook configurations, with the server in the place of the Service.
func (y *Yard) applyWebhooks(ctx context.Context, cluster *clusters.Cluster, server *clusters.WebhookServer) error {
	dir := filepath.Join(y.root, "config/webhook")
	objects, err := clusters.ReadObjects(filepath.Join(dir, "mutating.yaml"), filepath.Join(dir, "validating.yaml"))
	if err != nil {
		return err
	}
	if err := clusters.WebhookURLs(server, objects...); err != nil {
		return err
	}
	return cluster.ApplyObjects(ctx, objects...)
}

// awaitReady returns when a process answers readiness probes with success.
func awaitReady(ctx context.Context, process *clusters.Process, address string) error {
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", http.NoBody)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s to be ready, see %s: %w", process.Name, process.LogPath, ctx.Err())
		case <-process.Done():
			return fmt.Errorf("%s has ended before it was ready, see %s", process.Name, process.LogPath)
		case <-time.After(readyPoll):
		}
	}
}

// keepRunning starts a process again when it has ended, as the kubelet would: an agent that cannot renew its lease, because the API
// server is away, ends.
func (y *Yard) keepRunning(process *clusters.Process, start func() (*clusters.Process, error)) {
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
		again, err := start()
		if err != nil {
			return // The cluster is stopping.
		}
		process = again
	}
}

// Register registers a worker as an admin does, with the scripts in hack/, and waits until it is Ready.
func (y *Yard) Register(ctx context.Context, worker Worker) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-y.Manager.Done():
			cancel(fmt.Errorf("the manager has ended, see %s", y.Manager.LogPath))
		case <-stop:
		}
	}()
	kubeconfig, err := y.Script(ctx, nil, "worker-kubeconfig.sh", "--kubeconfig", y.Workers[worker.Name].KubeconfigPath)
	if err != nil {
		return err
	}
	args := []string{worker.Name, "--hub-kubeconfig", y.Hub.KubeconfigPath, "--wait", "120s"}
	for key, value := range worker.Labels {
		args = append(args, "--label", key+"="+value)
	}
	_, err = y.Script(ctx, kubeconfig, "register-worker.sh", args...)
	return err
}

// WorkerKubeconfig is what hack/worker-kubeconfig.sh prints for a cluster.
func (y *Yard) WorkerKubeconfig(ctx context.Context, cluster *clusters.Cluster) ([]byte, error) {
	return y.Script(ctx, nil, "worker-kubeconfig.sh", "--kubeconfig", cluster.KubeconfigPath)
}

// Script runs a script of hack/ and returns its standard output. The error holds its standard error.
func (y *Yard) Script(ctx context.Context, input []byte, name string, args ...string) ([]byte, error) {
	command := exec.CommandContext(ctx, filepath.Join(y.root, "hack", name), args...)
	command.Stdin = bytes.NewReader(input)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	output, err := command.Output()
	if cause := context.Cause(ctx); cause != nil {
		return nil, fmt.Errorf("hack/%s: %w", name, cause)
	}
	if err != nil {
		return nil, fmt.Errorf("hack/%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return output, nil
}

// serviceAccountKubeconfig writes a kubeconfig of a service account into the cluster's folder and returns its path.
func serviceAccountKubeconfig(ctx context.Context, cluster *clusters.Cluster, namespace, name string) (string, error) {
	kubeconfig, err := cluster.ServiceAccountKubeconfig(ctx, types.NamespacedName{Namespace: namespace, Name: name}, tokenLife)
	if err != nil {
		return "", err
	}
	path := filepath.Join(cluster.Dir, name+".kubeconfig")
	if err := os.WriteFile(path, kubeconfig, 0o600); err != nil {
		return "", fmt.Errorf("write kubeconfig of ServiceAccount %q: %w", name, err)
	}
	return path, nil
}
