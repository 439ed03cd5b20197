// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/hashicorp/go-multierror"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// Pods are pods of a job that are alike.
type Pods struct {
	// Count of pods.
	Count int
	// GPUs and Millicores of CPU that each requests.
	GPUs, Millicores int
	// Products of GPUs on whose nodes the pods can run. Empty: all.
	Products []string
}

// Job is one gang.
type Job struct {
	// ID counts the jobs of a stream from 0.
	ID int
	// Name for people: the class, or the name in the trace.
	Name string
	// Submitted is when it arrives, since the beginning.
	Submitted time.Duration
	// Duration is how long it runs once all its pods do.
	Duration time.Duration
	// Priority, higher first.
	Priority int32
	// Pods are what must have a place at the same time.
	Pods []Pods
}

// GPUs of all pods together.
func (j *Job) GPUs() int {
	var gpus int
	for i := range j.Pods {
		gpus += j.Pods[i].Count * j.Pods[i].GPUs
	}
	return gpus
}

// Shape is equal for jobs with equal pods, and for no others.
func (j *Job) Shape() string {
	return fmt.Sprint(j.Pods)
}

// Sort puts jobs in the order in which they arrive, and numbers them.
func Sort(jobs []Job) {
	slices.SortStableFunc(jobs, func(a, b Job) int { return cmp.Compare(a.Submitted, b.Submitted) })
	for i := range jobs {
		jobs[i].ID = i
	}
}

// Work is what jobs take: GPUs times duration, in GPU seconds.
func Work(jobs []Job) float64 {
	var work float64
	for i := range jobs {
		work += float64(jobs[i].GPUs()) * jobs[i].Duration.Seconds()
	}
	return work
}

// Stretch changes the time between arrivals, so that the jobs offer a load to so many GPUs. The durations stay.
func Stretch(jobs []Job, load float64, gpus int) {
	if len(jobs) == 0 {
		return
	}
	first, last := jobs[0].Submitted, jobs[len(jobs)-1].Submitted
	span := Work(jobs) / (load * float64(gpus))
	if last == first || span == 0 {
		return
	}
	factor := span / (last - first).Seconds()
	for i := range jobs {
		jobs[i].Submitted = time.Duration(float64(jobs[i].Submitted-first) * factor)
	}
}

// defaultMillicores is the CPU for a GPU of classes that do not say.
const defaultMillicores = 4000

// Generate makes the jobs that arrive until an end. Each pool is offered the load: on average its jobs take that share
// of its GPUs, if they all run at once.
func (s *Spec) Generate(seed uint64, pools []Pool, load float64, end time.Duration) ([]Job, error) {
	var jobs []Job
	for _, pool := range pools {
		classes := s.of(pool.Product)
		if len(classes) == 0 {
			return nil, fmt.Errorf("no class of jobs is for the %d GPUs of product %q", pool.GPUs, pool.Product)
		}
		jobs = append(jobs, s.arrivals(draws(seed, pool.Product), pool, classes, load, end)...)
	}
	Sort(jobs)
	return jobs, nil
}

// draws returns the random numbers of a pool, so that the jobs of a pool do not depend on other pools.
func draws(seed uint64, product string) *rand.Rand {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(product))
	return rand.New(rand.NewPCG(seed, hash.Sum64()))
}

func (s *Spec) arrivals(r *rand.Rand, pool Pool, classes []Class, load float64, end time.Duration) []Job {
	var shares, work float64
	for i := range classes {
		c := &classes[i]
		shares += c.Share
		work += c.Share * float64(c.Nodes*c.GPUs) * c.Duration.Mean().Seconds()
	}
	gap := work / shares / (load * float64(pool.GPUs)) // Seconds, on average.
	var jobs []Job
	for at := r.ExpFloat64() * gap; at < end.Seconds(); at += r.ExpFloat64() * gap {
		c := pick(r, classes, shares)
		jobs = append(jobs, Job{
			Name:      c.Name,
			Submitted: time.Duration(at * float64(time.Second)),
			Duration:  c.Duration.draw(r.NormFloat64()),
			Priority:  s.priority(r),
			Pods:      []Pods{c.pods(pool.Product)},
		})
	}
	return jobs
}

// pick draws a class by its share.
func pick(r *rand.Rand, classes []Class, shares float64) *Class {
	at := r.Float64() * shares
	for i := range classes {
		if at -= classes[i].Share; at < 0 {
			return &classes[i]
		}
	}
	return &classes[len(classes)-1]
}

func (c *Class) pods(product string) Pods {
	millicores := c.MillicoresPerGPU
	if millicores == 0 {
		millicores = defaultMillicores
	}
	return Pods{Count: c.Nodes, GPUs: c.GPUs, Millicores: c.GPUs * millicores, Products: []string{product}}
}

func (s *Spec) priority(r *rand.Rand) int32 {
	var shares float64
	for _, p := range s.Priorities {
		shares += p.Share
	}
	at := r.Float64() * shares
	for _, p := range s.Priorities {
		if at -= p.Share; at < 0 {
			return p.Value
		}
	}
	return 0
}
