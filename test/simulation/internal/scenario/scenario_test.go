// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/simulation/internal/stream"
	"github.com/trainyard/trainyard/test/simulation/internal/world"
)

// TestBuiltIn: the built-in scenarios are valid, and as large as they say.
func TestBuiltIn(t *testing.T) {
	if diff := cmp.Diff([]string{"large", "mixed"}, Names()); diff != "" {
		t.Fatal(diff)
	}
	for name, want := range map[string][3]int{"mixed": {40, 1008, 7040}, "large": {1000, 1000000, 7200000}} {
		s, err := Load(name)
		check.Must(t, err)
		workers, nodes, gpus := s.Size()
		if got := [3]int{workers, nodes, gpus}; got != want {
			t.Errorf("%s has %v workers, nodes and GPUs, want %v", name, got, want)
		}
		if got := len(s.Workers()); got != workers {
			t.Errorf("%s: Workers returns %d, and Size %d", name, got, workers)
		}
	}
}

const small = `
fleet:
- {name: a, count: 4, groups: [{product: A100, nodes: 2, gpus: 8, millicores: 96000}]}
- {name: b, count: 2, groups: [{product: L4, nodes: 3, gpus: 4, millicores: 48000}, {product: A100, nodes: 1, gpus: 8, millicores: 96000}]}
jobs:
  classes: [{name: one, share: 1, nodes: 2, gpus: 4, duration: {median: 1h, sigma: 1}}]
load: 0.5
warmup: 1h
window: 2h
cooldown: 3h
`

func TestScenario(t *testing.T) {
	name := filepath.Join(t.TempDir(), "small.yaml")
	check.Must(t, os.WriteFile(name, []byte(small), 0o600))
	s, err := Load(name)
	check.Must(t, err)
	check.Diff(t, []stream.Pool{{Product: "A100", GPUs: 80}, {Product: "L4", GPUs: 24}}, s.Pools(), "pools")
	var names []string
	for _, w := range s.Workers() {
		names = append(names, w.Name)
	}
	check.Diff(t, []string{"a-000", "b-000", "a-001", "a-002", "b-001", "a-003"}, names,
		"each kind is to be spread over the list")
	if want := (world.Span{From: time.Hour, To: 3 * time.Hour}); s.Measured() != want || s.End() != 6*time.Hour {
		t.Errorf("measured is %v and the end %v, want %v and 6h", s.Measured(), s.End(), want)
	}
}

func TestLoadFaults(t *testing.T) {
	for name, tc := range map[string]struct{ old, new, want string }{
		"Unknown":  {old: "load:", new: "laod:", want: `unknown field "laod"`},
		"Load":     {old: "load: 0.5", new: "load: 0", want: "load is 0, but it is more than 0"},
		"Window":   {old: "window: 2h", new: "window: 0s", want: "window is more than 0"},
		"Name":     {old: "name: b", new: "name: a", want: `fleet[1].name is "a", but each kind has a name of its own`},
		"Count":    {old: "count: 4", new: "count: 0", want: "fleet[0] has count 0 and 1 groups"},
		"Group":    {old: "nodes: 3", new: "nodes: -3", want: "fleet[1].groups[0]: a product, and at least one node"},
		"Class":    {old: "share: 1", new: "share: 0", want: "classes[0].share is 0"},
		"TooLarge": {old: "nodes: 2, gpus: 4,", new: "nodes: 4, gpus: 4,", want: "one needs 4 nodes with 4 GPUs of product L4, and no worker"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse([]byte(strings.Replace(small, tc.old, tc.new, 1)))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error:\n%v\nwant: %s", err, tc.want)
			}
		})
	}
	if _, err := Load("huge"); err == nil || !strings.Contains(err.Error(), `no scenario "huge" is built in (there are large, mixed)`) {
		t.Errorf("got error %v", err)
	}
}

// TestAdapt: if the fleet lacks the GPUs for which a job asks, the job may have any GPUs.
func TestAdapt(t *testing.T) {
	s, err := parse([]byte(small))
	check.Must(t, err)
	jobs := []stream.Job{
		{Pods: []stream.Pods{{Products: []string{"V100", "L4"}}}}, {Pods: []stream.Pods{{Products: []string{"V100"}}}}, {Pods: []stream.Pods{{}}},
	}
	check.Equal(t, 1, s.Adapt(jobs), "jobs that take any product")
	if got := jobs[0].Pods[0].Products; !slices.Equal(got, []string{"L4"}) {
		t.Errorf("the first job takes %v, want L4", got)
	}
}
