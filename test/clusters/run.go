// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Run runs a program beside the cluster, in Dir, with KUBECONFIG set to the admin's kubeconfig. A program without a
// slash is searched in the options' BinDir, and then in PATH. Stop ends the program before the cluster. The context
// limits nothing after Run has returned.
func (c *Cluster) Run(ctx context.Context, name, program string, args ...string) (*Process, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("run %s: %w", name, err)
	}
	path, err := c.lookPath(program)
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", name, err)
	}
	process, err := startProcess(command{
		name:   name,
		dir:    c.Dir,
		path:   path,
		args:   args,
		env:    []string{"KUBECONFIG=" + c.KubeconfigPath},
		runner: runner(c.options.BinDir),
	})
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.beside = append(c.beside, process)
	return process, nil
}

// Process returns the latest process of a name. Run has started it, or it is a part of the cluster: etcd,
// kube-apiserver, kube-controller-manager, kube-scheduler, jobset-manager, kwok. It returns nil if there is none. For
// the API server use KillAPIServer and similar methods: they know that its end is intended.
func (c *Cluster) Process(name string) *Process {
	return lastNamed(c.started(), name)
}

// Processes returns the processes that run: the parts of the cluster, and what Run has started. On kind the parts are
// not among them.
func (c *Cluster) Processes() []*Process {
	return slices.DeleteFunc(c.started(), (*Process).hasEnded)
}

// started returns the parts of the cluster, and then what Run has started.
func (c *Cluster) started() []*Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append(c.backend.parts(), c.beside...)
}

func (c *Cluster) lookPath(program string) (string, error) {
	if strings.ContainsRune(program, filepath.Separator) {
		return filepath.Abs(program)
	}
	if path, err := binary(c.options.BinDir, program); err == nil {
		return path, nil
	}
	return exec.LookPath(program)
}

// Kubectl runs kubectl with the admin's kubeconfig, and returns its standard output. The error has its standard error.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) ([]byte, error) {
	path, err := kubectl(c.options.BinDir)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.KubeconfigPath)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return out, fmt.Errorf("kubectl %s on cluster %q: %w: %s", strings.Join(args, " "), c.Name, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}

// Metrics returns the API server's metrics in Prometheus' text format. apiserver_request_total counts all requests by
// verb, resource, subresource and code. AuditLog also has the users.
func (c *Cluster) Metrics(ctx context.Context) ([]byte, error) {
	data, err := c.kubernetes.CoreV1().RESTClient().Get().AbsPath("/metrics").Do(ctx).Raw()
	if err != nil {
		return nil, fmt.Errorf("read metrics of cluster %q: %w", c.Name, err)
	}
	return data, nil
}

// AuditLog returns the path of the API server's audit log. The log has a line of JSON for each answered request (an
// audit.k8s.io/v1 Event without bodies), with user, user agent, verb, object and code. It is written only with
// Options.Audit. A long-running request, such as a watch, is logged when it ends.
func (c *Cluster) AuditLog() string {
	return filepath.Join(c.Dir, auditLogFile)
}
