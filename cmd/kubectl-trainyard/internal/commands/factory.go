// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/joblogs"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/printing"
	"github.com/trainyard/trainyard/internal/hub"
	"github.com/trainyard/trainyard/remote/bounded"
)

// The rate limit in requests per second, and the burst, as in kubectl.
const (
	qps   = 50
	burst = 300
)

// defaultTimeout is for one request to a cluster that can be a worker, without --request-timeout.
const defaultTimeout = time.Minute

// Factory connects the commands to the cluster that the common flags name.
type Factory struct {
	flags *genericclioptions.ConfigFlags
}

// NewFactory returns a Factory with the flags of kubectl.
func NewFactory() *Factory {
	flags := genericclioptions.NewConfigFlags(true)
	flags.CacheDir = nil // The plugin needs no discovery.
	return &Factory{flags: flags.WithWrapConfigFn(limitRate)}
}

// limitRate says who sends the requests, and limits their rate.
func limitRate(config *rest.Config) *rest.Config {
	config.QPS, config.Burst = qps, burst
	config.UserAgent = "kubectl-trainyard"
	return config
}

// AddFlags adds the common flags.
func (f *Factory) AddFlags(flags *pflag.FlagSet) {
	f.flags.AddFlags(flags)
}

// Namespace returns the namespace of --namespace, or of the context.
func (f *Factory) Namespace() (string, error) {
	namespace, _, err := f.flags.ToRawKubeConfigLoader().Namespace()
	return namespace, err
}

// namespaceFlag returns the value of --namespace, or "".
func (f *Factory) namespaceFlag() string {
	return ptr.Deref(f.flags.Namespace, "")
}

// contextFlag returns the value of --context, or "".
func (f *Factory) contextFlag() string {
	return ptr.Deref(f.flags.Context, "")
}

// Context returns the name of the context in use, or "" without one, as in a pod.
func (f *Factory) Context() string {
	if name := f.contextFlag(); name != "" {
		return name
	}
	config, err := f.flags.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return "" // The error appears when a client is made.
	}
	return config.CurrentContext
}

// Contexts returns the names of the contexts, sorted.
func (f *Factory) Contexts() ([]string, error) {
	config, err := f.flags.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(config.Contexts)), nil
}

// Kubernetes returns a client for built-in kinds.
func (f *Factory) Kubernetes() (kubernetes.Interface, error) {
	config, err := f.flags.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	client, err := bounded.Kubernetes(config, limits(config))
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return client, nil
}

// limits returns the limits of clients whose cluster can be a worker.
func limits(config *rest.Config) bounded.Limits {
	return bounded.Limits{Timeout: cmp.Or(config.Timeout, defaultTimeout)}
}

// Hub returns the cluster of the context as a hub.
func (f *Factory) Hub() (*hub.Hub, error) {
	config, err := f.flags.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	return hub.New(config, f.Context())
}

// jobLogs returns the clients that package joblogs needs. warnings is where the warnings of a gateway go: it names the
// workers that do not answer, and says what it knows of logs that are kept.
func (f *Factory) jobLogs(managerNamespace string, warnings io.Writer) (joblogs.Clients, error) {
	config, err := f.flags.ToRESTConfig()
	if err != nil {
		return joblogs.Clients{}, err
	}
	config.WarningHandler = rest.NewWarningWriter(warnings, rest.WarningWriterOptions{Deduplicate: true})
	clients, err := jobLogsOf(config)
	clients.Gateway = func(ctx context.Context) (joblogs.Clients, error) {
		published, err := f.gateway(ctx, managerNamespace)
		if err != nil {
			return joblogs.Clients{}, err
		}
		through := config
		if !published.Is(config) {
			if through, err = published.Reach(config); err != nil {
				return joblogs.Clients{}, err
			}
		}
		return jobLogsOf(through)
	}
	return clients, err
}

func jobLogsOf(config *rest.Config) (joblogs.Clients, error) {
	kubernetes, err := bounded.Kubernetes(config, limits(config))
	if err != nil {
		return joblogs.Clients{}, fmt.Errorf("make client: %w", err)
	}
	dynamic, err := bounded.Dynamic(config, limits(config))
	if err != nil {
		return joblogs.Clients{}, fmt.Errorf("make client: %w", err)
	}
	return joblogs.Clients{Kubernetes: kubernetes, Dynamic: dynamic, Clock: clock.RealClock{}, Config: config}, nil
}

// streams are the plugin's input and output, and what several commands print.
type streams struct {
	genericiooptions.IOStreams
	// raw are the same for what containers print, which is printed as it is.
	raw genericiooptions.IOStreams
	// status is what the command waits for.
	status *printing.Status
}

// newStreams returns streams that show the control characters in words of workers and users, and do not send them.
func newStreams(std genericiooptions.IOStreams) streams {
	status := printing.NewStatus(std.ErrOut)
	shown := genericiooptions.IOStreams{
		In: std.In, Out: printing.Escaped(status.Over(std.Out)), ErrOut: printing.Escaped(status.Over(std.ErrOut)),
	}
	return streams{IOStreams: shown, raw: std, status: status}
}

// say prints what was done with a worker, as kubectl does.
func (s streams) say(worker *v1alpha1.WorkerCluster, done string) error {
	_, err := fmt.Fprintf(s.Out, "workercluster/%s %s\n", worker.Name, done)
	return err
}

// remark prints to standard error what is not part of the answer.
func (s streams) remark(format string, args ...any) error {
	_, err := fmt.Fprintf(s.ErrOut, format+"\n", args...)
	return err
}

func (s streams) notes(texts []string) error {
	for _, text := range texts {
		if err := s.remark("note: %s", text); err != nil {
			return err
		}
	}
	return nil
}

func (s streams) printLines(lines []string) error {
	for _, line := range lines {
		if _, err := fmt.Fprintln(s.Out, line); err != nil {
			return err
		}
	}
	return nil
}
