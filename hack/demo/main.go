// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Demo starts a hub and two workers with different GPUs on this machine, submits TrainJobs to the hub, and shows what
// happens to them. With DEMO_EXIT=1 it ends when all have ended, with exit code 0 if each ended as it should.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/trainyard/trainyard/test/yard"
)

// patience is how long the jobs may take.
const patience = 5 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := demo(ctx, os.Getenv("DEMO_EXIT") != ""); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1) //nolint:gocritic // stop has nothing left to do.
	}
}

func demo(ctx context.Context, exit bool) (err error) {
	dir, err := filepath.Abs(".demo")
	if err != nil {
		return err
	}
	began := time.Now()
	say := func(format string, args ...any) {
		fmt.Printf("%5.1fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	y, err := yard.Start(ctx, yard.Options{Dir: dir, HubNodes: hubNodes(), OpenAPI: true, Workers: workers(), Progress: say})
	if err != nil {
		return err
	}
	defer func() {
		fmt.Println("\nStopping the clusters.")
		err = errors.Join(err, y.Stop())
	}()
	hub, err := yard.NewClient(y.Hub)
	if err != nil {
		return err
	}
	say("installing Kubeflow Trainer's runtime torch-distributed on the hub, and only there")
	if err := yard.InstallRuntimes(ctx, y.Hub); err != nil {
		return err
	}
	say("submitting %d TrainJobs to the hub", len(jobs()))
	if err := submit(ctx, hub); err != nil {
		return err
	}
	fmt.Println()
	watching, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := watch(watching, hub, os.Stdout); err != nil {
		return fmt.Errorf("%w (the logs are in %s/*/logs)", err, dir)
	}
	explain(y)
	if exit {
		return nil
	}
	fmt.Println("\nThe clusters keep running until Ctrl-C.")
	<-ctx.Done()
	return nil
}

// explain prints how to reach each cluster.
func explain(y *yard.Yard) {
	fmt.Printf("\nEvery job ended as it should. Look around:\n\n")
	for _, name := range []string{yard.HubName, "a10", "h100"} {
		fmt.Printf("  bin/kubectl --kubeconfig %s get trainjobs,jobsets,pods\n", kubeconfigOf(y, name))
	}
	fmt.Printf("\n  bin/kubectl --kubeconfig %[1]s get workerclusters,dispatches\n"+
		"  bin/kubectl --kubeconfig %[1]s get events --field-selector involvedObject.kind=TrainJob\n", kubeconfigOf(y, yard.HubName))
}

// kubeconfigOf is relative to this folder, where the user is.
func kubeconfigOf(y *yard.Yard, name string) string {
	path := y.Clusters()[name].KubeconfigPath
	here, err := filepath.Abs(".")
	if err != nil {
		return path
	}
	relative, err := filepath.Rel(here, path)
	if err != nil {
		return path
	}
	return relative
}
