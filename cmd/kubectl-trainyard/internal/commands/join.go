// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/utils/ptr"

	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/multikueue"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/registration"
)

const joinExamples = `  # What is wrong, and what would be written on both clusters
  kubectl trainyard join gpu-east --context gpu-east --dry-run=server

  # Register the cluster of a context with the hub of the current context
  kubectl trainyard join gpu-east --context gpu-east --label region=east --label gpu=h100 --agent-image REGISTRY/worker-agent:TAG

  # The hub reaches the worker's API server at another address than you
  kubectl trainyard join gpu-east --context gpu-east --server https://10.1.2.3:6443

  # Users of the hub's gateway may execute commands in the pods of their jobs there
  kubectl trainyard join gpu-east --context gpu-east --exec

  # Two kubeconfigs, and a worker where Kubeflow Trainer runs the TrainJobs
  kubectl trainyard join gpu-east --kubeconfig gpu-east.yaml --hub-kubeconfig hub.yaml --agent=trainer`

// clusterPair are the flags of commands that work on the hub and on a worker. In them --context and --kubeconfig are
// the worker's, because that is the cluster that such a command names.
type clusterPair struct {
	streams
	factory       *Factory
	context       string
	hubContext    string
	hubKubeconfig string
	dryRun        string
	timeout       time.Duration
}

func (p *clusterPair) addFlags(cmd *cobra.Command, timeout time.Duration, timeoutText string) {
	flags := cmd.Flags()
	flags.StringVar(&p.context, "context", "", "the context of the worker in your kubeconfig")
	flags.StringVar(&p.hubContext, "hub-context", "", "the context of the hub in your kubeconfig, the current one if it is not given")
	flags.StringVar(&p.hubKubeconfig, "hub-kubeconfig", "", "the kubeconfig of the hub, that of --kubeconfig if it is not given")
	flags.StringVar(&p.dryRun, "dry-run", string(multikueue.NoDryRun),
		"must be none or server: server has both API servers check what would be written, and changes nothing")
	flags.DurationVar(&p.timeout, "timeout", timeout, timeoutText)
	completeFlag(cmd, "dry-run", func(context.Context, []string) []string { return pairDryRuns() })
	completeFlag(cmd, "context", completer{p.factory}.contexts)
	completeFlag(cmd, "hub-context", completer{p.factory}.contexts)
}

func pairDryRuns() []string {
	return []string{string(multikueue.NoDryRun), string(multikueue.ServerDryRun)}
}

func (p *clusterPair) check() error {
	if !slices.Contains(pairDryRuns(), p.dryRun) {
		return fmt.Errorf("--dry-run is %q: must be none or server", p.dryRun)
	}
	if p.timeout <= 0 {
		return fmt.Errorf("--timeout is %s: must be positive", p.timeout)
	}
	return nil
}

// namesWorker is true if the flags say which cluster is the worker.
func (p *clusterPair) namesWorker() bool {
	return p.context != "" || ptr.Deref(p.factory.flags.KubeConfig, "") != "" && p.hubKubeconfig != ""
}

func (p *clusterPair) isDryRun() bool { return p.dryRun == string(multikueue.ServerDryRun) }

// namespace is the namespace of the manager.
func (p *clusterPair) namespace() string {
	return cmp.Or(p.factory.namespaceFlag(), multikueue.DefaultNamespace)
}

// hub returns the hub with the caller's rights. Flags for credentials, such as --token, are for the worker.
func (p *clusterPair) hub() (*registration.Cluster, error) {
	flags := genericclioptions.NewConfigFlags(true)
	flags.CacheDir = nil
	if path := cmp.Or(p.hubKubeconfig, ptr.Deref(p.factory.flags.KubeConfig, "")); path != "" {
		flags.KubeConfig = ptr.To(path)
	}
	if p.hubContext != "" {
		flags.Context = ptr.To(p.hubContext)
	}
	return p.cluster(registration.HubSide, p.hubContext, flags.WithWrapConfigFn(limitRate))
}

