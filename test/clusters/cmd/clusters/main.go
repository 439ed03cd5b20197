// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/trainyard/trainyard/test/clusters"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "clusters:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	root := &cobra.Command{
		Use:           "clusters",
		Short:         "Kubernetes clusters of local processes",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(upCommand())
	return root.ExecuteContext(ctx)
}

// upFlags are the flags of "clusters up".
type upFlags struct {
	dir          string
	nodes        []string
	crds         []string
	jobSet       bool
	endWithStdin bool
}

func upCommand() *cobra.Command {
	var f upFlags
	cmd := &cobra.Command{
		Use:   "up NAME...",
		Short: "Start clusters and keep them until Ctrl-C",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, names []string) error {
			options, err := f.options(names)
			if err != nil {
				return err
			}
			return up(cmd.Context(), cmd.OutOrStdout(), f, options)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.dir, "dir", "", "directory for state, logs and kubeconfigs, one below it per cluster; what an earlier run left there is removed (default: temporary directories, removed at the end)")
	flags.StringArrayVar(&f.nodes, "nodes", nil, "nodes of a cluster, as NAME=COUNTxRESOURCE=AMOUNT[,RESOURCE=AMOUNT...], for example worker-1=8xnvidia.com/gpu=8,cpu=64; can be repeated")
	flags.StringArrayVar(&f.crds, "crds", nil, "file or directory with CustomResourceDefinitions for all clusters; can be repeated")
	flags.BoolVar(&f.jobSet, "jobset", false, "install JobSet on all clusters")
	flags.BoolVar(&f.endWithStdin, "end-with-stdin", false, "end when standard input does")
	return cmd
}

// options returns the options of the named clusters.
func (f upFlags) options(names []string) ([]clusters.Options, error) {
	nodes, err := parseNodes(f.nodes)
	if err != nil {
		return nil, err
	}
	var all []clusters.Options
	for _, name := range names {
		o := clusters.Options{Name: name, ControllerManager: true, Scheduler: true, OpenAPI: true, JobSet: f.jobSet, CRDs: f.crds, Nodes: nodes[name]}
		if f.dir != "" {
			o.Dir = filepath.Join(f.dir, name)
		}
		delete(nodes, name)
		all = append(all, o)
	}
	for name := range nodes {
		return nil, fmt.Errorf("--nodes is for a cluster %q, which is not among those to start", name)
	}
	return all, nil
}

func up(ctx context.Context, out io.Writer, f upFlags, options []clusters.Options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go endWithParent(cancel)
	if f.endWithStdin {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			cancel()
		}()
	}
	started := time.Now()
	all, err := clusters.StartAll(ctx, options...)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Ready after %.1f s.\n", time.Since(started).Seconds())
	for _, c := range all {
		fmt.Fprintf(out, "\n%s\n  export KUBECONFIG=%s\n  logs: %s\n", c.Name, c.KubeconfigPath, filepath.Join(c.Dir, "logs"))
	}
	fmt.Fprintln(out, "\nbin/kubectl is kubectl, if you have none. Ctrl-C stops all clusters.")
	<-ctx.Done()
	fmt.Fprintln(out, "Stopping ...")
	return clusters.StopAll(all...)
}

// endWithParent calls cancel when this process has become the child of another process.
func endWithParent(cancel context.CancelFunc) {
	parent := os.Getppid()
	for range time.Tick(time.Second) {
		if os.Getppid() != parent {
			cancel()
			return
		}
	}
}
