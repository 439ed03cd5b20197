// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
)

func TestOptions(t *testing.T) {
	gpus := func(n string) corev1.ResourceList {
		return corev1.ResourceList{"nvidia.com/gpu": resource.MustParse(n)}
	}
	tests := map[string]struct {
		reason  string
		nodes   []string
		want    map[string][]clusters.NodeShape
		wantErr string
	}{
		"Shape": {
			reason: "resource names may have slashes and the x of the count only once",
			nodes:  []string{"worker-1=8xnvidia.com/gpu=8,cpu=64"},
			want: map[string][]clusters.NodeShape{"worker-1": {{Count: 8, Capacity: corev1.ResourceList{
				"nvidia.com/gpu": resource.MustParse("8"), "cpu": resource.MustParse("64"),
			}}}},
		},
		"TwoShapes": {
			reason: "shapes of one cluster add up",
			nodes:  []string{"hub=1xnvidia.com/gpu=1", "hub=2xnvidia.com/gpu=2"},
			want:   map[string][]clusters.NodeShape{"hub": {{Count: 1, Capacity: gpus("1")}, {Count: 2, Capacity: gpus("2")}}},
		},
		"OtherCluster": {reason: "nodes for nobody are a mistake", nodes: []string{"worker-9=1xcpu=1"}, wantErr: `"worker-9"`},
		"NoResource":   {reason: "a count alone says too little", nodes: []string{"hub=8"}, wantErr: "want NAME="},
		"NoCount":      {reason: "nodes are counted", nodes: []string{"hub=manyxcpu=1"}, wantErr: `"many" is not a positive number`},
		"NoAmount":     {reason: "resources have amounts", nodes: []string{"hub=1xcpu"}, wantErr: "not RESOURCE=AMOUNT"},
		"BadAmount":    {reason: "amounts are quantities", nodes: []string{"hub=1xcpu=lots"}, wantErr: "amount of cpu"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			options, err := upFlags{nodes: tc.nodes}.options([]string{"hub", "worker-1"})
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Fatalf("%s: want an error with %s, got: %v", tc.reason, tc.wantErr, err)
				}
				return
			}
			check.Must(t, err)
			got := map[string][]clusters.NodeShape{}
			for _, o := range options {
				if o.Nodes != nil {
					got[o.Name] = o.Nodes
				}
			}
			check.Diff(t, tc.want, got, tc.reason)
		})
	}
}
