// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeconfigs

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// minify is the command with which an admin makes a kubeconfig that Parse accepts.
const minify = "\"kubectl config view --raw --minify --flatten\""

// maxSize is how many bytes a kubeconfig may have. A Secret cannot hold more.
const maxSize = 1 << 20

// Credentials are what a kubeconfig says about one worker.
type Credentials struct {
	// Config has the address, the TLS data and the bearer token. The caller sets timeouts and limits.
	Config *rest.Config
	// Fingerprint is a hash of everything in Config. It is safe to show. It changes if and only if Config changes.
	Fingerprint string
	// Expires is the earlier end of the client certificate and the token, and Issued the beginning of the same one. Zero:
	// unknown.
	Issued, Expires time.Time
}

// Parse returns a kubeconfig's credentials, or an *Error with all faults. Expired certificates and tokens are faults.
func Parse(data []byte, now time.Time) (*Credentials, error) {
	if len(data) > maxSize {
		return nil, newError([]Fault{{Path: "kubeconfig", Problem: "is larger than 1 MiB", Remedy: "give the output of " + minify}})
	}
	doc, fault := decode(data)
	if fault != nil {
		return nil, newError([]Fault{*fault})
	}
	p := &parser{now: now, doc: doc}
	credentials := p.parse()
	if err := newError(p.faults); err != nil {
		return nil, err
	}
	return credentials, nil
}

// parser collects faults, of unused entries too: the manager has them, and "kubectl config use-context" may use them.
type parser struct {
	now    time.Time
	doc    *document
	faults []Fault
}

func (p *parser) invalid(path, problem, remedy string) {
	p.faults = append(p.faults, Fault{Kind: Invalid, Path: path, Problem: problem, Remedy: remedy})
}

func (p *parser) insecure(path, problem, remedy string) {
	p.faults = append(p.faults, Fault{Kind: Insecure, Path: path, Problem: problem, Remedy: remedy})
}

// parse returns credentials that are valid only if there are no faults.
func (p *parser) parse() *Credentials {
	if p.doc.Kind != "" && p.doc.Kind != "Config" {
		p.invalid("kind", "is not Config", "give a kubeconfig")
	}
	if p.doc.APIVersion != "" && p.doc.APIVersion != "v1" {
		p.invalid("apiVersion", "is not v1", "give a kubeconfig of apiVersion v1")
	}
	servers := p.clusters()
	users := p.users()
	chosen := p.context(servers, users)
	if chosen == nil {
		return nil
	}
	config, issued, expires := &rest.Config{}, time.Time{}, time.Time{}
	if server := servers[chosen.Cluster]; server != nil {
		config.Host = server.host
		config.DisableCompression = server.disableCompression
		config.TLSClientConfig.ServerName = server.serverName
		config.TLSClientConfig.CAData = server.ca
	}
	if user := users[chosen.User]; user != nil {
		config.BearerToken = user.token
		config.TLSClientConfig.CertData = user.cert
		config.TLSClientConfig.KeyData = user.key
		issued, expires = user.issued, user.expires
	}
	return &Credentials{Config: config, Fingerprint: fingerprint(config), Issued: issued, Expires: expires}
}

// context returns the only possible context, or nil.
func (p *parser) context(servers map[string]*server, users map[string]*userCredentials) *contextOfUsers {
	usable, byName := []namedContext{}, map[string]bool{}
	for _, c := range p.doc.Contexts {
		if byName[c.Name] {
			p.invalid(entry("contexts", c.Name), "is there more than once", "give every context a name of its own")
			continue
		}
		byName[c.Name] = true
		if servers[c.Context.Cluster] != nil && users[c.Context.User] != nil {
			usable = append(usable, c)
		}
	}
	if len(usable) > 1 {
		p.insecure("contexts", fmt.Sprintf("%d of them are usable, so it is not clear which is the worker's", len(usable)),
			"keep only the worker's, as "+minify+" does")
	}
	if current := p.doc.CurrentContext; current != "" {
		return p.currentContext(current, byName[current], usable)
	}
	if len(usable) == 0 {
		p.invalid("contexts", "none names a cluster and a user that are there", "give one context with both")
		return nil
	}
	return &usable[0].Context
}

func (p *parser) currentContext(current string, exists bool, usable []namedContext) *contextOfUsers {
	for i := range usable {
		if usable[i].Name == current {
			return &usable[i].Context
		}
	}
	if !exists {
		p.invalid("current-context", "names a context that is not there", "name the worker's context, or leave it out")
		return nil
	}
	p.invalid(entry("contexts", current), "names a cluster or a user that is not there", "give one context with both")
	return nil
}

// entry returns the path of a named entry. It shortens the name, which can be any text.
func entry(list, name string) string {
	if len(name) > 64 {
		name = strings.ToValidUTF8(name[:64], "") + "…"
	}
	return fmt.Sprintf("%s[%q]", list, name)
}

// fingerprint hashes everything that parse puts into a config. The length of each part keeps different configs apart.
func fingerprint(config *rest.Config) string {
	sum := sha256.New()
	for _, part := range [][]byte{
		[]byte(config.Host), []byte(config.ServerName), config.CAData, config.CertData, config.KeyData,
		[]byte(config.BearerToken), fmt.Append(nil, config.DisableCompression),
	} {
		fmt.Fprintf(sum, "%d:", len(part))
		sum.Write(part)
	}
	return hex.EncodeToString(sum.Sum(nil)[:16])
}
