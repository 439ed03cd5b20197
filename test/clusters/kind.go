// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"sigs.k8s.io/kind/pkg/cluster"
	"sigs.k8s.io/kind/pkg/exec"
)

// kindCluster is a cluster of kind: nodes in containers. doc.go has its limits.
type kindCluster struct {
	name     string
	image    string
	provider *cluster.Provider
}

func newKindCluster(o Options) (*kindCluster, error) {
	detected, err := cluster.DetectNodeProvider()
	if err != nil {
		return nil, fmt.Errorf("TRAINYARD_CLUSTERS=kind needs Docker, Podman or nerdctl: %w", err)
	}
	provider := cluster.NewProvider(detected)
	// The detection is content with a client. This asks its engine.
	if _, err := provider.List(); err != nil {
		return nil, fmt.Errorf("TRAINYARD_CLUSTERS=kind needs a running container engine; its client is there, but the engine does not answer: %w", engineError(err))
	}
	if o.Audit || len(o.APIServerArgs) > 0 || len(o.ControllerManagerArgs) > 0 {
		return nil, errors.New("arguments and audit logs of the control plane cannot be set on kind clusters")
	}
	return &kindCluster{name: "trainyard-" + o.Name, image: os.Getenv("TRAINYARD_KIND_IMAGE"), provider: provider}, nil
}

// engineError returns the first line that the engine's client has printed, if
// it has, in place of kind's error, which is the command line.
func engineError(err error) error {
	run := exec.RunErrorForError(err)
	if run == nil {
		return err
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(run.Output)), "\n")
	if line == "" {
		return err
	}
	return errors.New(line)
}

func (k *kindCluster) startControlPlane(_ context.Context, kubeconfig string) error {
	return k.provider.Create(k.name,
		cluster.CreateWithNodeImage(k.image), // empty: kind's own choice
		cluster.CreateWithKubeconfigPath(kubeconfig),
		cluster.CreateWithWaitForReady(startTimeout),
	)
}

// startControllers has nothing to do: kind's controllers always run.
func (k *kindCluster) startControllers() error { return nil }

// exited returns nil: no part of the cluster is a process of ours.
func (k *kindCluster) exited() *Process { return nil }

func (k *kindCluster) process(string) *Process { return nil }

// hostAddress is where the nodes reach this machine, which differs by engine and system.
func (k *kindCluster) hostAddress() (string, error) {
	if address := os.Getenv("TRAINYARD_KIND_HOST"); address != "" {
		return address, nil
	}
	return "", errors.New("webhook servers beside a kind cluster need TRAINYARD_KIND_HOST: " +
		"the address of this machine that the nodes reach (with Docker on Linux, the gateway of the network \"kind\")")
}

func (k *kindCluster) startAPIServer(context.Context) error { return k.unsupported("started") }

func (k *kindCluster) killAPIServer() error { return k.unsupported("killed") }

func (k *kindCluster) signalAPIServer(syscall.Signal) error {
	return k.unsupported("paused or resumed")
}

func (k *kindCluster) unsupported(what string) error {
	return fmt.Errorf("the API server of kind cluster %q cannot be %s alone; use TRAINYARD_CLUSTERS=process", k.name, what)
}

func (k *kindCluster) stop() error { return k.provider.Delete(k.name, "") }
