// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/remote/bounded"
)

// The fields of a list and of a table that have what is listed.
const fieldItems, fieldRows = "items", "rows"

// pageSize is how many objects are asked for at a time.
const pageSize = 500

var errRedirect = errors.New("the server redirects to another address, and redirects are not followed")

// server is an API server that answers a part of a merged answer: the hub, as its caller, or a worker.
type server struct {
	base      *url.URL
	transport http.RoundTripper
	// trusted says that answers may have any size.
	trusted bool
}

func (w *worker) server() *server {
	return &server{base: w.base, transport: w.requests}
}

// get sends a request. The answer of a worker is bounded, and of a watch each event.
func (s *server) get(ctx context.Context, path string, query url.Values, accept string, watch bool) (*http.Response, error) {
	target := *s.base
	target.Path, target.RawPath = strings.TrimSuffix(target.Path, "/")+path, ""
	target.RawQuery = query.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", accept)
	res, err := s.transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if res.StatusCode >= 300 && res.StatusCode < 400 {
		_ = res.Body.Close() // Nobody reads it.
		return nil, errRedirect
	}
	if s.trusted {
		return res, nil
	}
	limit := int64(bounded.MaxPage)
	if watch {
		limit = bounded.MaxObject
	}
	bounded.Answer(res, limit, watch)
	return res, nil
}

// page is a page of a list or of a table.
type page struct {
	// head is the list without its items or rows.
	head    fields
	items   []shown
	version string
	next    string
}

// readPage reads a page, and closes the answer.
func readPage(res *http.Response) (*page, error) {
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	return parsePage(body)
}

func parsePage(body []byte) (*page, error) {
	p := &page{}
	if err := json.Unmarshal(body, &p.head); err != nil {
		return nil, fmt.Errorf("decode list: %w", err)
	}
	var list metav1.ListMeta
	if err := json.Unmarshal(p.head["metadata"], &list); err != nil {
		return nil, fmt.Errorf("decode metadata of list: %w", err)
	}
	p.version, p.next = list.ResourceVersion, list.Continue
	var items []*object
	var rows []*row
	for name, to := range map[string]any{fieldItems: &items, fieldRows: &rows} {
		if raw := p.head[name]; raw != nil {
			if err := json.Unmarshal(raw, to); err != nil {
				return nil, fmt.Errorf("decode %s: %w", name, err)
			}
		}
		delete(p.head, name)
	}
	for _, o := range items {
		p.items = append(p.items, shown{object: o})
	}
	for _, r := range rows {
		p.items = append(p.items, shown{object: r.of, row: r})
	}
	return p, nil
}

// statusOf reads why a server has refused a request, and closes the answer.
func statusOf(res *http.Response) *metav1.Status {
	defer func() { _ = res.Body.Close() }()
	status := &metav1.Status{}
	body, err := io.ReadAll(io.LimitReader(res.Body, bounded.MaxSmall))
	if err != nil || json.Unmarshal(body, status) != nil || status.Kind != "Status" {
		status = &metav1.Status{Message: http.StatusText(res.StatusCode)}
	}
	status.Code = int32(res.StatusCode) //nolint:gosec // It has three digits.
	return status
}
