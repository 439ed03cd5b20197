// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeconfigs

import (
	"crypto/tls"
	"strings"
	"time"
)

type userCredentials struct {
	token string
	cert  []byte
	key   []byte
	// issued and expires are of the credentials that expire first.
	issued, expires time.Time
}

// users checks every user entry. It also returns faulty entries, so that a context that names one is not reported
// again.
func (p *parser) users() map[string]*userCredentials {
	users := map[string]*userCredentials{}
	for _, u := range p.doc.Users {
		if users[u.Name] != nil {
			p.invalid(entry("users", u.Name), "is there more than once", "give every user a name of its own")
		}
		users[u.Name] = p.user(entry("users", u.Name)+".user", u.User)
	}
	return users
}

func (p *parser) user(path string, u user) *userCredentials {
	refused := p.refused(path, u)
	credentials := &userCredentials{}
	if u.Token != "" {
		credentials.token = u.Token
		credentials.issued, credentials.expires = p.token(path+".token", u.Token)
	}
	if u.ClientCertificateData != "" || u.ClientKeyData != "" {
		start, end := p.keyPair(path, u, credentials)
		if credentials.expires.IsZero() || (!end.IsZero() && end.Before(credentials.expires)) {
			credentials.issued, credentials.expires = start, end
		}
	}
	// If a refused field takes the place of credentials, their absence is not another fault.
	if !refused && u.Token == "" && u.ClientCertificateData == "" && u.ClientKeyData == "" {
		p.invalid(path, "has no credentials", "give a token, or client-certificate-data and client-key-data")
	}
	return credentials
}

// refused reports every field that is refused. It returns true if one of them takes the place of credentials.
func (p *parser) refused(path string, u user) bool {
	const embed = "embed the credentials, as " + minify + " does"
	const token = "give a token of a service account, as \"kubectl trainyard join\" does"
	const impersonates = "impersonates somebody"
	refusals := []struct {
		present                bool
		field, problem, remedy string
		beside                 bool // credentials, not in their place
	}{
		{set(u.Exec), "exec", "runs a program in the manager", token, false},
		{set(u.AuthProvider), "auth-provider", "needs a plugin in the manager", token, false},
		{u.ClientCertificate != "", "client-certificate", "refers to a file", embed, false},
		{u.ClientKey != "", "client-key", "refers to a file", embed, false},
		{u.TokenFile != "", "tokenFile", "refers to a file", "give its content as token", false},
		{u.Username != "", "username", "is basic authentication", token, false},
		{u.Password != "", "password", "is basic authentication", token, false},
		{u.Impersonate != "", "as", impersonates, token, true},
		{u.ImpersonateUID != "", "as-uid", impersonates, token, true},
		{len(u.ImpersonateGroups) > 0, "as-groups", impersonates, token, true},
		{set(u.ImpersonateUserExtra), "as-user-extra", impersonates, token, true},
	}
	found := false
	for _, refusal := range refusals {
		if !refusal.present {
			continue
		}
		p.insecure(path+"."+refusal.field, refusal.problem, refusal.remedy)
		found = found || !refusal.beside
	}
	return found
}

// token checks a bearer token and returns its expiry, if it is a JWT with one. Only the worker can check its signature.
func (p *parser) token(path, token string) (issued, end time.Time) {
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		p.invalid(path, "has a space, a line break or another character that no token has", "give the token alone")
		return time.Time{}, time.Time{}
	}
	of, _ := claimsOf(token)
	end = timeOf(of.Exp)
	if !end.IsZero() && !p.now.Before(end) {
		p.invalid(path, "has expired on "+end.UTC().Format(time.DateOnly), "give a new one")
	}
	return timeOf(of.Iat), end
}

// keyPair checks client-certificate-data and client-key-data. It returns the life of the certificate.
func (p *parser) keyPair(path string, u user, credentials *userCredentials) (start, end time.Time) {
	certPath, keyPath := path+".client-certificate-data", path+".client-key-data"
	if u.ClientCertificateData == "" {
		p.invalid(certPath, "is missing", "give the certificate that belongs to client-key-data")
		return time.Time{}, time.Time{}
	}
	credentials.cert = p.decode64(certPath, u.ClientCertificateData)
	certs := p.certificates(certPath, credentials.cert)
	if len(certs) > 0 {
		if start, end = certs[0].NotBefore, certs[0].NotAfter; p.now.After(end) {
			p.invalid(certPath, "has expired on "+end.UTC().Format(time.DateOnly), "give a new certificate and key")
		}
	}
	if u.ClientKeyData == "" {
		p.invalid(keyPath, "is missing", "give the key that belongs to client-certificate-data")
		return start, end
	}
	credentials.key = p.decode64(keyPath, u.ClientKeyData)
	if len(certs) == 0 || credentials.key == nil {
		return start, end
	}
	if _, err := tls.X509KeyPair(credentials.cert, credentials.key); err != nil && strings.Contains(err.Error(), "match") {
		p.invalid(keyPath, "does not belong to client-certificate-data", "give the certificate and its own key")
	} else if err != nil {
		p.invalid(keyPath, "is not an unencrypted private key in PEM form", "give the key that belongs to client-certificate-data")
	}
	return start, end
}
