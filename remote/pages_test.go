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

	"github.com/trainyard/trainyard/test/check"
)

// next returns a request for the next page of a list, or for the first page if the token is empty.
func next(t *testing.T, path, token string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://worker"+path+"?limit=500&continue="+token, nil)
	check.Must(t, err)
	return req
}

// TestListWithoutEnd checks that a client stops following a worker that returns Continue tokens for ever.
func TestListWithoutEnd(t *testing.T) {
	const pods, jobs = "/api/v1/pods", "/apis/trainer.kubeflow.org/v1alpha1/trainjobs"
	clock := clocktesting.NewFakeClock(time.Now())
	var p pages
	admit := func(path, token string) error {
		req := next(t, path, token)
		_, err := p.admit(req, callOf(req, ""), clock)
		return err
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
	check.Must(t, errors.Join(admit(jobs, ""), admit(jobs, "more")))
	clock.Step(maxListTime + 1)
	if err := admit(jobs, "more"); !errors.Is(err, ErrEndlessList) {
		t.Errorf("after %s: %v, want that there is no end", maxListTime, err)
	}
}

// TestEndlessListIsSaid checks that the worker's state names endless lists, also for a worker that was connected.
func TestEndlessListIsSaid(t *testing.T) {
	f := observation{
		answer: answered, pinned: "id", id: "id", synced: true, excesses: []string{"list pods: " + ErrEndlessList.Error()},
		apis: apis{kubernetes: "v1.36.3", trainJob: true, jobSet: true},
	}
	v := decide(f, Status{State: Connected}, time.Now(), &Options{})
	if v.state != Connecting || v.gate != cachesOnly || !strings.Contains(v.message, "list pods: the worker's list does not end") {
		t.Errorf("the decision is %+v", v)
	}
}

// TestSmallerPages checks that a client asks for smaller pages of a list after a page that was too large, until the
// pages have as few objects as always fit.
func TestSmallerPages(t *testing.T) {
	var p pages
	limits := []string{}
	for {
		req := next(t, "/api/v1/pods", "")
		req, err := p.admit(req, callOf(req, ""), clocktesting.NewFakeClock(time.Now()))
		check.Must(t, err)
		limits = append(limits, req.URL.Query().Get("limit"))
		if !p.shrink(req) {
			break
		}
	}
	if want := "500 125 31 8"; strings.Join(limits, " ") != want {
		t.Errorf("the pages have %q objects, want %q", limits, want)
	}
	other := next(t, "/api/v1/nodes", "")
	if got, _ := p.admit(other, callOf(other, ""), clocktesting.NewFakeClock(time.Now())); got != other {
		t.Error("another list has smaller pages too")
	}
}

// TestReflectorsAskForPages checks that a reflector's list at a resource version, which an API server answers in one
// page, is sent without it.
func TestReflectorsAskForPages(t *testing.T) {
	cases := map[string]struct {
		reason      string
		query, want string
	}{
		"First":    {"Version 0 lets an API server ignore the limit.", "limit=500&resourceVersion=0", "limit=500"},
		"NotOlder": {"The latest state is not older.", "limit=5&resourceVersion=7&resourceVersionMatch=NotOlderThan", "limit=5"},
		"Latest":   {"It has pages.", "limit=500", "limit=500"},
		"Next":     {"A Continue token has a version of its own.", "continue=x&limit=500", "continue=x&limit=500"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://worker/api/v1/pods?"+tc.query, nil)
			check.Must(t, err)
			check.Equal(t, tc.want, paged(req).URL.RawQuery, "%s: asks for", tc.reason)
		})
	}
}
