// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"fmt"
	"hash"
	"hash/fnv"
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// scores are the scores that a policy asks for, prepared for one job.
//
// Each score is a number from 0 to 100 that follows from the job and the worker alone. So other workers neither change
// it nor change the order of two workers. The exception is Price without a ceiling, see fleetCeiling.
type scores struct {
	gang     *gang
	previous v1alpha1.ClusterName
	parts    []v1alpha1.Score
	weights  int64
	price    *pricing // nil: no part needs it.
}

// newScores takes all workers, also those that do not fit, because their prices can be the ceiling.
func newScores(f *filters, workers []Worker) *scores {
	s := &scores{gang: f.gang, previous: f.job.Previous, parts: f.policy.Rules().Scoring}
	for i := range s.parts {
		s.weights += weight(&s.parts[i])
		if s.parts[i].Name == v1alpha1.ScorePrice {
			s.price = newPricing(f.gang, s.parts[i].Ceiling, workers)
		}
	}
	return s
}

// weight of a part. The API server sets the default 1. A file that a simulation reads may have none.
func weight(part *v1alpha1.Score) int64 { return int64(max(part.Weight, 1)) }

// points are thousandths of a score. Decide compares points, and people see whole scores. If it compared whole scores,
// rounding would decide between workers with few nodes.
type points int64

// point is one score.
const point points = 1000

// score is a number from 0 to 100, rounded.
func (p points) score() int32 { return int32(math.Round(float64(p) / float64(point))) }

// sum is the weighted sum of a worker's scores. Decide compares it. The gang must be bound to the worker's nodes.
func (s *scores) sum(w *Worker) points {
	var sum points
	for i := range s.parts {
		sum += s.part(s.parts[i].Name, w) * points(weight(&s.parts[i]))
	}
	return sum
}

// total is the weighted average of a worker's scores, rounded.
func (s *scores) total(w *Worker) int32 {
	return int32(math.Round(float64(s.sum(w)) / float64(s.weights) / float64(point)))
}

// message shows the parts of a total: "score 73: LeastAllocated 80 x2, Price 60".
func (s *scores) message(w *Worker) string {
	parts := make([]string, len(s.parts))
	for i := range s.parts {
		parts[i] = fmt.Sprintf("%s %d", s.parts[i].Name, s.part(s.parts[i].Name, w).score())
		if weight := weight(&s.parts[i]); weight != 1 {
			parts[i] += fmt.Sprintf(" x%d", weight)
		}
	}
	return fmt.Sprintf("score %d: %s", s.total(w), strings.Join(parts, ", "))
}

func (s *scores) part(name v1alpha1.ScoreName, w *Worker) points {
	switch name {
	case v1alpha1.ScoreLeastAllocated:
		return s.gang.leastAllocated(w)
	case v1alpha1.ScoreMostAllocated:
		return s.gang.mostAllocated(w)
	case v1alpha1.ScorePrice:
		return s.price.of(w)
	case v1alpha1.ScoreQueueDepth:
		return percent(1 / float64(1+max(w.Queued, 0)))
	case v1alpha1.ScorePreference:
		return s.preference(w.Name)
	case v1alpha1.ScoreSticky:
		if s.previous != "" && s.previous == w.Name {
			return 100 * point
		}
	}
	return 0
}

// preference is the place of a worker in the order of the policy. It does not depend on which workers there are.
func (s *scores) preference(worker v1alpha1.ClusterName) points {
	for i := range s.parts {
		order := s.parts[i].Order
		if at := slices.Index(order, worker); s.parts[i].Name == v1alpha1.ScorePreference && at >= 0 {
			return percent(float64(len(order)-at) / float64(len(order)))
		}
	}
	return 0
}

// percent converts a share to a score.
func percent(share float64) points {
	return points(math.Round(100 * float64(point) * min(max(share, 0), 1)))
}

// dominant is the resource of which a job takes the largest share of a worker.
type dominant struct {
	name int // In gang.names, or -1: the job requests nothing that the worker has.
	col  int
	// need is what the job takes, free what the worker has free, and all what it has.
	need, free, all int64
}

// dominant considers only extended resources if the job requests any: GPUs decide, however many CPUs the job takes.
func (g *gang) dominant(w *Worker) dominant {
	most, share, extended := dominant{name: -1}, float64(0), false
	for i, name := range g.names {
		need, col := g.total[i], g.cols[i]
		if need == 0 || col < 0 || w.Nodes.total[col] == unlimited || extended && !g.extended[i] {
			continue
		}
		free, all := w.Nodes.total[col], max(w.Allocatable[name], w.Nodes.total[col])
		if all == 0 {
			continue
		}
		s := float64(need) / float64(all)
		if s > share || g.extended[i] && !extended {
			most, share = dominant{name: i, col: col, need: need, free: free, all: all}, s
		}
		extended = extended || g.extended[i]
	}
	return most
}

// leastAllocated is the share of the dominant resource that is free after the job is placed, or 100 without requests.
func (g *gang) leastAllocated(w *Worker) points {
	d := g.dominant(w)
	if d.name < 0 {
		return 100 * point
	}
	return percent(float64(d.free-d.need) / float64(d.all))
}

// rendezvous hashes a worker together with a job. The highest hash wins among workers of equal score. So jobs spread
// over these workers, and neither the workers' order nor a worker that was not chosen changes the result.
type rendezvous struct {
	hash hash.Hash64
	job  []byte
	name []byte // Scratch.
}

func newRendezvous(job types.UID) *rendezvous {
	return &rendezvous{hash: fnv.New64a(), job: []byte(job)}
}

func (r *rendezvous) of(worker v1alpha1.ClusterName) uint64 {
	r.name = append(r.name[:0], worker...)
	r.hash.Reset()
	// The job comes last: FNV mixes the end of the text least, and workers' names often differ only in their last byte.
	_, _ = r.hash.Write(r.name)
	_, _ = r.hash.Write(r.job)
	return r.hash.Sum64()
}
