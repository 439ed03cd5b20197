// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/test/check"
)

func lognormal(median time.Duration, sigma float64, longest time.Duration) Lognormal {
	return Lognormal{Median: metav1.Duration{Duration: median}, Sigma: sigma, Max: metav1.Duration{Duration: longest}}
}

func spec() Spec {
	return Spec{
		Classes: []Class{
			{Name: "small", Share: 3, Nodes: 1, GPUs: 1, Duration: lognormal(time.Hour, 1, 24*time.Hour)},
			{Name: "large", Share: 1, Nodes: 4, GPUs: 8, Products: []string{"A100"}, Duration: lognormal(2*time.Hour, 0.5, 0)},
		},
		Priorities: []Priority{{Share: 9}, {Share: 1, Value: 7}},
	}
}

// TestLoad: the requested load arrives for each product, and classes and priorities have their shares.
func TestLoad(t *testing.T) {
	s, pools, end := spec(), []Pool{{Product: "A100", GPUs: 1000}, {Product: "L4", GPUs: 300}}, 1000*time.Hour
	jobs, err := s.Generate(1, pools, 0.85, end)
	check.Must(t, err)
	work, large, a100, urgent := map[string]float64{}, 0.0, 0.0, 0.0
	for i := range jobs {
		j := &jobs[i]
		product := j.Pods[0].Products[0]
		work[product] += float64(j.GPUs()) * j.Duration.Seconds()
		if product == "A100" {
			a100++
		}
		if j.Name == "large" {
			large++
		}
		if j.Priority == 7 {
			urgent++
		}
	}
	for _, pool := range pools {
		if load := work[pool.Product] / (float64(pool.GPUs) * end.Seconds()); math.Abs(load-0.85) > 0.02 {
			t.Errorf("the load offered to %s is %.3f, want 0.85", pool.Product, load)
		}
	}
	if share := large / a100; math.Abs(share-0.25) > 0.01 {
		t.Errorf("%.3f of the jobs for A100 are large, want 0.25", share)
	}
	if share := urgent / float64(len(jobs)); math.Abs(share-0.1) > 0.01 {
		t.Errorf("%.3f of the jobs have priority 7, want 0.1", share)
	}
}

// TestGenerateRepeats: jobs follow from the seed, and the jobs of a pool do not depend on other pools.
func TestGenerateRepeats(t *testing.T) {
	s := spec()
	generate := func(seed uint64, pools ...Pool) []Job {
		jobs, err := s.Generate(seed, pools, 0.5, 100*time.Hour)
		check.Must(t, err)
		return jobs
	}
	a100, l4 := Pool{Product: "A100", GPUs: 100}, Pool{Product: "L4", GPUs: 100}
	check.Diff(t, generate(1, a100, l4), generate(1, l4, a100), "the order of the pools makes a difference")
	if cmp.Equal(generate(1, a100), generate(2, a100)) {
		t.Error("another seed gives the same jobs")
	}
	var alone []Job
	for _, j := range generate(1, a100, l4) {
		if j.Pods[0].Products[0] == "A100" {
			alone = append(alone, j)
		}
	}
	Sort(alone)
	check.Diff(t, generate(1, a100), alone, "the jobs of one pool depend on the other")
}

func TestGenerateNoClass(t *testing.T) {
	s := Spec{Classes: spec().Classes[1:]}
	_, err := s.Generate(1, []Pool{{Product: "L4", GPUs: 8}}, 0.5, time.Hour)
	if err == nil || !strings.Contains(err.Error(), `no class of jobs is for the 8 GPUs of product "L4"`) {
		t.Errorf("got error %v", err)
	}
}

// TestMean compares the mean from which the load is computed with the mean of many draws.
func TestMean(t *testing.T) {
	for name, l := range map[string]Lognormal{
		"NoMax":    lognormal(time.Hour, 0.8, 0),
		"Max":      lognormal(time.Hour, 1.5, 12*time.Hour),
		"Constant": lognormal(time.Hour, 0, 0),
		"Cut":      lognormal(time.Hour, 0, 30*time.Minute),
	} {
		t.Run(name, func(t *testing.T) {
			r, sum := draws(3, name), time.Duration(0)
			const n = 100000
			for range n {
				sum += l.draw(r.NormFloat64())
			}
			if got := (sum / n).Seconds() / l.Mean().Seconds(); math.Abs(got-1) > 0.02 {
				t.Errorf("the mean of the draws is %.3f times Mean, which is %v", got, l.Mean())
			}
		})
	}
}

func TestStretch(t *testing.T) {
	jobs := []Job{
		{Submitted: 0, Duration: 100 * time.Second, Pods: []Pods{{Count: 1, GPUs: 8}}},
		{Submitted: 10 * time.Second, Duration: 100 * time.Second, Pods: []Pods{{Count: 2, GPUs: 4}}},
		{Submitted: 20 * time.Second, Duration: 100 * time.Second, Pods: []Pods{{Count: 4, GPUs: 1}}},
	}
	Stretch(jobs, 0.5, 10) // 2,000 GPU seconds on half of 10 GPUs take 400 s.
	if got := []time.Duration{jobs[0].Submitted, jobs[1].Submitted, jobs[2].Submitted}; !cmp.Equal(got,
		[]time.Duration{0, 200 * time.Second, 400 * time.Second}) {
		t.Errorf("jobs are submitted at %v, want 0, 200 s, 400 s", got)
	}
}

func TestValidate(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Spec)
		want   string
	}{
		"Valid":     {change: func(*Spec) {}},
		"NoClasses": {change: func(s *Spec) { s.Classes = nil }, want: "classes: there is none"},
		"Share":     {change: func(s *Spec) { s.Classes[1].Share = 0 }, want: "classes[1].share is 0"},
		"GPUs":      {change: func(s *Spec) { s.Classes[0].GPUs = 0 }, want: "classes[0]: nodes and gpus are at least 1"},
		"Median":    {change: func(s *Spec) { s.Classes[0].Duration.Median.Duration = 0 }, want: "classes[0].duration: the median"},
		"Priority":  {change: func(s *Spec) { s.Priorities[1].Share = -1 }, want: "priorities[1].share is -1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := spec()
			tc.change(&s)
			err := s.Validate()
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got error %v, want %q", err, tc.want)
			}
		})
	}
}
