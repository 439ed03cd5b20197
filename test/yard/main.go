// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package yard

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/trainyard/trainyard/test/check"
)

// startTimeout is for all clusters and processes, on a machine that may be busy.
const startTimeout = 30 * time.Minute

// Main is the TestMain of a package whose tests share a yard: it calls start, runs the tests, calls stop, and exits.
// The context limits only the start. start may return a stop together with an error: Main calls it.
func Main(m *testing.M, start func(ctx context.Context) (stop func() error, err error)) {
	check.Parallel()               // It also parses the flags, which may say what start is to do.
	ctrl.SetLogger(logr.Discard()) // Clients log warnings of API servers. Without a logger they print a stack, once.
	code, err := run(m, start)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M, start func(ctx context.Context) (stop func() error, err error)) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	stop, err := start(ctx)
	if stop != nil {
		defer func() { err = errors.Join(err, stop()) }()
	}
	if err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// Print prints a line. It can be Options.Progress.
func Print(format string, args ...any) { fmt.Printf(format+"\n", args...) }
