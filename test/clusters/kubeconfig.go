// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// kubeconfigBytes encodes a kubeconfig with one context, named after the
// cluster, and everything in it that is needed to use it.
func kubeconfigBytes(cluster, server string, ca []byte, user *clientcmdapi.AuthInfo) ([]byte, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters[cluster] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	config.AuthInfos[cluster] = user
	config.Contexts[cluster] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: cluster}
	config.CurrentContext = cluster
	return clientcmd.Write(*config)
}

// writeKubeconfig issues a client certificate and writes a kubeconfig with it.
func (p *processes) writeKubeconfig(path string, id identity) error {
	pair, err := p.ca.client(id)
	if err != nil {
		return fmt.Errorf("issue certificate for %q: %w", id.user, err)
	}
	data, err := kubeconfigBytes(p.options.Name, p.server(), p.ca.pem, &clientcmdapi.AuthInfo{
		ClientCertificateData: pair.cert,
		ClientKeyData:         pair.key,
	})
	if err != nil {
		return err
	}
	return writeFile(path, data)
}

// loadConfig reads a kubeconfig for tests, without a rate limit: tests must not wait for their own client.
func loadConfig(path string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = 1000, 2000
	return config, nil
}

// ServiceAccountKubeconfig returns a kubeconfig with a service account's token that is valid for the given time. The
// API server makes that at least ten minutes. The account has the rights of its role bindings.
func (c *Cluster) ServiceAccountKubeconfig(ctx context.Context, account types.NamespacedName, valid time.Duration) ([]byte, error) {
	seconds := int64(valid.Seconds())
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	response, err := c.kubernetes.CoreV1().ServiceAccounts(account.Namespace).CreateToken(ctx, account.Name, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("request token of service account %s on cluster %q: %w", account, c.Name, err)
	}
	return kubeconfigBytes(c.Name, c.Config.Host, c.Config.CAData, &clientcmdapi.AuthInfo{Token: response.Status.Token})
}
