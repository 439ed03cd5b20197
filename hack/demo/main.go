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

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/clusters"
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
		"  bin/kubectl --kubeconfig %[1]s get events --field-selector involvedObject.kind=TrainJob\n"+
		"  bin/kubectl-trainyard --kubeconfig %[1]s board\n", kubeconfigOf(y, yard.HubName))
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

func hubNodes() []clusters.NodeShape {
	return []clusters.NodeShape{{Count: 1, NamePrefix: "cpu"}}
}

// workers have 16 GPUs each, in nodes of different size.
func workers() []yard.Worker {
	return []yard.Worker{{
		Name: "a10", Labels: map[string]string{"gpu": "a10"},
		Nodes: []clusters.NodeShape{yard.GPUNodes("a10", 4, 4, "NVIDIA-A10")},
	}, {
		Name: "h100", Labels: map[string]string{"gpu": "h100"},
		Nodes: []clusters.NodeShape{yard.GPUNodes("h100", 2, 8, "NVIDIA-H100-80GB-HBM3")},
	}}
}

// job is a TrainJob of the demo, and how it should end.
type job struct {
	yard.Job
	what string
	// where the job must run, empty for either worker. ends is Complete or Failed.
	where string
	ends  string
	// waits is true for a job that must have waited.
	waits bool
}

func jobs() []job {
	return []job{{
		what: "2 nodes with 8 GPUs each, which only the worker h100 has",
		Job:  yard.Job{Name: "llama-finetune", Nodes: 2, GPUs: 8, RunFor: "12s"}, where: "h100", ends: trainer.TrainJobComplete,
	}, {
		what: "the same again, so it waits until llama-finetune has ended",
		Job:  yard.Job{Name: "llama-pretrain", Nodes: 2, GPUs: 8, RunFor: "5s"}, where: "h100", ends: trainer.TrainJobComplete, waits: true,
	}, {
		what: "2 nodes with 1 GPU each, which both workers have",
		Job:  yard.Job{Name: "mnist", Nodes: 2, GPUs: 1, RunFor: "6s"}, ends: trainer.TrainJobComplete,
	}, {
		what: "fails after 4 seconds",
		Job:  yard.Job{Name: "bad-checkpoint", GPUs: 1, RunFor: "4s", Fail: "checkpoint is corrupt"}, ends: trainer.TrainJobFailed,
	}, {
		what: "managed by the hub's own TrainJob controller, so it is not dispatched",
		Job:  yard.Job{Name: "hub-eval", ManagedBy: v1alpha1.ManagedByBuiltIn, RunFor: "5s"}, where: yard.HubName, ends: trainer.TrainJobComplete,
	}}
}

// submit creates the jobs in order. The first job gets its worker before the others come, so that it is certain which
// job waits.
func submit(ctx context.Context, hub client.Client) error {
	for i, j := range jobs() {
		err := untilAnswered(ctx, func(ctx context.Context) (bool, error) {
			err := hub.Create(ctx, j.TrainJob())
			return err == nil || apierrors.IsAlreadyExists(err), err // An earlier answer may be lost.
		})
		if err != nil {
			return fmt.Errorf("create TrainJob %q: %w", j.Name, err)
		}
		fmt.Printf("        %-16s %s\n", j.Name, j.what)
		if i > 0 {
			continue
		}
		err = untilAnswered(ctx, func(ctx context.Context) (bool, error) {
			var dispatch v1alpha1.Dispatch
			err := hub.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: j.Name}, &dispatch)
			return dispatch.Spec.Cluster != "", client.IgnoreNotFound(err)
		})
		if err != nil {
			return fmt.Errorf("wait until TrainJob %q is placed: %w", j.Name, err)
		}
	}
	return nil
}

// untilAnswered calls ask until it is done or refused. The hub's API server shares the machine with all that the demo
// starts, so an answer can fail to come.
func untilAnswered(ctx context.Context, ask func(ctx context.Context) (done bool, err error)) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, refresh, patience, true, func(ctx context.Context) (done bool, err error) {
		if done, last = ask(ctx); refused(last) && !done {
			return false, last
		}
		return done, nil
	})
	if wait.Interrupted(err) {
		return errors.Join(err, last)
	}
	return err
}

// refused says whether an error is an answer that would be the same at the next try.
func refused(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsNotFound(err)
}
