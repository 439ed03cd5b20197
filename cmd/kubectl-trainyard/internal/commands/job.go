// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"

	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/joblogs"
	"github.com/trainyard/trainyard/internal/hub"
	"github.com/trainyard/trainyard/remote/bounded"
	"github.com/trainyard/trainyard/views/explanation"
)

// jobOptions are those of the commands about the pods of one job, on whichever cluster they are.
type jobOptions struct {
	streams
	factory          *Factory
	managerNamespace string
	joblogs.Options
}

// clients sets the job, and returns the clients with which it is found.
func (o *jobOptions) clients(name string) (joblogs.Clients, error) {
	namespace, err := o.factory.Namespace()
	if err != nil {
		return joblogs.Clients{}, err
	}
	o.Job, o.Context = types.NamespacedName{Namespace: namespace, Name: name}, o.factory.Context()
	return o.factory.jobLogs(o.managerNamespace, o.ErrOut)
}

// observe reads a TrainJob of the namespace that the flags name, and its Dispatch, from the hub that it returns.
func (f *Factory) observe(ctx context.Context, name string) (*hub.Hub, explanation.Observation, error) {
	namespace, err := f.Namespace()
	if err != nil {
		return nil, explanation.Observation{}, err
	}
	h, err := f.Hub()
	if err != nil {
		return nil, explanation.Observation{}, err
	}
	observation, err := explanation.Read(ctx, h, types.NamespacedName{Namespace: namespace, Name: name}, time.Now())
	return h, observation, err
}

// find finds the pods of a job, and returns a client of where they are.
func find(ctx context.Context, clients joblogs.Clients, options joblogs.Options) (*joblogs.Place, kubernetes.Interface, error) {
	place, err := joblogs.Find(ctx, clients, options)
	if err != nil {
		return nil, nil, err
	}
	there, err := bounded.Kubernetes(place.Config, limits(place.Config))
	if err != nil {
		return nil, nil, fmt.Errorf("make client: %w", err)
	}
	return place, there, nil
}

// place finds the pods of a job, and returns a factory with which kubectl's own commands work there.
func (o *jobOptions) place(ctx context.Context, name string) (*joblogs.Place, cmdutil.Factory, error) {
	clients, err := o.clients(name)
	if err != nil {
		return nil, nil, err
	}
	place, err := joblogs.Find(ctx, clients, o.Options)
	if err != nil {
		return nil, nil, err
	}
	there := o.factory.flags.WithWrapConfigFn(func(*rest.Config) *rest.Config {
		config := rest.CopyConfig(place.Config)
		config.Wrap(endWith(ctx))
		return config
	})
	return place, cmdutil.NewFactory(cmdutil.NewMatchVersionFlags(there)), nil
}

// endWith ends requests with ctx. Those of kubectl's commands have no context that ends with Ctrl-C.
func endWith(ctx context.Context) transport.WrapperFunc {
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			until, end := context.WithCancel(r.Context())
			context.AfterFunc(ctx, end)
			return next.RoundTrip(r.WithContext(until))
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
