// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Prices are costs per hour: of a core for cpu, of a GiB for resources in bytes, of one unit for all others.
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

// price is the score Price. The ceiling is prepared once for the job.
func price(s *scores, setting *v1alpha1.Score, w *Worker) points {
	if s.pricing == nil {
		s.pricing = newPricing(s.filters.gang, setting.Ceiling, s.workers)
	}
	return s.pricing.of(w, s.filters.wholeGang(w), s.filters.expansionOn(w))
}

// pricing is what one job costs per hour, on a worker and at most.
type pricing struct {
	gang  *gang     // As the hub's runtime says it.
	units []float64 // Those of the gang.
	most  float64   // What the units cost at the ceiling.
}

// unitsOf is what a gang takes, per name, in the units of prices.
func unitsOf(g *gang) []float64 {
	all := make([]float64, len(g.names))
	for i, name := range g.names {
		if name != corev1.ResourcePods {
			all[i] = units(name, g.total[i])
		}
	}
	return all
}

func newPricing(g *gang, ceiling v1alpha1.Prices, workers []Worker) *pricing {
	p := &pricing{gang: g, units: unitsOf(g)}
	for i, name := range g.names {
		if name == corev1.ResourcePods {
			continue
		}
		if price, given := ceiling[name]; given {
			p.most += p.units[i] * price.AsApproximateFloat64()
		} else {
			p.most += p.units[i] * fleetCeiling(name, workers)
		}
	}
	return p
}

// fleetCeiling is the highest price of a resource in the fleet. All workers count, also those that do not fit, are not
// Ready or may not be used. So the ceiling changes only when an admin changes a price or registers a worker, not when
// nodes fill. Then, in an average with other scores, a third worker with a new highest price can change the order of
// two others. A ceiling in the policy rules that out.
func fleetCeiling(name corev1.ResourceName, workers []Worker) float64 {
	var most float64
	for i := range workers {
		most = max(most, workers[i].Price[name])
		for _, pool := range workers[i].Pools {
			most = max(most, pool.Unit[name])
		}
	}
	return most
}

// units converts an amount to the unit of prices.
func units(name corev1.ResourceName, amount int64) float64 {
	switch {
	case name == corev1.ResourceCPU:
		return float64(amount) / 1000
	case isBytes(name):
		return float64(amount) / (1 << 30)
	}
	return float64(amount)
}

// of is 100 if the job costs nothing, 0 if it costs as much as at the ceiling or more, and linear in between. If
// nothing has a price, all workers score 100. there is the gang as the worker makes it. What the job takes on nodes that
// the worker adds has their price.
func (p *pricing) of(w *Worker, there *gang, added *expansion) points {
	units := p.units
	if there != p.gang {
		units = unitsOf(there)
	}
	var cost float64
	for i, name := range there.names {
		if units[i] > 0 && len(w.Price) > 0 {
			cost += units[i] * w.Price[name]
		}
		if added != nil && units[i] > 0 {
			cost += added.dearer(w, name)
		}
	}
	switch {
	case cost <= 0:
		return 100 * point
	case p.most <= 0: // It costs something, and the ceiling is 0.
		return 0
	}
	return percent(1 - cost/p.most)
}
