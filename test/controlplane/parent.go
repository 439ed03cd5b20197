// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"os"
)

// endWithStdin is the environment variable that ties a part's life to its standard input.
const endWithStdin = "TRAINYARD_END_WITH_STDIN"

// exitWithStdin ends the process, at once and without a clean-up, when
// standard input ends. Whoever held its other end is gone, and there is nobody
// left for whom a clean-up would be of use.
func exitWithStdin() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(1)
}
