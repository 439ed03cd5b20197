// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeconfigs

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

type server struct {
	host               string
	serverName         string
	ca                 []byte
	disableCompression bool
}

// clusters checks every cluster entry. It also returns faulty entries, so that a context that names one is not reported
// again.
func (p *parser) clusters() map[string]*server {
	servers := map[string]*server{}
	for _, c := range p.doc.Clusters {
		if servers[c.Name] != nil {
			p.invalid(entry("clusters", c.Name), "is there more than once", "give every cluster a name of its own")
		}
		servers[c.Name] = p.cluster(entry("clusters", c.Name)+".cluster", c.Cluster)
	}
	return servers
}

func (p *parser) cluster(path string, c cluster) *server {
	p.address(path+".server", c.Server)
	if c.InsecureSkipTLSVerify {
		p.insecure(path+".insecure-skip-tls-verify", "is set, so anybody can pose as the worker",
			"remove it and give certificate-authority-data")
	}
	if c.CertificateAuthority != "" {
		p.insecure(path+".certificate-authority", "refers to a file", "give certificate-authority-data, as "+minify+" does")
	}
	if c.ProxyURL != "" {
		p.insecure(path+".proxy-url", "sends the worker's credentials through a proxy that the kubeconfig chooses",
			"remove it; a proxy is set for the manager by HTTPS_PROXY")
	}
	if c.TLSServerName != "" && !isHost(c.TLSServerName) {
		p.invalid(path+".tls-server-name", "is neither a DNS name nor an IP address", "name the host in the server's "+
			"certificate")
	}
	s := &server{host: c.Server, serverName: c.TLSServerName, disableCompression: c.DisableCompression}
	if c.CertificateAuthorityData != "" {
		s.ca = p.authority(path+".certificate-authority-data", c.CertificateAuthorityData)
	}
	return s
}

// address checks a server URL. The faults do not quote the URL, because it can contain a password.
func (p *parser) address(path, text string) {
	const remedy = "give https://<host>:<port>"
	if text == "" {
		p.invalid(path, "is missing", remedy)
		return
	}
	u, err := url.Parse(text)
	if err != nil || u.Opaque != "" || u.Host == "" {
		p.invalid(path, "is not a URL with a host", remedy)
		return
	}
	switch u.Scheme {
	case "https":
	case "http":
		p.insecure(path, "is plain http, which shows the credentials to anybody on the way", remedy)
	default:
		p.invalid(path, "has a scheme other than https", remedy)
	}
	if u.User != nil {
		p.insecure(path, "has a user or password in it", remedy)
	}
	if u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		p.invalid(path, "has a query or fragment", remedy)
	}
	if !isHost(u.Hostname()) {
		p.invalid(path, "has a host that is neither a DNS name nor an IP address", remedy)
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			p.invalid(path, "has a port that is not between 1 and 65535", remedy)
		}
	} else if strings.HasSuffix(u.Host, ":") {
		p.invalid(path, "has an empty port", remedy)
	}
}

// isHost says whether text is an IP address or a DNS name. A name whose last label is a number is a mistyped address.
func isHost(text string) bool {
	if address, err := netip.ParseAddr(text); err == nil {
		return address.Zone() == "" && !address.IsUnspecified()
	}
	name := strings.ToLower(strings.TrimSuffix(text, "."))
	last := name[strings.LastIndex(name, ".")+1:]
	if _, err := strconv.ParseUint(last, 10, 64); err == nil {
		return false
	}
	return len(validation.IsDNS1123Subdomain(name)) == 0
}
