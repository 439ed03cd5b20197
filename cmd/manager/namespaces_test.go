// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

func TestProtectedNamespaces(t *testing.T) {
	o := defaultOptions()
	o.namespace, o.protectedNamespaces = "ours", []string{"gitops", "istio-*"}
	for namespace, want := range map[string]bool{
		"kube-system": true, "kube-public": true, "ours": true, "gitops": true, "istio-system": true, "istio-": true,
		"default": false, "kube": false, "kubeflow": false, "ours-too": false, "gitops-2": false, "istio": false,
	} {
		if got := o.protected(namespace); got != want {
			t.Errorf("protected(%q) = %t, want %t", namespace, got, want)
		}
	}
}

func TestNamespaceLabels(t *testing.T) {
	o := defaultOptions()
	o.namespaceLabels = []string{"team", "istio.io/*"}
	for key, want := range map[string]bool{
		"pod-security.kubernetes.io/enforce": true, "pod-security.kubernetes.io/warn-version": true, "team": true, "istio.io/rev": true,
		"teams": false, "kubernetes.io/metadata.name": false, "trainyard.dev/propagated-by": false,
	} {
		if got := o.carriesLabel(key); got != want {
			t.Errorf("carriesLabel(%q) = %t, want %t", key, got, want)
		}
	}
}

func TestValidateNamespaces(t *testing.T) {
	for name, tc := range map[string]struct {
		protected, labels []string
		// fault names flag and value. Empty: there is none.
		fault string
	}{
		"Default":          {},
		"Valid":            {protected: []string{"a", "a-*", "a*"}, labels: []string{"team", "example.com/*", "example.com/te*"}},
		"NoNamespace":      {protected: []string{"Team_A"}, fault: `--protected-namespaces has "Team_A"`},
		"AllNamespaces":    {protected: []string{"*"}, fault: `--protected-namespaces has "*"`},
		"NoLabel":          {labels: []string{"a b"}, fault: `--namespace-labels has "a b"`},
		"NoPrefixOfLabels": {labels: []string{"/*"}, fault: `--namespace-labels has "/*"`},
	} {
		t.Run(name, func(t *testing.T) {
			o := defaultOptions()
			o.protectedNamespaces, o.namespaceLabels = tc.protected, tc.labels
			err := o.validate()
			if (err != nil) != (tc.fault != "") || err != nil && !strings.Contains(err.Error(), tc.fault) {
				t.Errorf("validate() = %v, want %q", err, tc.fault)
			}
		})
	}
}
