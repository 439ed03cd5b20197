// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package nomination

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

// kueueReader reads what the hub's Kueue says of MultiKueue, from the hub's caches.
type kueueReader struct{ hub client.Reader }

func (r *Reconciler) kueue() kueueReader { return kueueReader{r.Hub} }

// targetsOf reads MultiKueue's admission check of a Workload, from the hub's caches.
func (k kueueReader) targetsOf(ctx context.Context, w *workload) (targets, error) {
	for _, check := range w.Status.AdmissionChecks {
		var fields struct {
			Spec struct {
				ControllerName string `json:"controllerName"`
				Parameters     struct {
					Name string `json:"name"`
				} `json:"parameters"`
			} `json:"spec"`
		}
		found, err := k.read(ctx, "AdmissionCheck", check.Name, &fields)
		if err != nil {
			return targets{}, err
		}
		if found && fields.Spec.ControllerName == v1alpha1.ManagedByMultiKueue {
			return k.clustersOf(ctx, targets{check: check.Name, config: fields.Spec.Parameters.Name})
		}
	}
	return targets{}, nil
}

// clustersOf reads the clusters of a MultiKueueConfig.
func (k kueueReader) clustersOf(ctx context.Context, t targets) (targets, error) {
	var config struct {
		Spec struct {
			Clusters []v1alpha1.ClusterName `json:"clusters"`
		} `json:"spec"`
	}
	found, err := k.read(ctx, "MultiKueueConfig", t.config, &config)
	switch {
	case err != nil:
		return t, err
	case !found:
		t.fault = fmt.Sprintf("admission check %q names the MultiKueueConfig %q, which does not exist: create it", t.check, t.config)
		return t, nil
	}
	t.clusters, t.inactive = config.Spec.Clusters, map[v1alpha1.ClusterName]string{}
	for _, name := range t.clusters {
		if t.inactive[name], err = k.inactive(ctx, name); err != nil {
			return t, err
		}
		if t.inactive[name] == "" {
			delete(t.inactive, name)
		}
	}
	return t, nil
}

// inactive returns why MultiKueue cannot use a cluster, empty if it can.
func (k kueueReader) inactive(ctx context.Context, name v1alpha1.ClusterName) (string, error) {
	var cluster struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	found, err := k.read(ctx, "MultiKueueCluster", string(name), &cluster)
	active := meta.FindStatusCondition(cluster.Status.Conditions, "Active")
	switch {
	case err != nil:
		return "", err
	case !found:
		return "there is no MultiKueueCluster of this name", nil
	case active == nil:
		return "its MultiKueueCluster has no condition Active yet", nil
	case active.Status != metav1.ConditionTrue:
		return fmt.Sprintf("its MultiKueueCluster is not Active: %s: %s", active.Reason, active.Message), nil
	}
	return "", nil
}

// read reads a cluster-scoped object of Kueue from the hub's caches into fields. found is false if there is none.
func (k kueueReader) read(ctx context.Context, kind, name string, fields any) (found bool, err error) {
	object := newObject(kind)
	switch err := k.hub.Get(ctx, types.NamespacedName{Name: name}, object); {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("get %s %q: %w", kind, name, err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, fields); err != nil {
		return false, fmt.Errorf("read %s %q: %w", kind, name, err)
	}
	return true, nil
}
