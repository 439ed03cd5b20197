// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/test/check"
)

// TestLimitsOfLists: a caller with 100 lists under way gets a 429 that says so, and others do not, until all have 500. A
// list that ends makes room.
func TestLimitsOfLists(t *testing.T) {
	check.Equal(t, 100, maxListsOfCaller, "lists of one caller that docs/gateway.md promises")
	check.Equal(t, 500, maxLists, "lists of all that docs/gateway.md promises")
	const list = "/api/v1/namespaces/team/pods"
	began, proceed := make(chan struct{}), make(chan struct{})
	w := newWorld(t, &workerServer{hub: func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("labelSelector") == "slow" {
			began <- struct{}{}
			<-proceed
		}
		r.Header.Set("Authorization", "Bearer "+good) // All tokens are good.
		hubServer(w, r)
	}})
	limits := w.handler().listing
	fill := func(name string, count int) {
		for range count {
			if _, ok := limits.enter(name); !ok {
				t.Fatalf("%q may not have %d lists", name, count)
			}
		}
	}
	refused := func(header ...string) {
		t.Helper()
		before := len(w.hub.all())
		for _, path := range []string{list, list + "?limit=1", "/api/v1/pods", "/api/v1/namespaces/team/events", "/apis/events.k8s.io/v1/namespaces/team/events"} {
			a := w.send(t, http.MethodGet, path, header...)
			check.Equal(t, http.StatusTooManyRequests, a.code, "code of %s: %s", path, a.body)
			said := &metav1.Status{}
			check.Must(t, json.Unmarshal([]byte(a.body), said))
			check.Equal(t, metav1.StatusReasonTooManyRequests, said.Reason, "reason")
			check.Equal(t, int32(http.StatusTooManyRequests), said.Code, "code in the status")
			check.Equal(t, "too many lists of pods and Events are under way: ask less often", said.Message, "message")
		}
		check.Equal(t, before, len(w.hub.all()), "requests that the hub received")
	}
	permitted := func(header ...string) {
		t.Helper()
		a := w.send(t, http.MethodGet, list, header...)
		check.Equal(t, http.StatusOK, a.code, "code: %s", a.body)
	}
	ada := &caller{token: good, impersonate: http.Header{}}

	fill(ada.hash(), maxListsOfCaller-1)
	ended := make(chan int)
	go func() { ended <- w.send(t, http.MethodGet, list+"?labelSelector=slow").code }()
	<-began // It is the last one that may be under way.
	refused()
	permitted("Authorization", "Bearer of-bob")
	permitted("Impersonate-User", "eve") // The hub counts eve as another one, too.
	close(proceed)
	check.Equal(t, http.StatusOK, <-ended, "code of the slow list")
	permitted()

	for _, name := range []string{"a", "b", "c", "d"} {
		fill(name, maxListsOfCaller)
	}
	fill("e", 1)
	refused("Authorization", "Bearer of-bob")
	refused()
	check.Equal(t, http.StatusNotFound, w.send(t, http.MethodGet, "/api/v1/namespaces/team/secrets").code, "code of a list of others")
}

// TestFaultWorkerHangsOnALaterPage: a list whose later page does not come ends while the worker hangs, and is cut, so that
// nobody takes it for the whole.
func TestFaultWorkerHangsOnALaterPage(t *testing.T) {
	hangs, s := make(chan struct{}), &workerServer{answerTimeout: 500 * time.Millisecond}
	s.evil = func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case r.URL.Path != "/api/v1/namespaces/team/pods":
			return false
		case r.URL.Query().Get("continue") != "":
			<-hangs
			return true
		}
		answerJSON(w, corev1.PodList{
			TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "9", Continue: "more"},
			Items: []corev1.Pod{*s.pod("team", pod)},
		})
		return true
	}
	w := newWorld(t, s)
	defer close(hangs)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.gateway.URL+"/api/v1/namespaces/team/pods", nil)
	check.Must(t, err)
	r.Header.Set("Authorization", "Bearer "+good)
	res, err := w.gateway.Client().Do(r)
	if err != nil {
		return // Nothing of the list has been sent.
	}
	defer func() { _ = res.Body.Close() }()
	if body, err := io.ReadAll(res.Body); err == nil {
		t.Errorf("the list looks whole: %s", body)
	}
}
