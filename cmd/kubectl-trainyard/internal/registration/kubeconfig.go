// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/trainyard/trainyard/kubeconfigs"
	"github.com/trainyard/trainyard/remote/bounded"
)

// trialTimeout is for the first request with new credentials.
const trialTimeout = 15 * time.Second

// observeAddress looks at the kubeconfig that the hub would get, before there is a token.
func (f *observation) observeAddress(worker *Cluster) {
	f.address = cmp.Or(f.options.Server, worker.Config.Host)
	data, err := worker.kubeconfig(f.address, nil, "no-token-yet")
	if err == nil {
		_, err = kubeconfigs.Parse(data, time.Now())
	}
	f.addressFault = err
}

// kubeconfig returns the kubeconfig for the hub. authority replaces the authority of the caller's kubeconfig.
func (c *Cluster) kubeconfig(address string, authority []byte, token string) ([]byte, error) {
	config := rest.CopyConfig(c.Config)
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, fmt.Errorf("read the certificates of the worker: %w", err)
	}
	if authority == nil {
		authority = config.CAData
	}
	const entry = "worker"
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.CurrentContext = entry
	kubeconfig.Clusters[entry] = &clientcmdapi.Cluster{
		Server: address, CertificateAuthorityData: authority, TLSServerName: config.ServerName,
	}
	kubeconfig.AuthInfos[account] = &clientcmdapi.AuthInfo{Token: token}
	kubeconfig.Contexts[entry] = &clientcmdapi.Context{Cluster: entry, AuthInfo: account}
	return clientcmd.Write(*kubeconfig)
}

// authority returns the authority that the caller's kubeconfig lacks, if it does not verify the worker.
func (c *Cluster) authority(ctx context.Context) ([]byte, error) {
	if !c.Config.Insecure || len(c.Config.CAData) > 0 || c.Config.CAFile != "" {
		return nil, nil
	}
	const published = "kube-root-ca.crt"
	object := &corev1.ConfigMap{}
	if err := c.Get(ctx, types.NamespacedName{Namespace: metav1.NamespaceSystem, Name: published}, object); err != nil {
		return nil, fmt.Errorf("get ConfigMap %s of the worker, because your kubeconfig does not verify the worker: %w", published, err)
	}
	return []byte(object.Data["ca.crt"]), nil
}

// tokenFor asks the worker for a token of the hub's account, bound to the hub's Secret.
func (c *Cluster) tokenFor(ctx context.Context, bound *unstructured.Unstructured, life time.Duration) (string, error) {
	seconds := int64(life / time.Second)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &seconds,
		BoundObjectRef: &authenticationv1.BoundObjectReference{
			Kind: "Secret", APIVersion: "v1", Name: bound.GetName(), UID: bound.GetUID(),
		},
	}}
	answer, err := c.kubernetes.CoreV1().ServiceAccounts(workerNamespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("create a token of ServiceAccount %s/%s on the worker: %w", workerNamespace, account, err)
	}
	return answer.Status.Token, nil
}

// whoIs asks the worker who has these credentials: the proof that they work.
func whoIs(ctx context.Context, credentials *kubeconfigs.Credentials) error {
	config := rest.CopyConfig(credentials.Config)
	config.WarningHandler = rest.NoWarnings{}
	client, err := bounded.Kubernetes(config, bounded.Limits{Timeout: trialTimeout, Size: bounded.MaxSmall})
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	// This needs no right. The answer is 401 if the token is not valid.
	_, err = client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	return err
}

// isFresh says whether a kubeconfig can stay. It can if it has the address and the authority that a new one would have,
// and if its token is bound to this Secret, has more than half of its life left, and works.
func (c *Cluster) isFresh(ctx context.Context, data []byte, address string, authority []byte, bound *unstructured.Unstructured) bool {
	now := time.Now()
	credentials, err := kubeconfigs.Parse(data, now)
	if err != nil {
		return false
	}
	token, err := kubeconfigs.ParseServiceAccountToken(credentials.Config.BearerToken)
	if err != nil || token.SecretUID != bound.GetUID() || token.Expires.Sub(now) < now.Sub(token.Issued) {
		return false
	}
	wanted, err := c.kubeconfig(address, authority, credentials.Config.BearerToken)
	return err == nil && string(wanted) == string(data) && whoIs(ctx, credentials) == nil
}

// checkAddress judges the address at which the hub is to reach the worker. Only the manager can try it, from where it
// runs: the condition Ready says the result. checkAddress finds addresses that usually mean one machine here and
// another machine at the hub.
func (f *observation) checkAddress(l *checklist) {
	switch {
	case f.addressFault != nil:
		l.add(Fail, WorkerSide, "the kubeconfig for the hub would be refused; give the address with --server:\n%v", f.addressFault)
		return
	case f.proxied && f.options.Server == "":
		l.add(Warn, WorkerSide, "you reach %s through a proxy, and the hub does not: give an address for the hub with --server", f.address)
		return
	}
	if why := localAddress(f.address); why != "" {
		l.add(Warn, WorkerSide, "the hub is to reach it at %s, which is %s: give an address for the hub with --server, or see whether the "+
			"WorkerCluster becomes Ready", f.address, why)
		return
	}
	l.add(OK, WorkerSide, "the hub is to reach it at %s: the WorkerCluster becomes Ready when it does", f.address)
}

// localAddress says why an address may mean another machine to the hub, or nothing.
func localAddress(address string) string {
	parsed, err := url.Parse(address)
	if err != nil {
		return "" // The kubeconfig was refused already.
	}
	host := strings.ToLower(strings.TrimSuffix(parsed.Hostname(), "."))
	if ip, err := netip.ParseAddr(host); err == nil {
		switch {
		case ip.IsLoopback():
			return "a loopback address, and so the manager's own machine or pod"
		case ip.IsLinkLocalUnicast():
			return "a link-local address, which only its own network reaches"
		case ip.IsPrivate():
			return "a private address, which the hub reaches only from the same network"
		}
		return ""
	}
	switch {
	case host == "localhost" || strings.HasSuffix(host, ".localhost"):
		return "the manager's own machine or pod"
	case host == "kubernetes.docker.internal" || host == "host.docker.internal":
		return "a name of Docker Desktop on this machine"
	case host == "kubernetes" || host == "kubernetes.default" || strings.HasPrefix(host, "kubernetes.default.svc"):
		return "the name that each cluster has for itself"
	case !strings.Contains(host, "."):
		return "a name without a domain, as containers of kind have"
	case strings.HasSuffix(host, ".local") || strings.HasSuffix(host, ".internal"):
		return "a name of a local network"
	}
	return ""
}
