// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	// ConfigMap is the name of the ConfigMap, in the namespace of the manager, that says how to reach the gateway.
	ConfigMap = "trainyard-gateway"
	// keyURL and keyAuthority are its keys. Without an authority the system's authorities count.
	keyURL, keyAuthority = "url", "ca.crt"
	// suffix is at the end of the names in a kubeconfig that leads through a gateway.
	suffix = "-gateway"
	// unnamed is the name of a hub whose kubeconfig has no context, as in a pod.
	unnamed = "hub"
)

// Published is how users reach a gateway.
type Published struct {
	URL string
	// Authority signs the certificate of the gateway, in PEM. Empty: an authority of the system.
	Authority []byte
	// ServerName is the name in the certificate. Empty: the host of the URL.
	ServerName string
}

// Parse reads the data of the ConfigMap.
func Parse(data map[string]string) (*Published, error) {
	p := &Published{URL: data[keyURL], Authority: []byte(data[keyAuthority])}
	if p.URL == "" {
		return nil, errors.New("no manager has written the address of the gateway yet")
	}
	return p, p.Check()
}

// Check says what is wrong.
func (p *Published) Check() error {
	u, err := url.Parse(p.URL)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil {
		return fmt.Errorf("the URL of the gateway is %q: must be such as https://gateway.example.com", p.URL)
	}
	if len(p.Authority) > 0 && !x509.NewCertPool().AppendCertsFromPEM(p.Authority) {
		return errors.New("the authority of the gateway has no certificate in PEM")
	}
	return nil
}

// Is says whether a config leads to the gateway already. Users may reach it at another address than the published one,
// but not with another authority.
func (p *Published) Is(config *rest.Config) bool {
	address := func(text string) string { return strings.TrimSuffix(text, "/") }
	return address(config.Host) == address(p.URL) || len(p.Authority) > 0 && bytes.Equal(p.Authority, config.CAData)
}

// OnlyInCluster says whether only pods of the hub can reach the address.
func (p *Published) OnlyInCluster() bool {
	u, err := url.Parse(p.URL)
	return err == nil && strings.HasSuffix(u.Hostname(), ".svc")
}

// Reach returns a config with the same credentials that leads through the gateway. The error says how to get credentials
// that the gateway takes.
func (p *Published) Reach(config *rest.Config) (*rest.Config, error) {
	if config.BearerToken == "" && config.BearerTokenFile == "" && config.ExecProvider == nil && config.AuthProvider == nil {
		has := "no credentials"
		switch {
		case config.CertFile != "" || len(config.CertData) > 0:
			has = "a client certificate"
		case config.Username != "":
			has = "a password"
		}
		return nil, fmt.Errorf("the gateway takes tokens only, and your kubeconfig has %s: give a token with --token, such as that of a service "+
			"account with your rights (kubectl create token NAME)", has)
	}
	config = rest.CopyConfig(config)
	config.Host, config.Proxy = p.URL, nil
	config.TLSClientConfig = rest.TLSClientConfig{CAData: p.Authority, ServerName: p.ServerName}
	config.Username, config.Password = "", ""
	return config, nil
}

// Kubeconfig returns a kubeconfig for a config that Reach has made. context is the name of the context from which that
// was made, empty if there is none.
func Kubeconfig(config *rest.Config, context, namespace string) *clientcmdapi.Config {
	user := &clientcmdapi.AuthInfo{
		Exec: config.ExecProvider, AuthProvider: config.AuthProvider, TokenFile: config.BearerTokenFile,
		Impersonate: config.Impersonate.UserName, ImpersonateUID: config.Impersonate.UID,
		ImpersonateGroups: config.Impersonate.Groups, ImpersonateUserExtra: config.Impersonate.Extra,
	}
	if user.TokenFile == "" { // Otherwise this is what the file has now.
		user.Token = config.BearerToken
	}
	name := unnamed + suffix
	if context != "" {
		name = strings.TrimSuffix(context, suffix) + suffix
	}
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters[name] = &clientcmdapi.Cluster{
		Server: config.Host, CertificateAuthorityData: config.CAData, TLSServerName: config.ServerName,
	}
	kubeconfig.AuthInfos[name] = user
	kubeconfig.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: namespace}
	kubeconfig.CurrentContext = name
	return kubeconfig
}
