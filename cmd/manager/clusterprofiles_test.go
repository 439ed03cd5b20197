// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

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
		if got := o.property(name); got != want {
			t.Errorf("property %q becomes a label: %t, want %t", name, got, want)
		}
	}
	if (&clusterProfileOptions{}).property("region") {
		t.Error("a property becomes a label that nobody asked for")
	}
}
