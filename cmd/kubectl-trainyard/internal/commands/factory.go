// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/hub"
)

// The rate limit in requests per second, and the burst, as in kubectl.
const (
	qps   = 50
	burst = 300
)

// Factory makes what the commands share: streams, and clients by the common flags.
type Factory struct {
	Streams genericiooptions.IOStreams
	Flags   *genericclioptions.ConfigFlags
}

// NewFactory returns a Factory with the flags of kubectl.
func NewFactory(streams genericiooptions.IOStreams) *Factory {
	flags := genericclioptions.NewConfigFlags(true)
	flags.CacheDir = nil // The plugin needs no discovery.
	return &Factory{Streams: streams, Flags: flags.WithWrapConfigFn(func(config *rest.Config) *rest.Config {
		config.QPS, config.Burst = qps, burst
		config.UserAgent = "kubectl-trainyard"
		return config
	})}
}

func (f *Factory) addFlags(root *cobra.Command) {
	f.Flags.AddFlags(root.PersistentFlags())
	f.completeFlag(root, "namespace", f.completeNamespaces)
	f.completeFlag(root, "context", f.completeContexts)
}

// Namespace returns the namespace of --namespace, or of the context.
func (f *Factory) Namespace() (string, error) {
	namespace, _, err := f.Flags.ToRawKubeConfigLoader().Namespace()
	return namespace, err
}

// Context returns the name of the context in use, or "" without one, as in a pod.
func (f *Factory) Context() string {
	if name := f.Flags.Context; name != nil && *name != "" {
		return *name
	}
	config, err := f.Flags.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return "" // The error appears when a client is made.
	}
	return config.CurrentContext
}

// Kubernetes returns a client for built-in kinds.
func (f *Factory) Kubernetes() (kubernetes.Interface, error) {
	config, err := f.Flags.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return client, nil
}

// Dynamic returns a client for TrainJobs and other kinds whose types differ between clusters.
func (f *Factory) Dynamic() (dynamic.Interface, error) {
	config, err := f.Flags.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return client, nil
}

// Hub returns the cluster of the context as a hub.
func (f *Factory) Hub() (*hub.Hub, error) {
	config, err := f.Flags.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	return hub.New(config, f.Context())
}
