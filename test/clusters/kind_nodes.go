// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"sigs.k8s.io/kind/pkg/cluster/nodes"
	"sigs.k8s.io/kind/pkg/cluster/nodeutils"
)

// loadImages copies the images of the options from the container engine to all nodes.
func (k *kindCluster) loadImages() error {
	if len(k.options.Images) == 0 {
		return nil
	}
	dir, err := os.MkdirTemp("", "trainyard-images-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	archive := filepath.Join(dir, "images.tar")
	save := exec.Command("docker", append([]string{"save", "-o", archive}, k.options.Images...)...)
	if output, err := save.CombinedOutput(); err != nil {
		return fmt.Errorf("save images %q: %w: %s", k.options.Images, err, output)
	}
	all, err := k.provider.ListInternalNodes(k.name)
	if err != nil {
		return err
	}
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, node := range all {
		wg.Go(func() { errs[i] = loadArchive(node, archive) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func loadArchive(node nodes.Node, archive string) error {
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := nodeutils.LoadImageArchive(node, file); err != nil {
		return fmt.Errorf("load images into node %q: %w", node, engineError(err))
	}
	return nil
}

// ServerFromPods returns the URL at which pods of other clusters reach the API server. That is Config.Host, except on
// kind, where Config.Host is an address of this machine alone.
func (c *Cluster) ServerFromPods() (string, error) {
	k, ok := c.backend.(*kindCluster)
	if !ok {
		return c.Config.Host, nil
	}
	node, err := k.controlPlane()
	if err != nil {
		return "", err
	}
	address, _, err := node.IP()
	if err != nil {
		return "", fmt.Errorf("address of node %q: %w", node, engineError(err))
	}
	return "https://" + net.JoinHostPort(address, kindAPIServerPort), nil
}

// KillNode ends a node of a kind cluster as a power failure does: the kubelet and all containers of the node end at
// once, and nobody tells the API server. The node object stays.
func (c *Cluster) KillNode(ctx context.Context, name string) error {
	all, err := c.internalNodes()
	if err != nil {
		return fmt.Errorf("kill node %q: %w", name, err)
	}
	for _, node := range all {
		if node.String() == name {
			output, err := exec.CommandContext(ctx, "docker", "kill", name).CombinedOutput()
			if err != nil {
				return fmt.Errorf("kill node %q: %w: %s", name, err, output)
			}
			return nil
		}
	}
	return fmt.Errorf("kind cluster %q has no node %q", c.Name, name)
}

// CutFrom drops all packets that come from the nodes of another kind cluster, as a firewall between two sites does.
// Whatever runs on the nodes of this one goes on. mend lets them through again.
func (c *Cluster) CutFrom(ctx context.Context, other *Cluster) (mend func(context.Context) error, err error) {
	here, err := c.internalNodes()
	if err != nil {
		return nil, err
	}
	there, err := other.internalNodes()
	if err != nil {
		return nil, err
	}
	each := func(ctx context.Context, change string) (errs error) {
		for _, node := range here {
			for _, from := range there {
				address, _, err := from.IP()
				if err == nil {
					err = node.CommandContext(ctx, "iptables", change, "INPUT", "--source", address, "--jump", "DROP").Run()
				}
				errs = errors.Join(errs, err)
			}
		}
		return errs
	}
	mend = func(ctx context.Context) error { return each(ctx, "--delete") }
	return mend, each(ctx, "--insert")
}

// internalNodes returns the nodes of a kind cluster.
func (c *Cluster) internalNodes() ([]nodes.Node, error) {
	k, ok := c.backend.(*kindCluster)
	if !ok {
		return nil, fmt.Errorf("the nodes of cluster %q are simulated", c.Name)
	}
	return k.provider.ListInternalNodes(k.name)
}
