// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"
)

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
