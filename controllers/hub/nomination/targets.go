// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package nomination

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/kueues"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// targets are the clusters that one admission check of MultiKueue may give jobs to.
type targets struct {
	// check is the name of the admission check, empty if the Workload has none of MultiKueue. config is its
	// MultiKueueConfig.
	check, config string
	// clusters are in the order of the MultiKueueConfig. inactive has why MultiKueue cannot use some of them.
	clusters []v1alpha1.ClusterName
	inactive map[v1alpha1.ClusterName]string
	// fault is why there are no clusters, for people.
	fault string
}

// targetsOf reads MultiKueue's admission check of a Workload, from the hub's caches.
func (r *Reconciler) targetsOf(ctx context.Context, w *workload) (targets, error) {
	for _, check := range w.Status.AdmissionChecks {
		admissionCheck, err := read[kueues.AdmissionCheck](ctx, r.Hub, kueues.KindAdmissionCheck, check.Name)
		if err != nil {
			return targets{}, err
		}
		if admissionCheck != nil && admissionCheck.Spec.ControllerName == v1alpha1.ManagedByMultiKueue {
			return r.clustersOf(ctx, targets{check: check.Name, config: admissionCheck.Spec.Parameters.Name})
		}
	}
	return targets{}, nil
}

// clustersOf reads the clusters of a MultiKueueConfig.
func (r *Reconciler) clustersOf(ctx context.Context, t targets) (targets, error) {
	config, err := read[kueues.MultiKueueConfig](ctx, r.Hub, kueues.KindMultiKueueConfig, t.config)
	switch {
	case err != nil:
		return t, err
	case config == nil:
		t.fault = fmt.Sprintf("admission check %q names the MultiKueueConfig %q, which does not exist: create it", t.check, t.config)
		return t, nil
	}
	t.clusters, t.inactive = config.Spec.Clusters, map[v1alpha1.ClusterName]string{}
	for _, name := range t.clusters {
		if t.inactive[name], err = r.inactive(ctx, name); err != nil {
			return t, err
		}
		if t.inactive[name] == "" {
			delete(t.inactive, name)
		}
	}
	return t, nil
}

// inactive returns why MultiKueue cannot use a cluster, empty if it can.
func (r *Reconciler) inactive(ctx context.Context, name v1alpha1.ClusterName) (string, error) {
	cluster, err := read[kueues.MultiKueueCluster](ctx, r.Hub, kueues.KindMultiKueueCluster, string(name))
	switch {
	case err != nil:
		return "", err
	case cluster == nil:
		return "there is no MultiKueueCluster of this name", nil
	}
	switch active := meta.FindStatusCondition(cluster.Status.Conditions, kueues.Active); {
	case active == nil:
		return "its MultiKueueCluster has no condition Active yet", nil
	case active.Status != metav1.ConditionTrue:
		return fmt.Sprintf("its MultiKueueCluster is not Active: %s: %s", active.Reason, active.Message), nil
	}
	return "", nil
}

// read reads a cluster-scoped object of Kueue from the hub's caches, nil if there is none.
func read[T any](ctx context.Context, hub client.Reader, kind kueues.Kind, name string) (*T, error) {
	object := kind.New()
	if err := hub.Get(ctx, types.NamespacedName{Name: name}, object); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("get %s %q: %w", kind, name, err)
	}
	fields, err := kueues.Read[T](object)
	if err != nil {
		return nil, fmt.Errorf("read %s %q: %w", kind, name, err)
	}
	return fields, nil
}
