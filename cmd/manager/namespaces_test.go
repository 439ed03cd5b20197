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
	o.unprotectedNamespaces = []string{"jobset-system", "kube-ml"}
	for namespace, want := range map[string]bool{
		"kube-system": true, "kube-public": true, "ours": true, "gitops": true, "istio-system": true, "istio-": true,
		"trainyard-system": true, "kubeflow-system": true, "kueue-system": true, "jobset-system": false, "kube-ml": false,
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

func TestUnsentLabels(t *testing.T) {
	o := defaultOptions()
	o.unsentLabels = []string{"owner", "deploy.example.com/*"}
	for key, want := range map[string]bool{
		"owner": true, "deploy.example.com/stack": true, "owners": false, "example.com/stack": false,
	} {
		if got := o.unsent(key); got != want {
			t.Errorf("unsent(%q) = %t, want %t", key, got, want)
		}
	}
}

func TestValidateNamespaces(t *testing.T) {
	for name, tc := range map[string]struct {
		protected, unprotected, labels, unsent []string
		// fault names flag and value. Empty: there is none.
		fault string
	}{
		"Default":          {},
		"Valid":            {protected: []string{"a", "a-*", "a*"}, labels: []string{"team", "example.com/*", "example.com/te*"}, unsent: []string{"example.com/*"}},
		"NoNamespace":      {protected: []string{"Team_A"}, fault: `--protected-namespaces has "Team_A"`},
		"AllNamespaces":    {protected: []string{"*"}, fault: `--protected-namespaces has "*"`},
		"Unprotected":      {unprotected: []string{"kubeflow-system", "kube-ml"}},
		"NoSuchName":       {unprotected: []string{"kube-*"}, fault: `--unprotected-namespaces has "kube-*"`},
		"KubeSystem":       {unprotected: []string{"kube-system"}, fault: `--unprotected-namespaces has "kube-system": the manager's`},
		"Own":              {unprotected: []string{"trainyard-system"}, fault: `--unprotected-namespaces has "trainyard-system": the manager's`},
		"Both":             {protected: []string{"kube*"}, unprotected: []string{"kubeflow-system"}, fault: `"kubeflow-system": --protected-namespaces`},
		"NoLabel":          {labels: []string{"a b"}, fault: `--namespace-labels has "a b"`},
		"NoPrefixOfLabels": {labels: []string{"/*"}, fault: `--namespace-labels has "/*"`},
		"NoUnsentLabel":    {unsent: []string{"a b"}, fault: `--unsent-labels has "a b"`},
	} {
		t.Run(name, func(t *testing.T) {
			o := defaultOptions()
			o.protectedNamespaces, o.namespaceLabels, o.unsentLabels = tc.protected, tc.labels, tc.unsent
			o.unprotectedNamespaces = tc.unprotected
			err := o.validate()
			if (err != nil) != (tc.fault != "") || err != nil && !strings.Contains(err.Error(), tc.fault) {
				t.Errorf("validate() = %v, want %q", err, tc.fault)
			}
		})
	}
}
