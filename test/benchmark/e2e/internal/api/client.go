// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// Content types of bodies.
const (
	JSON       = "application/json"
	MergePatch = "application/merge-patch+json"
)

// Client is a client of one API server. It may be used concurrently.
type Client struct {
	// Requests that this client has made.
	Requests *Counter

	base string
	http *http.Client
}

// New returns a client that reaches the server as the configuration says.
func New(config *rest.Config) (*Client, error) {
	c := &Client{Requests: NewCounter(), base: strings.TrimSuffix(config.Host, "/")}
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counting{next, c.Requests} })
	var err error
	if c.http, err = rest.HTTPClientFor(config); err != nil {
		return nil, fmt.Errorf("create client of %s: %w", config.Host, err)
	}
	c.http.Timeout = 0 // Watches last.
	return c, nil
}

// Do sends a request, and returns the body of the answer, or an error if the server refuses.
func (c *Client) Do(ctx context.Context, method, path, contentType string, body []byte) ([]byte, error) {
	response, err := c.send(ctx, method, path, contentType, body)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	return answer, nil
}

// Error is the answer of a server that refuses a request.
type Error struct {
	Code    int
	message string
}

func (e *Error) Error() string { return e.message }

// send sends a request, and again while the server asks for patience, as it does for a moment after it has got a CRD.
func (c *Client) send(ctx context.Context, method, path, contentType string, body []byte) (*http.Response, error) {
	for {
		response, err := c.sendOnce(ctx, method, path, contentType, body)
		if answer := (*Error)(nil); !errors.As(err, &answer) || answer.Code != http.StatusTooManyRequests {
			return response, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(time.Second):
		}
	}
}

func (c *Client) sendOnce(ctx context.Context, method, path, contentType string, body []byte) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	request.Header.Set("Accept", JSON)
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode >= http.StatusBadRequest {
		defer response.Body.Close()
		answer, _ := io.ReadAll(io.LimitReader(response.Body, 4<<10))
		return nil, &Error{Code: response.StatusCode, message: fmt.Sprintf("%s %s: %s: %s", method, path, response.Status, answer)}
	}
	return response, nil
}
