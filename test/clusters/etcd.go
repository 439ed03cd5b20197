// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
)

const etcdDir = "etcd"

// KillEtcd ends etcd with SIGKILL. The API server keeps running without etcd.
func (c *Cluster) KillEtcd() error {
	local, err := c.local()
	if err != nil {
		return err
	}
	return local.killPart("etcd")
}

// StartEtcd starts a killed etcd again with its data, and waits until the API server is ready.
func (c *Cluster) StartEtcd(ctx context.Context) error {
	local, err := c.local()
	if err != nil {
		return err
	}
	if err := local.startEtcd(ctx); err != nil {
		return err
	}
	return c.waitServing(ctx)
}

// BackUp copies etcd's present data into a new directory. A crash of etcd at this moment would leave the same data.
func (c *Cluster) BackUp(dir string) (err error) {
	local, err := c.local()
	if err != nil {
		return err
	}
	etcd := lastNamed(local.parts(), "etcd")
	if etcd == nil {
		return fmt.Errorf("back up cluster %q: etcd does not run", c.Name)
	}
	if err := etcd.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, etcd.Signal(syscall.SIGCONT)) }()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(c.Dir, etcdDir))); err != nil {
		return fmt.Errorf("back up cluster %q: %w", c.Name, err)
	}
	return nil
}

// Restore replaces the cluster's data by a copy from BackUp, and restarts the control plane, as an admin does.
// Processes beside the cluster, such as JobSet's manager, keep running with what they know.
func (c *Cluster) Restore(ctx context.Context, dir string) error {
	local, err := c.local()
	if err != nil {
		return err
	}
	if err := local.restore(ctx, dir); err != nil {
		return fmt.Errorf("restore cluster %q: %w", c.Name, err)
	}
	if err := c.waitServing(ctx); err != nil {
		return err
	}
	return local.startControllers()
}

// EtcdMetrics returns etcd's metrics in the text format of Prometheus. The API server's metrics do not have all of
// them.
func (c *Cluster) EtcdMetrics(ctx context.Context) ([]byte, error) {
	metrics, err := c.askEtcd(ctx, http.MethodGet, "/metrics", nil)
	if err != nil {
		return nil, fmt.Errorf("read metrics of the etcd of cluster %q: %w", c.Name, err)
	}
	return metrics, nil
}

// askEtcd sends a request to etcd, and returns the body of the answer.
func (c *Cluster) askEtcd(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	local, err := c.local()
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(local.options.Dir, etcdSocketFile)
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, method, "http://etcd"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, errors.New(response.Status)
	}
	return io.ReadAll(response.Body)
}

// local is the cluster's control plane where that is made of processes.
func (c *Cluster) local() (*processes, error) {
	local, ok := c.backend.(*processes)
	if !ok {
		return nil, fmt.Errorf("the etcd of cluster %q is not a process of ours; use TRAINYARD_CLUSTERS=process", c.Name)
	}
	return local, nil
}

// restore returns when etcd and the API server have been started.
func (p *processes) restore(ctx context.Context, dir string) error {
	for _, part := range []string{"kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd"} {
		if lastNamed(p.parts(), part) == nil {
			continue
		}
		if err := p.killPart(part); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(filepath.Join(p.options.Dir, etcdDir)); err != nil {
		return err
	}
	if err := p.copyData(dir); err != nil {
		return err
	}
	if err := p.startEtcd(ctx); err != nil {
		return err
	}
	return p.startAPIServer(ctx)
}

// copyData copies a directory with data of etcd's to where the cluster's etcd has its data.
func (p *processes) copyData(from string) error {
	data := filepath.Join(p.options.Dir, etcdDir)
	if err := os.CopyFS(data, os.DirFS(from)); err != nil {
		return err
	}
	return os.Chmod(data, 0o700) // etcd insists on a directory that nobody else can read.
}
