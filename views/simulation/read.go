// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/placement/demand"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/accelerators"
	"github.com/trainyard/trainyard/dispatch/expressions"
	"github.com/trainyard/trainyard/views/fleet"
	"github.com/trainyard/trainyard/views/jobs"
)

type world struct {
	client client.Client
	// hub is the cluster behind the files, nil if there is none.
	hub      client.Reader
	demands  *demand.Deriver
	clusters []v1alpha1.WorkerCluster
	workers  []dispatch.Worker
	policies []dispatch.Policy
	classes  demand.Priorities
	// waiting are the Dispatches of jobs that wait for room.
	waiting jobs.WaitingList
	// labels are the labels of the namespaces that have been read.
	labels map[string]map[string]string
	notes  []string
	now    metav1.Time
}

func (w *world) note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(w.notes, text) {
		w.notes = append(w.notes, text)
	}
}

func newWorld(ctx context.Context, c client.Client) (*world, error) {
	w := &world{client: c, labels: map[string]map[string]string{}}
	var err error
	if w.demands, err = demand.NewDeriver(ctx, c); err != nil {
		return nil, err
	}
	if err := w.readWorkers(ctx); err != nil {
		return nil, err
	}
	policies := &v1alpha1.DispatchPolicyList{}
	if err := c.List(ctx, policies); err != nil {
		return nil, fmt.Errorf("list DispatchPolicies: %w", err)
	}
	w.policies = compile(policies.Items, accelerators.Seen(w.clusters))
	classes := &schedulingv1.PriorityClassList{}
	switch err := c.List(ctx, classes); {
	case apierrors.IsForbidden(err):
		w.note("you may not list PriorityClasses: those in the files are all that count")
	case err != nil:
		return nil, fmt.Errorf("list PriorityClasses: %w", err)
	}
	w.classes = classes.Items
	return w, nil
}

func (w *world) readWorkers(ctx context.Context) error {
	clusters := &v1alpha1.WorkerClusterList{}
	if err := w.client.List(ctx, clusters); err != nil {
		return fmt.Errorf("list WorkerClusters: %w", err)
	}
	dispatches := &v1alpha1.DispatchList{}
	switch err := w.client.List(ctx, dispatches); {
	case apierrors.IsForbidden(err):
		w.note("you may not list Dispatches in all namespaces: the room of jobs that have just been placed counts as free")
	case err != nil:
		return fmt.Errorf("list Dispatches: %w", err)
	}
	w.clusters = clusters.Items
	w.waiting = jobs.NewWaitingList(jobs.Each(dispatches.Items), func(types.UID) (metav1.Time, bool) { return metav1.Time{}, false })
	var notes []string
	w.workers, notes = fleet.Workers(clusters.Items, dispatches.Items)
	w.notes = append(w.notes, notes...)
	return nil
}

func compile(policies []v1alpha1.DispatchPolicy, table accelerators.Table) []dispatch.Policy {
	ready := make([]dispatch.Policy, len(policies))
	for i := range policies {
		ready[i] = compiled(&policies[i], table)
	}
	return ready
}

func compiled(policy *v1alpha1.DispatchPolicy, table accelerators.Table) dispatch.Policy {
	ready := dispatch.Policy{DispatchPolicy: policy}
	if text := policy.Spec.Clusters.Expression; text != "" {
		// Set only one of the two: an Expression that is a nil pointer is not nil.
		if expression, err := expressions.Compile(text); err != nil {
			ready.Fault = err
		} else {
			ready.Expression = expression.Counting(table)
		}
	}
	return ready
}

// namespaceLabels returns the labels of a namespace, which may not exist or not be readable for the user.
func (w *world) namespaceLabels(ctx context.Context, name string) (map[string]string, error) {
	if known, ok := w.labels[name]; ok {
		return known, nil
	}
	namespace := &corev1.Namespace{}
	err := w.client.Get(ctx, types.NamespacedName{Name: name}, namespace)
	matters := slices.ContainsFunc(w.policies, func(p dispatch.Policy) bool { return p.Spec.Jobs.NamespaceSelector != nil })
	switch {
	case err == nil:
	case apierrors.IsNotFound(err) && matters:
		w.note("there is no Namespace %q: it is taken to have no labels of its own", name)
	case apierrors.IsForbidden(err) && matters:
		w.note("you may not get Namespace %q: it is taken to have no labels of its own", name)
	case !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err):
		return nil, fmt.Errorf("get Namespace %q: %w", name, err)
	}
	labels := map[string]string{corev1.LabelMetadataName: name} // The API server sets it.
	for key, value := range namespace.Labels {
		labels[key] = value
	}
	w.labels[name] = labels
	return labels, nil
}
