// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"testing"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/yard"
)

// answer is what a client gets.
type answer struct {
	code   int
	header http.Header
	body   []byte
}

// send sends a request of a user as the Python client of Kubernetes does, see ask.
func send(t *testing.T, u *yard.User, method, path string, query url.Values, body any) answer {
	t.Helper()
	res, err := ask(t.Context(), u, method, path, query, body)
	check.Must(t, err)
	a, err := read(res)
	check.Must(t, err)
	return a
}

// ask sends a request of a user as the Python client of Kubernetes does: HTTP/1.1, plain JSON, and the type of a body
// also without a body. A body that is not nil is encoded. A patch is a merge patch.
func ask(ctx context.Context, u *yard.User, method, path string, query url.Values, body any) (*http.Response, error) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(y.Gateway.CABundle)
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots}, TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{},
		DisableKeepAlives: true, // Nobody closes the client.
	}}
	target := "https://" + y.GatewayAddress() + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	var text io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		text = bytes.NewReader(encoded)
	}
	r, err := http.NewRequestWithContext(ctx, method, target, text)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "bearer "+u.Token)
	r.Header.Set("Accept", "application/json")
	r.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/merge-patch+json")
	}
	r.Header.Set("User-Agent", "OpenAPI-Generator/34.1.0/python")
	return client.Do(r)
}

// read reads an answer to its end.
func read(res *http.Response) (answer, error) {
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header, body}, err
}
