// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package yard

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/ports"
)

const (
	managerNamespace = "trainyard-system"
	agentNamespace   = "kubeflow-system"
	// readyPoll is how often a process that starts is asked whether it is ready.
	readyPoll = 50 * time.Millisecond
	// tokenLife is longer than any test and most demos.
	tokenLife = 24 * time.Hour
)

// fastLease makes a replacement for a killed process take over in seconds.
var fastLease = []string{
	"--leader-election-lease-duration=3s", "--leader-election-renew-deadline=2s", "--leader-election-retry-period=500ms",
}

// installHub applies what config/hub has but the CRDs, which are there, and the Deployment, whose place the local
// process takes.
func (y *Yard) installHub(ctx context.Context) error {
	for _, part := range []string{"config/namespace", "config/rbac"} {
		if _, err := y.Hub.Kubectl(ctx, "apply", "--server-side", "-k", filepath.Join(y.root, part)); err != nil {
			return err
		}
	}
	server, err := y.options.Reach(y.Hub)
	if err != nil {
		return err
	}
	y.managerKubeconfig, err = serviceAccountKubeconfig(ctx, y.Hub, server, managerNamespace, "trainyard-manager")
	return err
}

// StartManager starts another manager. The arguments override the arguments in the options.
func (y *Yard) StartManager(ctx context.Context, more ...string) error {
	health, err := ports.Free(ctx)
	if err != nil {
		return err
	}
	metrics, err := ports.Free(ctx)
	if err != nil {
		return err
	}
	y.ManagerHealth, y.ManagerMetrics = "http://"+health, "http://"+metrics+"/metrics"
	args := slices.Concat([]string{
		"--kubeconfig=" + y.managerKubeconfig, "--namespace=" + managerNamespace, "--v=1",
		"--health-probe-bind-address=" + health, "--metrics-bind-address=" + metrics, "--worker-probe-interval=2s",
	}, fastLease, y.options.ManagerArgs, more)
	process, err := y.Hub.Run(ctx, "manager", "manager", args...)
	if err != nil {
		return err
	}
	y.Manager = process
	return nil
}

// awaitReady returns when a process answers readiness probes with success.
func awaitReady(ctx context.Context, process *clusters.Process, address string) error {
	for {
		if ports.Ready(ctx, address) == nil {
			return nil
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

// Register registers a worker as an admin does, with the scripts in hack/. It waits until the worker is Ready.
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
	kubeconfig, err := y.WorkerKubeconfig(ctx, y.Workers[worker.Name])
	if err != nil {
		return err
	}
	if err := y.prepare(ctx, worker); err != nil {
		return err
	}
	args := []string{worker.Name, "--hub-kubeconfig", y.Hub.KubeconfigPath, "--wait", "120s"}
	for key, value := range worker.Labels {
		args = append(args, "--label", key+"="+value)
	}
	_, err = y.Script(ctx, kubeconfig, "register-worker.sh", args...)
	return err
}

// prepare creates the WorkerCluster of a worker that has a failover of its own.
func (y *Yard) prepare(ctx context.Context, worker Worker) error {
	if worker.Failover == (v1alpha1.WorkerFailover{}) {
		return nil
	}
	hub, err := NewClient(y.Hub)
	if err != nil {
		return err
	}
	object := &v1alpha1.WorkerCluster{ObjectMeta: metav1.ObjectMeta{Name: worker.Name}, Spec: v1alpha1.WorkerClusterSpec{
		Connection: v1alpha1.Connection{KubeconfigSecretRef: &v1alpha1.SecretReference{Name: worker.Name + "-kubeconfig"}},
		Failover:   worker.Failover,
	}}
	if err := client.IgnoreAlreadyExists(hub.Create(ctx, object)); err != nil {
		return fmt.Errorf("create WorkerCluster %q: %w", worker.Name, err)
	}
	return nil
}

// WorkerKubeconfig returns the output of hack/worker-kubeconfig.sh for a cluster.
func (y *Yard) WorkerKubeconfig(ctx context.Context, cluster *clusters.Cluster) ([]byte, error) {
	server, err := y.options.Reach(cluster)
	if err != nil {
		return nil, err
	}
	return y.Script(ctx, nil, "worker-kubeconfig.sh", "--kubeconfig", cluster.KubeconfigPath, "--server", server)
}

// Script runs a script of hack/ and returns its standard output. The error has its standard error.
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

// serviceAccountKubeconfig writes a kubeconfig of a service account, with the server's address, into the cluster's
// folder and returns its path.
func serviceAccountKubeconfig(ctx context.Context, cluster *clusters.Cluster, server, namespace, name string) (string, error) {
	kubeconfig, err := cluster.ServiceAccountKubeconfig(ctx, types.NamespacedName{Namespace: namespace, Name: name}, tokenLife)
	if err != nil {
		return "", err
	}
	kubeconfig = bytes.Replace(kubeconfig, []byte(cluster.Config.Host), []byte(server), 1)
	path := filepath.Join(cluster.Dir, name+".kubeconfig")
	if err := os.WriteFile(path, kubeconfig, 0o600); err != nil {
		return "", fmt.Errorf("write kubeconfig of ServiceAccount %q: %w", name, err)
	}
	return path, nil
}
