// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"crypto/sha256"
	"net/http"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	"k8s.io/apiserver/pkg/authentication/user"
)

const (
	headerAuthorization = "Authorization"
	headerProtocol      = "Sec-Websocket-Protocol"
	// protocolToken begins the WebSocket protocol in which browsers send a token.
	protocolToken = "base64url.bearer.authorization.k8s.io." //nolint:gosec // It says what follows, and is no token.
	// prefixImpersonate begins the headers by which a caller asks as somebody else. The hub checks whether the caller may.
	prefixImpersonate = "Impersonate-"
)

// caller is who sends a request. Only the hub knows whether the token is good.
type caller struct {
	token       string
	impersonate http.Header
}

// callerOf takes the token out of a request. ok is false without a token, or with one that would be another one in a
// header: a token of a WebSocket protocol can have spaces, and the hub would read what stands before the first one, or
// nothing.
func callerOf(r *http.Request) (c caller, ok bool) {
	take := authenticator.TokenFunc(func(_ context.Context, token string) (*authenticator.Response, bool, error) {
		c.token = token
		return &authenticator.Response{User: &user.DefaultInfo{}}, true, nil
	})
	// An error means that the request has no token that could be used.
	if _, ok, _ = bearertoken.New(take).AuthenticateRequest(r); !ok {
		_, ok, _ = websocket.NewProtocolAuthenticator(take).AuthenticateRequest(r)
	}
	c.impersonate = http.Header{}
	for name, values := range r.Header {
		if strings.HasPrefix(name, prefixImpersonate) {
			c.impersonate[name] = values
		}
	}
	return c, ok && !strings.ContainsFunc(c.token, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) })
}

// withoutToken returns the WebSocket protocols of a request without those that are tokens.
func withoutToken(header http.Header) (protocols []string) {
	for _, values := range header.Values(headerProtocol) {
		for protocol := range strings.SplitSeq(values, ",") {
			if protocol = strings.TrimSpace(protocol); !strings.HasPrefix(protocol, protocolToken) {
				protocols = append(protocols, protocol)
			}
		}
	}
	return protocols
}

// key identifies the caller in caches without showing the token.
func (c *caller) key() [sha256.Size]byte {
	hash := sha256.New()
	write := func(text string) {
		_, _ = hash.Write([]byte(text)) // It never fails.
		_, _ = hash.Write([]byte{0})
	}
	write(c.token)
	names := make([]string, 0, len(c.impersonate))
	for name := range c.impersonate {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		write(name)
		for _, value := range c.impersonate[name] {
			write(value)
		}
		write("")
	}
	return [sha256.Size]byte(hash.Sum(nil))
}

// hash is key as a text.
func (c *caller) hash() string {
	key := c.key()
	return string(key[:])
}

// asCaller sends the requests of one caller to the hub.
type asCaller struct {
	caller *caller
	next   http.RoundTripper
}

// RoundTrip sends a request with the caller's token.
func (a asCaller) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	a.caller.authorize(r.Header)
	return a.next.RoundTrip(r)
}

// authorize gives the headers of a request to the hub what says who sends it. The token is nowhere else: if it were no
// good, the hub would take another one of the protocols.
func (c *caller) authorize(header http.Header) {
	if protocols := withoutToken(header); len(protocols) > 0 {
		header.Set(headerProtocol, strings.Join(protocols, ", "))
	} else {
		header.Del(headerProtocol)
	}
	header.Set(headerAuthorization, "Bearer "+c.token)
	for name, values := range c.impersonate {
		header[name] = values
	}
}
