// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"net/netip"
	"net/url"
	"strings"
)

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
