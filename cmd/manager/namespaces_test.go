// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trainyard/trainyard/test/check"
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
		check.Equal(t, want, o.protected(namespace), "protected(%q)", namespace)
	}
}

func TestNamespaceLabels(t *testing.T) {
	o := defaultOptions()
	o.namespaceLabels = []string{"team", "istio.io/*"}
	for key, want := range map[string]bool{
		"pod-security.kubernetes.io/enforce": true, "pod-security.kubernetes.io/warn-version": true, "team": true, "istio.io/rev": true,
		"teams": false, "kubernetes.io/metadata.name": false, "trainyard.dev/propagated-by": false,
	} {
		check.Equal(t, want, o.carriesLabel(key), "carriesLabel(%q)", key)
	}
}

func TestUnsentLabels(t *testing.T) {
	o := defaultOptions()
	o.unsentLabels = []string{"owner", "deploy.example.com/*"}
	for key, want := range map[string]bool{
		"owner": true, "deploy.example.com/stack": true, "owners": false, "example.com/stack": false,
	} {
		check.Equal(t, want, o.unsent(key), "unsent(%q)", key)
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

func TestValidateClusterProfiles(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		options clusterProfileOptions
		want    []string // in the error; none: no error
	}{
		"Off":       {reason: "The flags are off by default."},
		"Namespace": {reason: "A namespace is enough.", options: clusterProfileOptions{namespace: "inventory"}},
		"All": {reason: "A selector and patterns of properties can be added.", options: clusterProfileOptions{
			namespace: "inventory", selector: "fleet in (gpu, tpu), !test", properties: []string{"region", "gpu.example.com/*"},
		}},
		"NoNamespace": {
			reason:  "A selector alone would do nothing.",
			options: clusterProfileOptions{selector: "fleet=gpu"}, want: []string{"need --cluster-profiles"},
		},
		"Faults": {
			reason:  "All faults are named at once, with what was given.",
			options: clusterProfileOptions{namespace: "In_ventory", selector: "fleet in gpu", properties: []string{""}},
			want:    []string{`--cluster-profiles is "In_ventory"`, `--cluster-profile-selector is "fleet in gpu"`, "--cluster-profile-properties has an empty name"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.options.validate()
			if len(tc.want) == 0 && err != nil {
				t.Errorf("%s Got: %v", tc.reason, err)
			}
			for _, want := range tc.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s The error lacks %q: %v", tc.reason, want, err)
				}
			}
		})
	}
}

func TestPropertiesThatBecomeLabels(t *testing.T) {
	o := clusterProfileOptions{properties: []string{"region", "gpu.example.com/*"}}
	for name, want := range map[string]bool{"region": true, "regional": false, "gpu.example.com/product": true, "nodes": false} {
		check.Equal(t, want, o.property(name), "property %q becomes a label", name)
	}
	if (&clusterProfileOptions{}).property("region") {
		t.Error("a property becomes a label that nobody asked for")
	}
}

func TestValidateArchive(t *testing.T) {
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	check.Must(t, os.WriteFile(token, []byte("secret"), 0o600))
	for name, test := range map[string]struct {
		archive archiveOptions
		// fault names flag and value. Empty: there is none.
		fault string
	}{
		"None":      {},
		"Dir":       {archive: archiveOptions{dir: dir}},
		"URL":       {archive: archiveOptions{url: "https://archive.example.com/jobs", tokenFile: token}},
		"Both":      {archive: archiveOptions{dir: dir, url: "https://archive"}, fault: "set one of them"},
		"NoDir":     {archive: archiveOptions{dir: dir + "/none"}, fault: `--archive-dir is "` + dir + `/none": must be an existing directory`},
		"File":      {archive: archiveOptions{dir: token}, fault: `must be an existing directory`},
		"HTTP":      {archive: archiveOptions{url: "http://archive"}, fault: `--archive-url is "http://archive": must be a URL that begins with https://`},
		"Password":  {archive: archiveOptions{url: "https://me:hidden@archive"}, fault: `no user or password`},
		"NoToken":   {archive: archiveOptions{url: "https://archive", tokenFile: dir + "/none"}, fault: "read the token"},
		"OnlyToken": {archive: archiveOptions{tokenFile: token}, fault: "--archive-token-file needs --archive-url"},
	} {
		t.Run(name, func(t *testing.T) {
			o := defaultOptions()
			o.archive = test.archive
			err := o.validate()
			if (err != nil) != (test.fault != "") || err != nil && !strings.Contains(err.Error(), test.fault) {
				t.Errorf("validate() = %v, want %q", err, test.fault)
			}
			if err != nil && strings.Contains(err.Error(), "hidden") {
				t.Errorf("validate() shows the password: %v", err)
			}
		})
	}
}