// worker returns the worker with the caller's rights.
func (p *clusterPair) worker() (*registration.Cluster, error) {
	flags := p.factory.flags
	if p.context != "" {
		flags.Context = ptr.To(p.context)
	}
	return p.cluster(registration.WorkerSide, p.context, flags)
}

func (p *clusterPair) cluster(side registration.Side, contextName string, flags *genericclioptions.ConfigFlags) (*registration.Cluster, error) {
	config, err := flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig of the %s: %w", side, err)
	}
	if raw, err := flags.ToRawKubeConfigLoader().RawConfig(); err == nil {
		contextName = cmp.Or(contextName, raw.CurrentContext)
	}
	cluster, err := registration.NewCluster(side, contextName, config, p.isDryRun())
	if err != nil {
		return nil, err
	}
	cluster.Kubeconfig = ptr.Deref(flags.KubeConfig, "")
	return cluster, nil
}

type joinOptions struct {
	clusterPair
	registration.Options
	agent string
	wait  bool
}

func newJoin(f *Factory, s streams) *cobra.Command {
	o := joinOptions{clusterPair: clusterPair{streams: s, factory: f}}
	cmd := &cobra.Command{
		Use:   "join NAME --context WORKER",
		Short: "Register a cluster as a worker",
		Long: `Register a cluster as a worker of the hub, with your rights on both clusters.

In this command --context names the worker, and --hub-context the hub: the current context if it is not given.

First both clusters are looked at, with a line for each item: ok, warn or FAIL. If one fails, nothing is written. Then the worker gets the
account trainyard-hub with the rights of config/worker, with those of config/worker-logs unless --logs=false, of config/worker-exec with
--exec, of config/worker-lookup with --lookup, of config/worker-dependencies with --dependencies and of config/worker-pins with --pins, and
what runs its TrainJobs (--agent); the hub gets a Secret with a kubeconfig of that account, the right of the manager to renew its token in this one Secret, and the WorkerCluster. In the end the command waits until
the manager has connected to the worker, or prints why it has not.

The token lives for --token-life, if the worker's API server lets it. The manager renews it long before it ends.

The command can be repeated, also after it was interrupted: it ends in the same way, and says "unchanged". Labels and prices that are not
named stay as they are. What is there under the names of these objects is taken over, such as a worker that was registered by an earlier
release.

--namespace is the namespace of Trainyard's manager on the hub, trainyard-system if it is not given. Needed are an admin's rights on the
worker, and on the hub the rights to write Secrets, Roles and RoleBindings in that namespace, and WorkerClusters.`,
		Example: joinExamples,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("name the worker: " + displayName + " join NAME --context WORKER")
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: namedWorker.arguments(func(cmd *cobra.Command, args []string) error {
			o.Name, o.Namespace, o.Agent = args[0], o.namespace(), registration.Agent(o.agent)
			if err := cmp.Or(o.check(), o.Validate()); err != nil {
				return err
			}
			if !o.namesWorker() {
				return errors.New("say which cluster is the worker: --context, or --kubeconfig together with --hub-kubeconfig")
			}
			return o.run(cmd.Context())
		}),
	}
	o.addFlags(cmd, 2*time.Minute, "how long to wait until the worker is Ready")
	flags := cmd.Flags()
	flags.StringVar(&o.Server, "server", "", "the address at which the hub reaches the worker's API server, that of your kubeconfig if it is not given")
	flags.StringArrayVar(&o.Labels, "label", nil, "KEY=VALUE: a label of the WorkerCluster, which policies select by; may be repeated")
	flags.StringArrayVar(&o.Prices, "price", nil, "RESOURCE=AMOUNT: the price per hour of one GPU, one core or one GiB, such as "+
		"nvidia.com/gpu=2.5; may be repeated")
	flags.StringVar(&o.agent, "agent", string(registration.AgentAuto), "what runs TrainJobs on the worker: trainyard installs the worker-agent; "+
		"trainer leaves them to a Kubeflow Trainer that is there; auto is trainer where Kubeflow Trainer is installed, and else trainyard; "+
		"none installs nothing")
	flags.StringVar(&o.AgentImage, "agent-image", "", "the image of the worker-agent, the present one if it is not given")
	flags.BoolVar(&o.CopyCRDs, "copy-crds", false, "copy the CRDs of Kubeflow Trainer that the worker lacks from the hub")
	flags.BoolVar(&o.Logs, "logs", true, "let the hub's gateway read logs and Events on the worker (config/worker-logs); with --logs=false this is not "+
		"applied, and what an earlier join has applied stays")
	flags.BoolVar(&o.Exec, "exec", false, "let the hub's gateway execute commands in pods on the worker, attach to them and forward ports "+
		"(config/worker-exec); without it this is not applied, and what an earlier join has applied stays")
	flags.BoolVar(&o.Lookup, "lookup", false, "let the hub look for the Secrets and other objects that jobs name on a worker without the agent "+
		"(config/worker-lookup); without it this is not applied, and what an earlier join has applied stays")
	flags.BoolVar(&o.Dependencies, "dependencies", false, "let the hub bring Secrets, ConfigMaps and ServiceAccounts of jobs to the worker "+
		"(config/worker-dependencies); without it this is not applied, and what an earlier join has applied stays")
	flags.BoolVar(&o.Pins, "pins", false, "let the hub delete the runtimes that it has made on the worker for jobs whose policy says runtime: Pin "+
		"(config/worker-pins); without it this is not applied, and what an earlier join has applied stays")
	flags.DurationVar(&o.TokenLife, "token-life", registration.DefaultTokenLife, "how long a token of the hub lives")
	flags.StringVar(&o.ManagerAccount, "manager-account", "trainyard-manager", "the service account of the manager on the hub")
	flags.BoolVar(&o.wait, "wait", true, "wait until the worker is Ready")
	completeFlag(cmd, "agent", func(context.Context, []string) []string { return registration.Agents() })
	return cmd
}

