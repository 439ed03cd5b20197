// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package chart tests the Helm chart, the roles for people that it installs, and what the manager does while CRDs are
// missing, on one real API server. Only two controllers run: the garbage collector and the controller of aggregated
// roles.
package chart

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/yard"
)

const (
	hubNamespace   = "trainyard-system"
	agentNamespace = "kubeflow-system"

	// timeout is for what takes a second or two on an idle machine.
	timeout = 6 * time.Minute
	poll    = 50 * time.Millisecond
)

var (
	cluster *clusters.Cluster
	// root is the repository, and home has what helm writes for its user.
	root, home string
)

func TestMain(m *testing.M) { yard.Main(m, start) }

func start(ctx context.Context) (stop func() error, err error) {
	if root, err = clusters.ModuleDir(ctx, "github.com/trainyard/trainyard"); err != nil {
		return nil, err
	}
	if err := clusters.Inputs(filepath.Join(root, "charts"), filepath.Join(root, "config"), filepath.Join(root, "hack/helm.sh")); err != nil {
		return nil, err
	}
	build := exec.CommandContext(ctx, filepath.Join(root, "hack/helm.sh"), "version")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build helm: %w: %s", err, out)
	}
	cluster, err = clusters.Start(ctx, clusters.Options{
		Name: "chart", GarbageCollector: true, OpenAPI: true,
		ControllerManagerArgs: []string{"--controllers=clusterrole-aggregation-controller"},
	})
	if err != nil {
		return nil, err
	}
	home = filepath.Join(cluster.Dir, "helm")
	return cluster.Stop, nil
}

// helm runs helm as the cluster's admin, and returns its standard output. The error has its standard error.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), filepath.Join(root, "bin/helm"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+cluster.KubeconfigPath,
		"HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("helm %v: %w: %s", args, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}

// render runs helm template with values.
func render(t *testing.T, values string) (string, error) {
	t.Helper()
	chart := filepath.Join(root, "charts/trainyard")
	return helm(t, "template", "trainyard", chart, "--namespace", hubNamespace, "--set", values)
}

// release runs a command of helm about a release of the chart in the namespace of Trainyard.
func release(t *testing.T, command, name string, flags ...string) string {
	t.Helper()
	args := []string{command, name}
	if command != "uninstall" {
		args = append(args, filepath.Join(root, "charts/trainyard"))
	}
	out, err := helm(t, append(append(args, "--namespace", hubNamespace), flags...)...)
	check.Must(t, err)
	return out
}

// kubectl runs kubectl as the cluster's admin, also when the test is over.
func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := cluster.Kubectl(context.WithoutCancel(t.Context()), args...)
	check.Must(t, err)
	return string(out)
}
