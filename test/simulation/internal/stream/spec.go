// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"fmt"
	"math"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hashicorp/go-multierror"
)

// Spec describes a distribution of jobs. Each pool of GPUs of one product gets its own arrivals, so that the load is
// offered to all of them alike.
type Spec struct {
	// Classes of jobs.
	Classes []Class `json:"classes"`
	// Priorities of jobs, of whatever class. Absent: all have 0.
	Priorities []Priority `json:"priorities,omitempty"`
}

// Class are jobs of one size.
type Class struct {
	// Name for people.
	Name string `json:"name"`
	// Share of the jobs of a pool, in relation to the other classes that run there.
	Share float64 `json:"share"`
	// Nodes is how many pods a job has, and GPUs how many each of them requests.
	Nodes int `json:"nodes"`
	GPUs  int `json:"gpus"`
	// MillicoresPerGPU is the CPU that a pod requests for each GPU. Absent: 4000.
	MillicoresPerGPU int `json:"millicoresPerGPU,omitempty"`
	// Products are the pools that have jobs of this class. Absent: all.
	Products []string `json:"products,omitempty"`
	// Duration of a job.
	Duration Lognormal `json:"duration"`
}

// Lognormal is a distribution of durations.
type Lognormal struct {
	// Median of the durations.
	Median metav1.Duration `json:"median"`
	// Sigma is the standard deviation of their logarithm.
	Sigma float64 `json:"sigma"`
	// Max cuts longer durations. Absent: none are cut.
	Max metav1.Duration `json:"max,omitempty"`
}

// Priority is a share of the jobs.
type Priority struct {
	Share float64 `json:"share"`
	Value int32   `json:"value"`
}

// Pool are the GPUs of one product, of all workers.
type Pool struct {
	Product string
	GPUs    int
}

// Validate returns all faults of the description.
func (s *Spec) Validate() error {
	var faults *multierror.Error
	fault := func(format string, args ...any) { faults = multierror.Append(faults, fmt.Errorf(format, args...)) }
	if len(s.Classes) == 0 {
		fault("classes: there is none")
	}
	for i := range s.Classes {
		c := &s.Classes[i]
		if c.Share <= 0 {
			fault("classes[%d].share is %v, but a share is more than 0", i, c.Share)
		}
		if c.Nodes < 1 || c.GPUs < 1 || c.MillicoresPerGPU < 0 {
			fault("classes[%d]: nodes and gpus are at least 1, and millicoresPerGPU is not negative", i)
		}
		if d := c.Duration; d.Median.Duration <= 0 || d.Sigma < 0 || d.Max.Duration < 0 {
			fault("classes[%d].duration: the median is more than 0, and sigma and max are not negative", i)
		}
	}
	for i, p := range s.Priorities {
		if p.Share <= 0 {
			fault("priorities[%d].share is %v, but a share is more than 0", i, p.Share)
		}
	}
	return faults.ErrorOrNil()
}

// of returns the classes of a pool.
func (s *Spec) of(product string) []Class {
	return slices.DeleteFunc(slices.Clone(s.Classes), func(c Class) bool {
		return len(c.Products) > 0 && !slices.Contains(c.Products, product)
	})
}

// Mean of the durations, cut durations included.
func (l Lognormal) Mean() time.Duration {
	mu, s := math.Log(l.Median.Seconds()), l.Sigma
	mean := math.Exp(mu + s*s/2)
	if l.Max.Duration > 0 {
		if s == 0 {
			return min(l.Median.Duration, l.Max.Duration)
		}
		limit := l.Max.Seconds()
		at := (math.Log(limit) - mu) / s
		mean = mean*phi(at-s) + limit*(1-phi(at))
	}
	return time.Duration(mean * float64(time.Second))
}

// draw returns a duration for a number of the standard normal distribution. It is a second at least.
func (l Lognormal) draw(normal float64) time.Duration {
	d := time.Duration(math.Exp(math.Log(l.Median.Seconds())+l.Sigma*normal) * float64(time.Second))
	if l.Max.Duration > 0 {
		d = min(d, l.Max.Duration)
	}
	return max(d, time.Second)
}

// phi is the distribution function of the standard normal distribution.
func phi(x float64) float64 { return 0.5 * math.Erfc(-x/math.Sqrt2) }
