// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/trainyard/trainyard/dispatch/record"
)

const (
	// endpointTimeout is for one request.
	endpointTimeout = 10 * time.Second
	// answerLimit is how much of an endpoint's answer an error quotes.
	answerLimit = 256
)

// Endpoint archives to an HTTPS endpoint: each entry is the body of one POST. An answer of 2xx says that the entry is
// kept. Redirects are not followed: they would give the token and the jobs to somebody else.
type Endpoint struct {
	url, tokenFile string
	client         *http.Client
}

// NewEndpoint takes a URL with the scheme https, and a file with a bearer token, which is read for each request. An
// empty tokenFile is for an endpoint that takes no token. transport verifies the server; nil: by the system's CAs.
func NewEndpoint(address, tokenFile string, transport http.RoundTripper) (*Endpoint, error) {
	parsed, err := url.Parse(address)
	if err != nil {
		return nil, errors.New("must be a URL") // The error of Parse would quote a password.
	}
	if parsed.Scheme != "https" || parsed.Host == "" || parsed.User != nil {
		return nil, errors.New("must be a URL that begins with https:// and has no user or password")
	}
	if tokenFile != "" {
		if _, err := os.ReadFile(tokenFile); err != nil {
			return nil, fmt.Errorf("read the token: %w", err)
		}
	}
	client := &http.Client{
		Timeout: endpointTimeout, Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return &Endpoint{url: address, tokenFile: tokenFile, client: client}, nil
}

// Keep sends an entry, and returns when the endpoint says that it is kept.
func (e *Endpoint) Keep(ctx context.Context, entry Entry) error {
	line, err := entry.line()
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(line))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	if e.tokenFile != "" {
		token, err := os.ReadFile(e.tokenFile)
		if err != nil {
			return fmt.Errorf("read the token of the archive: %w", err)
		}
		request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	response, err := e.client.Do(request)
	if err != nil {
		return fmt.Errorf("send to the archive: %w", err)
	}
	defer response.Body.Close()
	answer, _ := io.ReadAll(io.LimitReader(response.Body, answerLimit))
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("the archive answers %s: %s", response.Status, record.Shorten(string(answer), answerLimit))
	}
	return nil
}
