// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"flag"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"
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

// Diff fails the test if what it has got differs from what it wants. What names the thing or gives the reason.
func Diff(t testing.TB, want, got any, what string, options ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, options...); diff != "" {
		t.Error(strings.TrimSpace(what + " (-want +got):\n" + diff))
	}
}

// Equal fails the test if it has not got what it wants. What names the thing or gives the reason, with args as Sprintf
// has them.
func Equal[T comparable](t testing.TB, want, got T, what string, args ...any) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %+v, want %+v", fmt.Sprintf(what, args...), got, want)
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

// parallelTests is how many tests that call t.Parallel run at a time. With more, a busy machine is slower at everything,
// and tests wait for longer than they may.
const parallelTests = 10

// Parallel lets tests that call t.Parallel run at the same time. Go would run as many of them as GOMAXPROCS says, which
// hack/test.sh sets to 1, although tests on clusters wait more than they compute. A -parallel on the command line counts
// more. A TestMain calls Parallel before it runs the tests.
func Parallel() {
	flag.Parse()
	const name = "test.parallel"
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == name })
	if given {
		return
	}
	if err := flag.Set(name, strconv.Itoa(parallelTests)); err != nil {
		panic(err) // Only a TestMain has the flags of go test.
	}
}
