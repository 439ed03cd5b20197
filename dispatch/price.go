// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Prices are what a unit of each resource costs per hour: a core of cpu, a GiB of what is counted in bytes, one of all others.
type Prices map[corev1.ResourceName]float64

// PricesOf converts prices of the API.
func PricesOf(prices v1alpha1.Prices) Prices {
	if len(prices) == 0 {
		return nil
	}
	p := make(Prices, len(prices))
	for name, price := range prices {
		p[name] = price.AsApproximateFloat64()
	}
	return p
}

// pricing is what one job costs per hour, there and at most.
type pricing struct {
	names []corev1.ResourceName
	units []float64 // Of each name that the job takes; 0: none.
	most  float64   // What the units cost at the ceiling.
}

func newPricing(g *gang, ceiling v1alpha1.Prices, workers []Worker) *pricing {
	p := &pricing{names: g.names, units: make([]float64, len(g.names))}
	for i, name := range g.names {
		if name == corev1.ResourcePods {
			continue
		}
		p.units[i] = units(name, g.total[i])
		if price, given := ceiling[name]; given {
			p.most += p.units[i] * price.AsApproximateFloat64()
		} else {
			p.most += p.units[i] * fleetCeiling(name, workers)
		}
	}
	return p
}

// fleetCeiling is the highest price of a resource in the fleet. Workers count whether or not they fit, are Ready or may be used: so
// the measure changes only when an admin changes a price or registers a worker, not when a node is filled. It does change
// then, and in an average with other scores two workers can change places because of a third that is dearer than all before.
// A ceiling in the policy rules that out.
func fleetCeiling(name corev1.ResourceName, workers []Worker) float64 {
	var most float64
	for i := range workers {
		most = max(most, workers[i].Price[name])
	}
	return most
}

// units turns an amount into what prices are for.
func units(name corev1.ResourceName, amount int64) float64 {
	switch {
	case name == corev1.ResourceCPU:
		return float64(amount) / 1000
	case isBytes(name):
		return float64(amount) / (1 << 30)
	}
	return float64(amount)
}

// of is 100 where the job costs nothing, 0 where it costs what it costs at the ceiling or more, and linear in between. Where
// nothing has a price, all score 100.
func (p *pricing) of(w *Worker) points {
	var cost float64
	for i, name := range p.names {
		if p.units[i] > 0 && len(w.Price) > 0 {
			cost += p.units[i] * w.Price[name]
		}
	}
	switch {
	case cost <= 0:
		return 100 * point
	case p.most <= 0: // Dearer than a ceiling of nothing.
		return 0
	}
	return percent(1 - cost/p.most)
}
