// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package yard

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/kubeconfigs"
	"github.com/trainyard/trainyard/test/clusters"
)

const (
	managerNamespace = "trainyard-system"
	agentNamespace   = "kubeflow-system"
	// readyPoll is how often a process that starts is asked whether it is ready.
	readyPoll = 50 * time.Millisecond
	// tokenLife is longer than any test and most demos.
	tokenLife = 24 * time.Hour
)

// FastLease makes a replacement for a killed process take over in seconds. On a busy machine a process can lose its
// lease and end: it is for tests that start it again.
var FastLease = []string{
	"--leader-election-lease-duration=3s", "--leader-election-renew-deadline=2s", "--leader-election-retry-period=500ms",
}

// patientLease keeps the only replica of a process from ending when a busy machine makes it renew its lease late.
var patientLease = []string{
	"--leader-election-lease-duration=60s", "--leader-election-renew-deadline=50s", "--leader-election-retry-period=500ms",
}

// installHub applies what config/hub has, except the CRDs, which exist already, and the Deployment, which the local
// process replaces.
func (y *Yard) installHub(ctx context.Context) error {
	if err := y.applyManagerRights(ctx, y.options.Version); err != nil {
		return err
	}
	server, err := y.options.Reach(y.Hub)
	if err != nil {
		return err
	}
	y.managerKubeconfig, err = serviceAccountKubeconfig(ctx, y.Hub, server, managerNamespace, "trainyard-manager")
	return err
}

// Register registers a worker as an admin does with kubectl. It waits until the worker is Ready. The tests of the plugin's
// join are elsewhere: so a change of the plugin is no change for most yards.
func (y *Yard) Register(ctx context.Context, worker Worker) error {
	hub, err := NewClient(y.Hub)
	if err != nil {
		return err
	}
	object := &v1alpha1.WorkerCluster{
		ObjectMeta: metav1.ObjectMeta{Name: worker.Name, Labels: worker.Labels},
		Spec: v1alpha1.WorkerClusterSpec{
			Connection: v1alpha1.Connection{KubeconfigSecretRef: &v1alpha1.SecretReference{Name: worker.Name + "-kubeconfig"}},
			Failover:   worker.Failover,
		},
	}
	if script := y.options.Version.script("register-worker.sh"); script != "" {
		return y.registerByScript(ctx, hub, script, object)
	}
	cluster := y.Workers[worker.Name]
	if err := y.ApplyWorker(ctx, cluster, y.options.Version); err != nil {
		return err
	}
	kubeconfig, err := y.WorkerKubeconfig(ctx, cluster)
	if err != nil {
		return err
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: managerNamespace, Name: object.Spec.Connection.KubeconfigSecretRef.Name},
		Data:       map[string][]byte{kubeconfigs.SecretKey: kubeconfig},
	}
	if err := write(ctx, hub, secret); err != nil {
		return err
	}
	if err := write(ctx, hub, object); err != nil {
		return err
	}
	return awaitWorker(ctx, hub, worker.Name)
}

// Join registers a worker with the plugin, as an admin does who has it, with further arguments. It waits until the worker is
// Ready.
func (y *Yard) Join(ctx context.Context, worker string, args ...string) error {
	cluster := y.Workers[worker]
	server, err := y.options.Reach(cluster)
	if err != nil {
		return err
	}
	// The agents run as processes of this machine.
	_, err = y.Plugin(ctx, append([]string{"join", worker, "--kubeconfig", cluster.KubeconfigPath, "--hub-kubeconfig", y.Hub.KubeconfigPath,
		"--server", server, "--agent=none", "--timeout=120s"}, args...)...)
	return err
}

// write creates an object, or changes the one of its name.
func write(ctx context.Context, c client.Client, object client.Object) error {
	err := c.Create(ctx, object)
	if apierrors.IsAlreadyExists(err) {
		err = c.Patch(ctx, object, client.Merge)
	}
	if err != nil {
		return fmt.Errorf("write %T %q: %w", object, object.GetName(), err)
	}
	return nil
}

// awaitWorker returns when the manager says that a worker is Ready.
func awaitWorker(ctx context.Context, hub client.Client, name string) error {
	worker := &v1alpha1.WorkerCluster{}
	for {
		if err := hub.Get(ctx, client.ObjectKey{Name: name}, worker); err != nil {
			return fmt.Errorf("read WorkerCluster %q: %w", name, err)
		}
		ready := meta.FindStatusCondition(worker.Status.Conditions, v1alpha1.WorkerClusterReady)
		if ready != nil && ready.Status == metav1.ConditionTrue && ready.ObservedGeneration == worker.Generation {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for WorkerCluster %q to be Ready, its condition is %+v: %w", name, ready, ctx.Err())
		case <-time.After(readyPoll):
		}
	}
}

// WorkerKubeconfig returns a kubeconfig for the hub with a new token of a worker. The worker must have been registered.
func (y *Yard) WorkerKubeconfig(ctx context.Context, cluster *clusters.Cluster) ([]byte, error) {
	server, err := y.options.Reach(cluster)
	if err != nil {
		return nil, err
	}
	account := types.NamespacedName{Namespace: managerNamespace, Name: "trainyard-hub"}
	kubeconfig, err := cluster.ServiceAccountKubeconfig(ctx, account, tokenLife)
	if err != nil {
		return nil, err
	}
	return bytes.Replace(kubeconfig, []byte(cluster.Config.Host), []byte(server), 1), nil
}

// Plugin runs the kubectl plugin that "make build" has built, and returns its standard output.
func (y *Yard) Plugin(ctx context.Context, args ...string) ([]byte, error) {
	return output(ctx, y.PluginCommand(ctx, args...))
}

// PluginCommand is the command that Plugin runs, for tests that read more of it than the standard output.
func (y *Yard) PluginCommand(ctx context.Context, args ...string) *exec.Cmd {
	return y.command(ctx, "kubectl-trainyard", args...)
}

// command is the command that runs a program that is built for people, and not for clusters.
func (y *Yard) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	program := filepath.Join(cmp.Or(os.Getenv("TRAINYARD_BIN"), filepath.Join(y.options.Version.Root, "bin")), name)
	_ = clusters.Inputs(program) // A missing program is the error of the command.
	return exec.CommandContext(ctx, program, args...)
}

// Script runs a script of hack/, which may read config/, and returns its standard output.
func (y *Yard) Script(ctx context.Context, name string, args ...string) ([]byte, error) {
	script := filepath.Join(y.options.Version.Root, "hack", name)
	if err := clusters.Inputs(script, filepath.Join(y.options.Version.Root, "config")); err != nil {
		return nil, err
	}
	return output(ctx, exec.CommandContext(ctx, script, args...))
}

// output runs a command and returns its standard output. The error has both outputs.
func output(ctx context.Context, command *exec.Cmd) ([]byte, error) {
	var stderr bytes.Buffer
	command.Stderr = &stderr
	answer, err := command.Output()
	if cause := context.Cause(ctx); cause != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(command.Args, " "), cause)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s\n%s", strings.Join(command.Args, " "), err, bytes.TrimSpace(stderr.Bytes()), answer)
	}
	return answer, nil
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
