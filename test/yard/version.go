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

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/clusters"
)

// Version is a version of Trainyard: its repository with config/ and hack/, and its programs.
type Version struct {
	// Root is the top of the repository. Empty: of this one.
	Root string
	// Programs is the directory of manager and worker-agent. Empty: the directory of the clusters' programs.
	Programs string
}

// Program returns what Cluster.Run takes for a program of the version.
func (v Version) Program(name string) string {
	if v.Programs == "" {
		return name
	}
	return filepath.Join(v.Programs, name)
}

// Complete returns the version with its Root.
func (v Version) Complete(ctx context.Context) (Version, error) {
	var err error
	if v.Root == "" {
		v.Root, err = clusters.ModuleDir(ctx, "github.com/trainyard/trainyard")
	}
	return v, err
}

// crds returns the paths of the CRDs of Kubeflow Trainer, and of the version's own in a directory.
func (v Version) crds(ctx context.Context, own clusters.ModuleFile) ([]string, error) {
	paths, err := clusters.ModulePaths(ctx, clusters.TrainerCRDs)
	return append(paths, filepath.Join(v.Root, own.Path)), err
}

// ApplyHub applies what config/hub of a version has, except the Deployment and the webhooks.
func (y *Yard) ApplyHub(ctx context.Context, version Version) error {
	version, err := version.Complete(ctx)
	if err != nil {
		return err
	}
	if err := y.Hub.InstallCRDs(ctx, filepath.Join(version.Root, clusters.HubCRDs.Path)); err != nil {
		return err
	}
	return y.applyManagerRights(ctx, version)
}

// ApplyAgents applies what config/worker-agent of a version has, except the Deployment, on a cluster with agents.
func (y *Yard) ApplyAgents(ctx context.Context, cluster *clusters.Cluster, version Version) error {
	version, err := version.Complete(ctx)
	if err != nil {
		return err
	}
	if err := cluster.InstallCRDs(ctx, filepath.Join(version.Root, clusters.WorkerCRDs.Path)); err != nil {
		return err
	}
	if err := applyAgentRights(ctx, cluster, version); err != nil {
		return err
	}
	return ApplyWebhooks(ctx, cluster, y.webhooks[cluster.Name], version)
}

// ReplaceAgents ends the agents of a cluster, one after the other, and starts agents of a version in their place.
func (y *Yard) ReplaceAgents(ctx context.Context, cluster *clusters.Cluster, version Version) error {
	for _, agent := range y.Agents[cluster.Name] {
		if err := agent.replace(ctx, version.Program("worker-agent")); err != nil {
			return fmt.Errorf("replace an agent of cluster %q: %w", cluster.Name, err)
		}
	}
	return nil
}

// ApplyWorker applies config/worker of a version on a worker: the rights of the hub.
func (y *Yard) ApplyWorker(ctx context.Context, cluster *clusters.Cluster, version Version) error {
	version, err := version.Complete(ctx)
	if err != nil {
		return err
	}
	folders := []string{"config/worker"}
	if y.options.Gateway {
		folders = append(folders, "config/worker-logs", "config/worker-exec")
	}
	for _, folder := range folders {
		if err := cluster.ApplyKustomization(ctx, filepath.Join(version.Root, folder)); err != nil {
			return err
		}
	}
	return nil
}

// script returns the path of a script of hack/, empty if the version has no such script.
func (v Version) script(name string) string {
	path := filepath.Join(v.Root, "hack", name)
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// registerByScript registers a worker with the scripts of a version that has no command for it. It waits until the
// worker is Ready.
func (y *Yard) registerByScript(ctx context.Context, hub client.Client, script string, worker *v1alpha1.WorkerCluster) error {
	if worker.Spec.Failover != (v1alpha1.WorkerFailover{}) { // The script keeps what is there.
		if err := client.IgnoreAlreadyExists(hub.Create(ctx, worker)); err != nil {
			return fmt.Errorf("create WorkerCluster %q: %w", worker.Name, err)
		}
	}
	cluster := y.Workers[worker.Name]
	server, err := y.options.Reach(cluster)
	if err != nil {
		return err
	}
	kubeconfig, err := output(ctx, exec.CommandContext(ctx, y.options.Version.script("worker-kubeconfig.sh"),
		"--kubeconfig", cluster.KubeconfigPath, "--server", server))
	if err != nil {
		return err
	}
	args := []string{worker.Name, "--hub-kubeconfig", y.Hub.KubeconfigPath, "--wait", "120s"}
	for key, value := range worker.Labels {
		args = append(args, "--label", key+"="+value)
	}
	command := exec.CommandContext(ctx, script, args...)
	command.Stdin = bytes.NewReader(kubeconfig)
	_, err = output(ctx, command)
	return err
}

// replace ends an agent as the kubelet does, starts another program in its place, and waits until that is ready.
func (a *Agent) replace(ctx context.Context, program string) error {
	a.mu.Lock()
	a.down = true
	process := a.process
	a.program = program
	a.mu.Unlock()
	if err := process.Stop(); err != nil {
		return err
	}
	return a.Up(ctx)
}

// applyManagerRights applies what config/hub has, except the CRDs, the webhooks and the Deployment. Of config/gateway it
// applies the manager's rights: tests that need the ConfigMap create it.
func (y *Yard) applyManagerRights(ctx context.Context, version Version) error {
	for _, part := range []string{"config/namespace", "config/rbac"} {
		if err := y.Hub.ApplyKustomization(ctx, filepath.Join(version.Root, part)); err != nil {
			return err
		}
	}
	if !y.options.Gateway {
		return nil
	}
	dir := filepath.Join(version.Root, "config/gateway")
	return y.Hub.ApplyFiles(ctx, filepath.Join(dir, "role.yaml"), filepath.Join(dir, "role_binding.yaml"))
}
