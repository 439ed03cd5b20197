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

// podSecurityLabels are always carried: without them the pods of a copy may do what they may not on the hub.
const podSecurityLabels = "pod-security.kubernetes.io/*"

// systemNamespaces are protected whatever the flags say. What Kubernetes itself runs in is there on each worker.
const systemNamespaces = "kube-*"

// protected says whether TrainJobs of a namespace are not dispatched.
func (o *options) protected(namespace string) bool {
	return namespace == o.namespace || matches(systemNamespaces, namespace) || matchesAny(o.protectedNamespaces, namespace)
}

// carriesLabel says whether a namespace that is made on a worker gets a label of the hub's.
func (o *options) carriesLabel(key string) bool {
	return matches(podSecurityLabels, key) || matchesAny(o.namespaceLabels, key)
}

func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return matches(pattern, name) })
}

// matches: a pattern that ends in * stands for all that begin so.
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
	for _, pattern := range o.namespaceLabels {
		key := pattern
		if beginning, ok := strings.CutSuffix(pattern, "*"); ok {
			key = beginning + "x" // It has to be the beginning of a key.
		}
		if messages := validation.IsQualifiedName(key); len(messages) > 0 {
			faults = multierror.Append(faults, fmt.Errorf("--namespace-labels has %q: %s", pattern, messages[0]))
		}
	}
	return faults.ErrorOrNil()
}
