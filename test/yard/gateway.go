// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package yard

import (
	"context"
	"net"
	"os"
	"slices"
	"strconv"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/ports"
)

// slowWorkers lets workers on a busy machine answer.
const slowWorkers = "--gateway-worker-timeout=15s"

// reserveGateway reserves an address for the gateway of managers.
func (y *Yard) reserveGateway() (err error) {
	if !y.options.Gateway {
		return nil
	}
	if y.Gateway, err = y.Hub.NewWebhookServer("gateway"); err != nil {
		return err
	}
	y.Managers.gateway = []string{"--gateway-bind-address=" + y.GatewayAddress(), "--gateway-cert-dir=" + y.Gateway.CertDir, slowWorkers}
	return nil
}

// StandBy starts another replica of the manager, which serves the gateway at an address of its own. It leads only if the
// one that leads ends.
func (m *Managers) StandBy(ctx context.Context) (address string, process *clusters.Process, err error) {
	var addresses [3]string
	for i := range addresses {
		if addresses[i], err = ports.Free(); err != nil {
			return "", nil, err
		}
	}
	y := m.yard
	args := slices.Concat([]string{
		"--kubeconfig=" + y.managerKubeconfig, "--namespace=" + managerNamespace, "--v=1", "--worker-probe-interval=2s",
		"--health-probe-bind-address=" + addresses[0], "--metrics-bind-address=" + addresses[1],
		"--gateway-bind-address=" + addresses[2], "--gateway-cert-dir=" + y.Gateway.CertDir, slowWorkers,
	}, y.options.Lease, y.options.ManagerArgs)
	process, err = y.Hub.Run(ctx, "manager-2", m.version.Program("manager"), args...)
	if err != nil {
		return "", nil, err
	}
	return addresses[2], process, process.AwaitReady(ctx, addresses[0])
}

// GatewayAddress is host:port of the gateway.
func (y *Yard) GatewayAddress() string {
	return net.JoinHostPort(y.Gateway.Host, strconv.Itoa(y.Gateway.Port))
}

// gatewayKubeconfig writes a kubeconfig that leads through a gateway at an address, with the token and the namespace of a
// user.
func (y *Yard) gatewayKubeconfig(path, address, token, namespace string) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["hub"] = &clientcmdapi.Cluster{Server: "https://" + address, CertificateAuthorityData: y.Gateway.CABundle}
	config.AuthInfos["user"] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["hub"] = &clientcmdapi.Context{Cluster: "hub", AuthInfo: "user", Namespace: namespace}
	config.CurrentContext = "hub"
	text, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}
