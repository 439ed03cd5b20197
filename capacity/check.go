// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/hostports"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/capacity/devices"
)

// check says what in a report makes no sense, apart from positions and numbers of amounts, which snapshotOf checks. The
// hub does not trust the worker's API server to have applied the schema of the CRD: the worker may lie, or have an
// older CRD.
func check(report *v1alpha1.CapacityReport) error {
	resources, ports := names[corev1.ResourceName]{}, 0
	for i, name := range report.Resources {
		if hostports.Is(name) {
			ports++
		}
		if err := resources.add(name, name == ""); err != nil {
			return fmt.Errorf("resources[%d]: %w", i, err)
		}
	}
	if most := hostports.Max + 1; ports > most { // One is hostports.Others.
		return fmt.Errorf("resources: %d host ports, and %d are allowed", ports, most)
	}
	labels := names[string]{}
	for i, l := range report.Labels {
		if err := labels.add(l, l == "" || strings.HasPrefix(l, "=")); err != nil {
			return fmt.Errorf("labels[%d]: %w", i, err)
		}
	}
	gangs := names[types.NamespacedName]{}
	for i := range report.Gangs {
		gang := &report.Gangs[i]
		err := gangs.add(types.NamespacedName{Namespace: gang.Namespace, Name: gang.Name}, gang.Namespace == "" || gang.Name == "")
		if err == nil {
			err = checkPods(gang.Pods)
		}
		if err != nil {
			return fmt.Errorf("gangs[%d]: %w", i, err)
		}
	}
	if err := checkUncounted(report.Uncounted); err != nil {
		return fmt.Errorf("uncounted: %w", err)
	}
	if report.Kueue == nil {
		return nil
	}
	if err := checkQuota(report.Kueue); err != nil {
		return fmt.Errorf("kueue.%w", err)
	}
	return nil
}

// checkUncounted keeps a worker from bringing any number of words into the status of the hub.
func checkUncounted(texts []string) error {
	if len(texts) > devices.MaxFaults {
		return fmt.Errorf("%d texts, and %d are allowed", len(texts), devices.MaxFaults)
	}
	for i, text := range texts {
		if len(text) > devices.MaxFault {
			return fmt.Errorf("the text at position %d has %d bytes, and %d are allowed", i, len(text), devices.MaxFault)
		}
	}
	return nil
}

// checkPods lets a job have no name: anybody can make a pod with only a part of JobSet's labels.
func checkPods(pods []v1alpha1.ReportedPods) error {
	jobs := names[string]{}
	for i := range pods {
		if err := jobs.add(pods[i].Job, false); err != nil {
			return fmt.Errorf("pods[%d]: %w", i, err)
		}
		if pods[i].Bound < 0 || pods[i].Succeeded < 0 {
			return fmt.Errorf("pods[%d]: %d pods are bound and %d have succeeded; neither may be negative", i, pods[i].Bound, pods[i].Succeeded)
		}
	}
	return nil
}

func checkQuota(q *v1alpha1.KueueQuota) error {
	queues := names[string]{}
	for i := range q.ClusterQueues {
		queue := &q.ClusterQueues[i]
		err := queues.add(queue.Name, queue.Name == "")
		if err == nil {
			err = checkGroups(queue.Groups)
		}
		if err == nil {
			err = checkAmounts(queue.Used)
		}
		if err != nil {
			return fmt.Errorf("clusterQueues[%d]: %w", i, err)
		}
	}
	cohorts := names[string]{}
	for i := range q.Cohorts {
		err := cohorts.add(q.Cohorts[i].Name, q.Cohorts[i].Name == "")
		if err == nil {
			err = checkGroups(q.Cohorts[i].Groups)
		}
		if err != nil {
			return fmt.Errorf("cohorts[%d]: %w", i, err)
		}
	}
	locals := names[types.NamespacedName]{}
	for i := range q.LocalQueues {
		l := &q.LocalQueues[i]
		if err := locals.add(types.NamespacedName{Namespace: l.Namespace, Name: l.Name}, l.Namespace == "" || l.Name == ""); err != nil {
			return fmt.Errorf("localQueues[%d]: %w", i, err)
		}
	}
	flavors := names[string]{}
	for i := range q.Flavors {
		if err := flavors.add(q.Flavors[i].Name, q.Flavors[i].Name == ""); err != nil {
			return fmt.Errorf("flavors[%d]: %w", i, err)
		}
	}
	for i := range q.Workloads { // A job may have several Workloads for a moment.
		w := &q.Workloads[i]
		if w.Namespace == "" || w.Job == "" {
			return fmt.Errorf("workloads[%d]: its namespace or job is empty", i)
		}
		err := checkAmounts(w.Used)
		if err == nil {
			err = checkRequests(w.Requests)
		}
		if err != nil {
			return fmt.Errorf("workloads[%d]: %w", i, err)
		}
	}
	return nil
}

func checkRequests(requests []v1alpha1.KueueRequest) error {
	resources := names[corev1.ResourceName]{}
	for i := range requests {
		if err := resources.add(requests[i].Resource, requests[i].Resource == ""); err != nil {
			return fmt.Errorf("requests[%d]: %w", i, err)
		}
		if requests[i].Amount < 0 {
			return fmt.Errorf("requests[%d]: %d of %s is negative", i, requests[i].Amount, requests[i].Resource)
		}
	}
	return nil
}

// checkGroups checks the resource groups of a ClusterQueue or Cohort. No two quotas may be about one resource of one
// flavor.
func checkGroups(groups []v1alpha1.KueueResourceGroup) error {
	covered, quotas := names[corev1.ResourceName]{}, names[flavorResource]{}
	for i := range groups {
		for _, name := range groups[i].Resources {
			if err := covered.add(name, name == ""); err != nil {
				return fmt.Errorf("groups[%d].resources: %w", i, err)
			}
		}
		for j := range groups[i].Flavors {
			flavor := &groups[i].Flavors[j]
			if flavor.Name == "" {
				return fmt.Errorf("groups[%d].flavors[%d]: its name is empty", i, j)
			}
			for k := range flavor.Quotas {
				r := flavorResource{flavor.Name, flavor.Quotas[k].Resource}
				if err := quotas.add(r, r.resource == ""); err != nil {
					return fmt.Errorf("groups[%d].flavors[%d].quotas[%d]: %w", i, j, k, err)
				}
			}
		}
	}
	return nil
}

func checkAmounts(used []v1alpha1.KueueAmount) error {
	amounts := names[flavorResource]{}
	for i := range used {
		r := flavorResource{used[i].Flavor, used[i].Resource}
		if err := amounts.add(r, r.flavor == "" || r.resource == ""); err != nil {
			return fmt.Errorf("used[%d]: %w", i, err)
		}
		if used[i].Amount < 0 {
			return fmt.Errorf("used[%d]: %d of %s is negative", i, used[i].Amount, r.resource)
		}
	}
	return nil
}

// names are names that a list has had.
type names[T comparable] map[T]struct{}

// add says what is wrong with one more name of the list.
func (n names[T]) add(name T, isEmpty bool) error {
	if isEmpty {
		return fmt.Errorf("its name is empty, or a part of it (%q)", fmt.Sprint(name))
	}
	if _, has := n[name]; has {
		return fmt.Errorf("%q is there twice", fmt.Sprint(name))
	}
	n[name] = struct{}{}
	return nil
}
