// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/go-multierror"
	"k8s.io/apimachinery/pkg/util/validation"
)

// podSecurityLabels are always copied. Without them the pods of a copy may do more than they may on the hub.
const podSecurityLabels = "pod-security.kubernetes.io/*"

// platformNamespaces are protected, unless --unprotected-namespaces names them. On a worker they hold the accounts of
// Kubernetes, of the hub, of the agent and of Kubeflow Trainer, of JobSet and of Kueue. The pods of a copy there could
// use any of these accounts. config/admission/namespaces.yaml has the same names.
var platformNamespaces = []string{"kube-*", "trainyard-system", "kubeflow-system", "jobset-system", "kueue-system"}

// kubeSystem is protected always.
const kubeSystem = "kube-system"

// protected says whether the manager does not dispatch the TrainJobs of a namespace.
func (o *options) protected(namespace string) bool {
	if slices.Contains(o.unprotectedNamespaces, namespace) {
		return false
	}
	return namespace == o.namespace || matchesAny(platformNamespaces, namespace) || matchesAny(o.protectedNamespaces, namespace)
}

// carriesLabel says whether a namespace that the manager creates on a worker gets this label of the hub's namespace.
func (o *options) carriesLabel(key string) bool {
	return matches(podSecurityLabels, key) || matchesAny(o.namespaceLabels, key)
}

// unsent says whether a label or an annotation of the hub's objects does not come to workers.
func (o *options) unsent(key string) bool { return matchesAny(o.unsentLabels, key) }

func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return matches(pattern, name) })
}

// matches says whether name matches the pattern. A pattern that ends in * matches all names that begin so.
func matches(pattern, name string) bool {
	if beginning, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, beginning)
	}
	return pattern == name
}

func (o *options) validateNamespaces() error {
	var faults *multierror.Error
	for _, pattern := range o.protectedNamespaces {
		name, _ := strings.CutSuffix(pattern, "*")
		if messages := validation.IsDNS1123Label(strings.TrimSuffix(name, "-")); len(messages) > 0 {
			faults = multierror.Append(faults, fmt.Errorf("--protected-namespaces has %q: %s", pattern, messages[0]))
		}
	}
	for _, name := range o.unprotectedNamespaces {
		why := ""
		switch messages := validation.IsDNS1123Label(name); {
		case len(messages) > 0:
			why = messages[0]
		case name == o.namespace || name == kubeSystem:
			why = "the manager's own namespace and " + kubeSystem + " are always protected"
		case matchesAny(o.protectedNamespaces, name):
			why = "--protected-namespaces has it too"
		}
		if why != "" {
			faults = multierror.Append(faults, fmt.Errorf("--unprotected-namespaces has %q: %s", name, why))
		}
	}
	for _, flag := range []struct {
		name     string
		patterns []string
	}{{"--namespace-labels", o.namespaceLabels}, {"--unsent-labels", o.unsentLabels}} {
		for _, pattern := range flag.patterns {
			key := pattern
			if beginning, ok := strings.CutSuffix(pattern, "*"); ok {
				key = beginning + "x" // The pattern must be the beginning of a valid key.
			}
			if messages := validation.IsQualifiedName(key); len(messages) > 0 {
				faults = multierror.Append(faults, fmt.Errorf("%s has %q: %s", flag.name, pattern, messages[0]))
			}
		}
	}
	return faults.ErrorOrNil()
}
