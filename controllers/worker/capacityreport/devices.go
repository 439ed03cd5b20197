// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package capacityreport

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/trainyard/trainyard/capacity"
)

// devicesReadable says why devices cannot be read. It lets the tally know the release of the cluster. It is asked once:
// an agent that gets the right, or a cluster that gets the API, needs a new leader.
func (r *reporter) devicesReadable(ctx context.Context, tally *capacity.Tally) error {
	server, err := discovery.NewDiscoveryClientForConfigAndClient(r.config, r.http)
	if err != nil {
		return err
	}
	release, err := server.ServerVersion()
	if err != nil {
		return fmt.Errorf("ask for the version of the API server: %w", err)
	}
	tally.SetKubernetes(release.GitVersion)
	for _, kind := range capacity.DeviceKinds {
		if err := r.readable(ctx, kind); err != nil {
			return err
		}
	}
	return nil
}

// taintRules returns the version of DeviceTaintRules that the cluster serves, or nothing if it serves none. Its error says
// why they cannot be read.
func (r *reporter) taintRules(ctx context.Context) (version string, err error) {
	mapping, err := r.mapper.RESTMapping(schema.GroupKind{Group: capacity.DeviceVersion.Group, Kind: capacity.TaintRuleKind})
	if meta.IsNoMatchError(err) {
		return "", nil
	} else if err != nil {
		return "", fmt.Errorf("find %s: %w", capacity.TaintRuleKind, err)
	}
	return mapping.GroupVersionKind.Version, r.watchable(ctx, capacity.TaintRules)
}

// readable says why a kind of Dynamic Resource Allocation cannot be read.
func (r *reporter) readable(ctx context.Context, kind capacity.DeviceKind) error {
	if _, err := r.mapper.RESTMapping(capacity.DeviceVersion.WithKind(kind.Kind).GroupKind(), capacity.DeviceVersion.Version); err != nil {
		return fmt.Errorf("find %s in %s (Kubernetes 1.34 or newer has it): %w", kind.Kind, capacity.DeviceVersion, err)
	}
	return r.watchable(ctx, kind.Resource)
}

// watchable says why the agent may not watch a resource of Dynamic Resource Allocation.
func (r *reporter) watchable(ctx context.Context, resource string) error {
	allowed, err := r.may(ctx, "watch", capacity.DeviceVersion.Group, resource)
	if err != nil {
		return fmt.Errorf("ask whether the agent may watch %s: %w", resource, err)
	}
	if !allowed {
		return fmt.Errorf("the agent may not watch %s.%s: grant it with kubectl apply -k config/worker-agent, and restart the agent",
			resource, capacity.DeviceVersion.Group)
	}
	return nil
}
