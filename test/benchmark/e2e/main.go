// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Bench measures dispatchers on clusters that it starts on this machine: see docs/benchmarks.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := bench(ctx, os.Args[1:]); err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1) //nolint:gocritic // stop has nothing left to do.
	}
}

func bench(ctx context.Context, args []string) error {
	o := defaultOptions()
	fs := pflag.NewFlagSet("bench", pflag.ContinueOnError)
	o.addFlags(fs)
	if err := fs.Parse(args); err != nil {
		return err
	}
	if err := o.complete(); err != nil {
		return err
	}
	if o.baseline != "" {
		if fs.Changed("systems") {
			return fmt.Errorf("--baseline compares Trainyard with Trainyard: leave out --systems")
		}
		return o.compare(ctx)
	}
	return o.all(ctx)
}
