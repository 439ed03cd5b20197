// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"sigs.k8s.io/kind/pkg/apis/config/v1alpha4"
	"sigs.k8s.io/kind/pkg/cluster"
	"sigs.k8s.io/kind/pkg/cluster/nodes"
	"sigs.k8s.io/kind/pkg/exec"
)

const (
	// kindNetwork is the network of all kind clusters.
	kindNetwork = "kind"
	// kindAPIServerPort is the port of the API server on the address of its node.
	kindAPIServerPort = "6443"
	// kindAdmin is the admin's kubeconfig on the node of the control plane.
	kindAdmin = "/etc/kubernetes/admin.conf"
	// The kubelet runs the API server as long as this file is where it belongs.
	kindManifest, kindManifestAway = "/etc/kubernetes/manifests/kube-apiserver.yaml", "/etc/kubernetes/kube-apiserver.yaml"
)

// kindPatches change what kubeadm does by default. Several clusters start on a machine with other work: kubeadm waits
// longer, the only controller manager and the only scheduler do not end when they renew a lease too late, and etcd does
// not wait for the disk. Pods see a changed Secret soon: JobSet makes its certificate after its pod has started.
var kindPatches = []string{`kind: InitConfiguration
timeouts: {controlPlaneComponentHealthCheck: 10m, kubeletHealthCheck: 10m, kubernetesAPICall: 5m}
`, `kind: JoinConfiguration
timeouts: {discovery: 10m, kubeletHealthCheck: 10m, tlsBootstrap: 10m, kubernetesAPICall: 5m}
`, `kind: ClusterConfiguration
controllerManager: {extraArgs: [{name: leader-elect, value: "false"}]}
scheduler: {extraArgs: [{name: leader-elect, value: "false"}]}
etcd: {local: {dataDir: /var/lib/etcd, extraArgs: [{name: unsafe-no-fsync, value: "true"}]}}
`, `kind: KubeletConfiguration
syncFrequency: 10s
`}

// kindNoTaint makes the node of the control plane run pods. kind does that by itself if it is the only node, and would
// fail with this patch.
const kindNoTaint = "kind: InitConfiguration\nnodeRegistration: {taints: []}\n"

// KindOptions are options of clusters of kind. Other clusters ignore them.
type KindOptions struct {
	// Workers is the number of nodes beside the node of the control plane, which runs pods too.
	Workers int
	// Mounts are folders of this machine that all nodes get: the path on this machine, and the path on the nodes.
	Mounts map[string]string
	// Images are loaded from the container engine into all nodes.
	Images []string
}

// OnKind says whether $TRAINYARD_CLUSTERS asks for clusters of kind.
func OnKind() bool { return os.Getenv("TRAINYARD_CLUSTERS") == "kind" }

// kindCluster is a cluster of kind: nodes in containers. doc.go has its limits.
type kindCluster struct {
	name     string
	image    string
	options  KindOptions
	provider *cluster.Provider
	// kubeconfig is the file that kind writes. Empty: nothing was started.
	kubeconfig string
	// simulated says that there are simulated nodes too. Pods of Jobs run on the simulated nodes.
	simulated bool
}

func newKindCluster(o Options) (*kindCluster, error) {
	detected, err := cluster.DetectNodeProvider()
	if err != nil {
		return nil, fmt.Errorf("TRAINYARD_CLUSTERS=kind needs Docker, Podman or nerdctl: %w", err)
	}
	provider := cluster.NewProvider(detected)
	// The detection is content with a client. This asks its engine.
	there, err := provider.List()
	if err != nil {
		return nil, fmt.Errorf("TRAINYARD_CLUSTERS=kind needs a running container engine; its client is there, but the engine does not answer: %w", engineError(err))
	}
	if o.Audit || len(o.APIServerArgs)+len(o.ControllerManagerArgs)+len(o.SchedulerArgs) > 0 {
		return nil, errors.New("arguments and audit logs of the control plane cannot be set on kind clusters")
	}
	name := "trainyard-" + o.Name
	if slices.Contains(there, name) {
		return nil, fmt.Errorf("kind cluster %[1]q is there already: another test or demo uses it, or has left it; "+
			"wait until the other has ended, or delete it with \"kind delete cluster --name %[1]s\"", name)
	}
	return &kindCluster{
		name: name, image: os.Getenv("KIND_IMAGE"), options: o.Kind, provider: provider, simulated: len(o.Nodes) > 0,
	}, nil
}

// kind's error is only the command line. engineError returns the last line that the engine's client has printed
// instead, if there is one.
func engineError(err error) error {
	run := exec.RunErrorForError(err)
	if run == nil {
		return err
	}
	lines := strings.Split(strings.TrimSpace(string(run.Output)), "\n")
	if last := lines[len(lines)-1]; last != "" {
		return fmt.Errorf("%s: %s", strings.Join(run.Command, " "), last)
	}
	return err
}

