// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"testing"
	"time"

	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Patience is a timeout for quick things on a machine that may be busy.
const Patience = 60 * time.Second

// slowestPoll is for what takes seconds. Most checks read from an API server, whose CPU time is what tests wait for on
// a small machine.
const slowestPoll = 200 * time.Millisecond

// Must ends the test if there is an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Eventually waits until a check succeeds, for Patience at most. Then the test ends, and says what it has waited for.
func Eventually(t testing.TB, what string, check func(gomega.Gomega)) {
	t.Helper()
	Within(Patience, 10*time.Millisecond)(t, what, check)
}

// Within returns a function that does what Eventually does, with another patience. The time between two checks is poll
// at first. It grows by half with each check, up to slowestPoll. What the test has waited for may be empty: the check
// then says it alone.
func Within(patience, poll time.Duration) func(t testing.TB, what string, check func(gomega.Gomega)) {
	return func(t testing.TB, what string, check func(gomega.Gomega)) {
		t.Helper()
		var description []any
		if what != "" {
			description = []any{what}
		}
		interval := poll * 2 / 3 // The first check is made at once.
		slower := func(g gomega.Gomega) {
			<-time.After(interval - poll)
			interval = min(interval*3/2, max(slowestPoll, poll)) // Before the check: one that fails does not return.
			check(g)
		}
		gomega.NewWithT(t).Eventually(slower, patience, poll).Should(gomega.Succeed(), description...)
	}
}

// TrainJob reads a TrainJob. It returns nil if there is none.
func TrainJob(t testing.TB, reader client.Reader, key client.ObjectKey) *unstructured.Unstructured {
	t.Helper()
	job := trainjobs.New()
	if !exists(t, reader, key, job) {
		return nil
	}
	return job
}

// Dispatch reads a Dispatch. It returns nil if there is none.
func Dispatch(t testing.TB, reader client.Reader, key client.ObjectKey) *v1alpha1.Dispatch {
	t.Helper()
	d := &v1alpha1.Dispatch{}
	if !exists(t, reader, key, d) {
		return nil
	}
	return d
}

// exists reads an object, and returns false if there is none.
func exists(t testing.TB, reader client.Reader, key client.ObjectKey, object client.Object) bool {
	t.Helper()
	err := reader.Get(context.WithoutCancel(t.Context()), key, object)
	Must(t, client.IgnoreNotFound(err))
	return err == nil
}
