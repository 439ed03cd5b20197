// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package yard

import (
	"net"
	"os"
	"strconv"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// reserveGateway reserves an address for the gateway of managers.
func (y *Yard) reserveGateway() (err error) {
	if !y.options.Gateway {
		return nil
	}
	if y.Gateway, err = y.Hub.NewWebhookServer("gateway"); err != nil {
		return err
	}
	y.Managers.gateway = []string{"--gateway-bind-address=" + y.GatewayAddress(), "--gateway-cert-dir=" + y.Gateway.CertDir}
	return nil
}

// GatewayAddress is host:port of the gateway.
func (y *Yard) GatewayAddress() string {
	return net.JoinHostPort(y.Gateway.Host, strconv.Itoa(y.Gateway.Port))
}

// GatewayKubeconfig writes a kubeconfig that leads through a gateway at an address, with the token and the namespace of a
// user.
func (y *Yard) GatewayKubeconfig(path, address, token, namespace string) error {
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