func (k *kindCluster) startControlPlane(_ context.Context, kubeconfig string) error {
	k.kubeconfig = kubeconfig
	err := k.provider.Create(k.name,
		cluster.CreateWithNodeImage(k.image), // empty: kind's own choice
		cluster.CreateWithV1Alpha4Config(k.config()),
		cluster.CreateWithKubeconfigPath(kubeconfig),
		cluster.CreateWithWaitForReady(startTimeout),
	)
	if err != nil {
		return engineError(err)
	}
	if k.simulated {
		if err := k.onControlPlane("kubectl", "--kubeconfig="+kindAdmin, "taint", "nodes", "--all", controlPlaneLabel+":NoSchedule"); err != nil {
			return fmt.Errorf("keep pods of Jobs away from real nodes: %w", err)
		}
	}
	return k.loadImages()
}

func (k *kindCluster) config() *v1alpha4.Cluster {
	config := &v1alpha4.Cluster{KubeadmConfigPatches: kindPatches}
	if k.options.Workers > 0 {
		config.KubeadmConfigPatches = append([]string{kindNoTaint}, kindPatches...)
	}
	for i := range 1 + k.options.Workers {
		node := v1alpha4.Node{Role: v1alpha4.WorkerRole}
		if i == 0 {
			node.Role = v1alpha4.ControlPlaneRole
		}
		for host, container := range k.options.Mounts {
			node.ExtraMounts = append(node.ExtraMounts, v1alpha4.Mount{HostPath: host, ContainerPath: container})
		}
		config.Nodes = append(config.Nodes, node)
	}
	return config
}

// startControllers has nothing to do: kind's controllers always run.
func (k *kindCluster) startControllers() error { return nil }

// exited returns nil: no part of the cluster is a process of ours.
func (k *kindCluster) exited() *Process { return nil }

func (k *kindCluster) parts() []*Process { return nil }

func (k *kindCluster) hasFirstCRDs() bool { return false }

// hostAddress is where the nodes reach this machine: the gateway of kind's network.
func (k *kindCluster) hostAddress() (string, error) {
	if address := os.Getenv("TRAINYARD_KIND_HOST"); address != "" {
		return address, nil
	}
	node, err := k.controlPlane()
	if err != nil {
		return "", err
	}
	lines, err := exec.OutputLines(node.Command("ip", "-4", "route", "show", "default"))
	if err != nil {
		return "", engineError(err)
	}
	for _, line := range lines { // default via 172.18.0.1 dev eth0
		if fields := strings.Fields(line); len(fields) > 2 {
			return fields[2], nil
		}
	}
	return "", fmt.Errorf("nodes of kind cluster %q have no default route in network %q: "+
		"TRAINYARD_KIND_HOST must name the address of this machine that the nodes reach", k.name, kindNetwork)
}

// controlPlane returns the node with the API server.
func (k *kindCluster) controlPlane() (nodes.Node, error) {
	all, err := k.provider.ListInternalNodes(k.name)
	if err != nil {
		return nil, err
	}
	for _, node := range all {
		role, err := node.Role()
		if err != nil {
			return nil, err
		}
		if role == string(v1alpha4.ControlPlaneRole) {
			return node, nil
		}
	}
	return nil, fmt.Errorf("kind cluster %q has no control plane", k.name)
}

func (k *kindCluster) startAPIServer(context.Context) error {
	return k.onControlPlane("mv", kindManifestAway, kindManifest)
}

// killAPIServer kills the API server when the kubelet does not start it again.
func (k *kindCluster) killAPIServer() error {
	if err := k.onControlPlane("mv", kindManifest, kindManifestAway); err != nil {
		return err
	}
	return k.signalAPIServer(syscall.SIGKILL)
}

func (k *kindCluster) signalAPIServer(s syscall.Signal) error {
	return k.onControlPlane("pkill", fmt.Sprintf("-%d", s), "-x", "kube-apiserver")
}

// onControlPlane runs a command on the node with the API server.
func (k *kindCluster) onControlPlane(command string, args ...string) error {
	node, err := k.controlPlane()
	if err != nil {
		return err
	}
	if err := node.Command(command, args...).Run(); err != nil {
		return fmt.Errorf("on node %q: %w", node, engineError(err))
	}
	return nil
}

// stop deletes the cluster. kind also deletes its entry from a kubeconfig: without a path from that of the user, whose
// lock clusters that end at the same time cannot share.
func (k *kindCluster) stop() error {
	if k.kubeconfig == "" {
		return nil
	}
	return k.provider.Delete(k.name, k.kubeconfig)
}
