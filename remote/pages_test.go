// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// next returns a request for the next page of a list, or for the first page if the token is empty.
func next(t *testing.T, path, token string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://worker"+path+"?limit=500&continue="+token, nil)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// TestListWithoutEnd checks that a client stops following a worker that returns Continue tokens for ever.
func TestListWithoutEnd(t *testing.T) {
	const pods, jobs = "/api/v1/pods", "/apis/trainer.kubeflow.org/v1alpha1/trainjobs"
	clock := clocktesting.NewFakeClock(time.Now())
	var p pages
	admit := func(path, token string) error {
		req := next(t, path, token)
		return p.admit(req, callOf(req, ""), clock)
	}
	for range 2 { // The second list starts a new count.
		for page := range maxPages {
			token := ""
			if page > 0 {
				token = "more"
			}
			if err := errors.Join(admit(pods, token), admit(jobs, "")); err != nil {
				t.Fatalf("page %d: %v", page, err)
			}
		}
		if err := admit(pods, "more"); !errors.Is(err, ErrEndlessList) || !strings.Contains(err.Error(), "list pods") {
			t.Errorf("after %d pages: %v, want that there is no end", maxPages, err)
		}
	}
	if err := errors.Join(admit(jobs, ""), admit(jobs, "more")); err != nil {
		t.Error(err)
	}
	clock.Step(maxListTime + 1)
	if err := admit(jobs, "more"); !errors.Is(err, ErrEndlessList) {
		t.Errorf("after %s: %v, want that there is no end", maxListTime, err)
	}
}

// TestEndlessListIsSaid checks that the worker's state names endless lists, also for a worker that was connected.
func TestEndlessListIsSaid(t *testing.T) {
	f := observation{
		answer: answered, pinned: "id", id: "id", synced: true, endless: []string{"pods"},
		apis: apis{kubernetes: "v1.36.3", trainJob: true, jobSet: true},
	}
	v := decide(f, Status{State: Connected}, time.Now(), &Options{})
	if v.state != Connecting || v.gate != cachesOnly || !strings.Contains(v.message, "the worker's lists of pods have no end") {
		t.Errorf("the decision is %+v", v)
	}
}
