// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// TestBadTokensBreakNoWrites: an API server closes the HTTP/2 connection of whoever comes with a bad token. The writes of
// others do not end with it.
func TestBadTokensBreakNoWrites(t *testing.T) {
	w := newWorld(t, &workerServer{hub: func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 && r.Header.Get("Authorization") != "Bearer "+good {
			w.Header().Set("Connection", "close") // As k8s.io/apiserver/pkg/endpoints/filters does.
		}
		if r.Method != http.MethodPost || strings.Contains(r.URL.Path, "selfsubject") {
			hubServer(w, r)
			return
		}
		_, _ = io.WriteString(w, "written") // The client may have gone.
	}})
	client := w.gateway.Client()
	ask := func(method, token, body string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), method, w.gateway.URL+"/api/v1/namespaces/team/configmaps", strings.NewReader(body))
		if err != nil {
			return 0, err.Error()
		}
		r.Header.Set("Authorization", "Bearer "+token)
		res, err := client.Do(r)
		if err != nil {
			return 0, err.Error()
		}
		defer func() { _ = res.Body.Close() }()
		all, _ := io.ReadAll(res.Body) // What was cut is a result, too.
		return res.StatusCode, string(all)
	}
	done := make(chan struct{})
	var bad sync.WaitGroup
	for range 4 {
		bad.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					_, _ = ask(http.MethodGet, "bad", "")
				}
			}
		})
	}
	defer bad.Wait()
	defer close(done)
	for range 300 {
		if code, answer := ask(http.MethodPost, good, "text"); code != http.StatusOK || answer != "written" {
			t.Fatalf("a write is answered with %d: %s", code, answer)
		}
	}
}
