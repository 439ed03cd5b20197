// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"flag"
	"strconv"
)

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