func (o *joinOptions) run(ctx context.Context) error {
	hub, err := o.hub()
	if err != nil {
		return err
	}
	worker, err := o.worker()
	if err != nil {
		return err
	}
	join := registration.NewJoin(hub, worker, o.Options, func(line string) error { return o.printLines([]string{line}) })
	if err := o.status.Draw("looking at the hub and at worker " + strconv.Quote(o.Name)); err != nil {
		return err
	}
	items, err := join.Preflight(ctx)
	if err := cmp.Or(err, o.status.Done()); err != nil {
		return err
	}
	for _, item := range items {
		if err := o.printLines([]string{item.String()}); err != nil {
			return err
		}
	}
	if err := registration.Refusal(items); err != nil {
		return err
	}
	if err := join.Apply(ctx); err != nil {
		return fmt.Errorf("%w\nRun the same command again to go on", err)
	}
	if o.isDryRun() {
		return o.remark("note: nothing was changed (--dry-run=server)")
	}
	if o.wait {
		if err := o.awaitReady(ctx, join); err != nil {
			return err
		}
	}
	return o.notes(join.Leftovers())
}

func (o *joinOptions) awaitReady(ctx context.Context, join *registration.Join) error {
	ctx, cancel := registration.Limited(ctx, o.timeout)
	defer cancel()
	if err := o.status.Draw(fmt.Sprintf("waiting until the manager has connected to worker %q", o.Name)); err != nil {
		return err
	}
	err := join.AwaitReady(ctx, func(reason string) error {
		return o.status.Show(fmt.Sprintf("worker %q is not Ready yet: %s", o.Name, reason))
	})
	if err := cmp.Or(err, o.status.Done()); err != nil {
		return err
	}
	return o.printLines([]string{fmt.Sprintf("workercluster/%s is Ready", o.Name)})
}
