// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"unicode"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/trainyard/trainyard/test/check"
)

// readBy returns the token that an API server reads in a request, empty if it reads none.
func readBy(r *http.Request) (token string) {
	take := authenticator.TokenFunc(func(_ context.Context, text string) (*authenticator.Response, bool, error) {
		token = text
		return &authenticator.Response{User: &user.DefaultInfo{}}, true, nil
	})
	// This is the order in which kube-apiserver asks.
	for _, one := range []authenticator.Request{bearertoken.New(take), websocket.NewProtocolAuthenticator(take)} {
		if _, ok, err := one.AuthenticateRequest(r); ok && err == nil {
			return token
		}
	}
	return ""
}

// FuzzCaller: the gateway takes the token that an API server would take. The hub reads the same token in what it gets, by
// one way only, and a worker can read none.
func FuzzCaller(f *testing.F) {
	protocol := func(token string) string { return protocolToken + base64.RawURLEncoding.EncodeToString([]byte(token)) }
	for _, authorization := range []string{"", "Bearer " + good, "bearer  two", "Bearer a b", "Bearer", "Bearer ", "Bearer \ta", "Basic YTpi", "Bearer a,Bearer b", "BEARER\u00a0x y"} {
		f.Add(authorization, "", "", "")
		f.Add(authorization, "v5.channel.k8s.io, "+protocol(good), "Upgrade", "websocket")
	}
	for _, protocols := range []string{
		protocol(good), protocol("a") + "," + protocol("b"), "v4," + protocol(""), "v4," + protocol(" a"), "v4," + protocol("a b"), "v4," + protocol("a\r\nX-Remote-User: root"),
		"v4," + protocol("\u00a0"), "v4," + protocol("\xff"), "v4," + protocolToken + "!", "v4, " + protocol("a") + "=", ",," + protocol("a"), "v4,\t" + protocol("a"), strings.ToUpper(protocol("a")) + ",v4",
	} {
		f.Add("", protocols, "keep-alive, Upgrade", "WebSocket")
		f.Add("", protocols, "", "")
	}
	f.Fuzz(func(t *testing.T, authorization, protocols, connection, upgrade string) {
		request := func() *http.Request {
			r := &http.Request{Method: http.MethodGet, URL: &url.URL{Scheme: "https", Host: "gateway", Path: podURL + "/exec"}, Header: http.Header{}}
			for name, value := range map[string]string{headerAuthorization: authorization, headerProtocol: protocols, "Connection": connection, "Upgrade": upgrade} {
				if value != "" {
					r.Header.Set(name, value)
				}
			}
			return r
		}
		r := request()
		c, ok := callerOf(r)
		read := readBy(request())
		if ok && c.token != read {
			t.Fatalf("the token is taken for %q, and an API server takes it for %q", c.token, read)
		}
		if !ok {
			plain := !strings.ContainsFunc(read, func(c rune) bool { return unicode.IsControl(c) || unicode.IsSpace(c) })
			if read != "" && plain {
				t.Fatalf("the token %q is refused, and an API server takes it", read)
			}
			return
		}

		atHub := r.Clone(t.Context())
		c.authorize(atHub.Header)
		check.Diff(t, []string{"Bearer " + c.token}, atHub.Header.Values(headerAuthorization), "Authorization of a request to the hub")
		byProtocol := atHub.Clone(t.Context())
		byProtocol.Header.Del(headerAuthorization)
		if second := readBy(byProtocol); second != "" {
			t.Fatalf("the hub can read the token %q as a protocol, too: %q", second, atHub.Header)
		}
		if again := readBy(atHub); again != c.token {
			t.Fatalf("the token %q is %q at the hub", c.token, again)
		}

		out := &httputil.ProxyRequest{In: r, Out: r.Clone(t.Context())}
		rebuild(out, &apirequest.RequestInfo{Namespace: "team", Name: pod, Subresource: "exec"}, &worker{base: &url.URL{Scheme: "https", Host: "worker"}})
		check.Equal(t, "", out.Out.Header.Get(headerAuthorization), "Authorization of a request to a worker")
		if left := readBy(out.Out); left != "" {
			t.Fatalf("a worker can read the token %q in %q", left, out.Out.Header)
		}
	})
}
