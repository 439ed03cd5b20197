// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"fmt"
	"hash"
	"hash/fnv"
	"math"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// scores are the scores that a policy asks for, prepared for one job.
//
// Each is a number from 0 to 100 that follows from the job and the worker alone, so that it neither changes with who else fits
// nor makes two workers change places because of a third. The exception is Price without a ceiling, see fleetCeiling.
type scores struct {
	gang     *gang
	previous v1alpha1.ClusterName
	parts    []v1alpha1.Score
	weights  int64
	price    *pricing // Nil: no part asks for it.
}

// defaultScoring is that of jobs whose policy has none. It keeps whole nodes free for gangs: docs/simulation.md says what that means for
// how long jobs wait.
var defaultScoring = []v1alpha1.Score{{Name: v1alpha1.ScoreMostAllocated, Weight: 1}}

// newScores takes all workers, those that lose too, because their prices are a measure of what is dear.
func newScores(f *filters, workers []Worker) *scores {
	s := &scores{gang: f.gang, previous: f.job.Previous, parts: defaultScoring}
	if f.policy != nil && len(f.policy.Spec.Scoring) > 0 {
		s.parts = f.policy.Spec.Scoring
	}
	for i := range s.parts {
		s.weights += weight(&s.parts[i])
		if s.parts[i].Name == v1alpha1.ScorePrice {
			s.price = newPricing(f.gang, s.parts[i].Ceiling, workers)
		}
	}
	return s
}

// weight of a part. The API server defaults it to 1, a file that a simulation reads does not.
func weight(part *v1alpha1.Score) int64 { return int64(max(part.Weight, 1)) }

// points are thousandths of a score. Workers are compared by points and people are shown whole scores: were workers
// compared by these, the rounding would decide where a worker has few nodes.
type points int64

// point is one score.
const point points = 1000

// score is a number from 0 to 100, rounded.
func (p points) score() int32 { return int32(math.Round(float64(p) / float64(point))) }

// sum of a worker's scores by weight. Workers are compared by it. The gang must be bound to the worker's nodes.
func (s *scores) sum(w *Worker) points {
	var sum points
	for i := range s.parts {
		sum += s.part(s.parts[i].Name, w) * points(weight(&s.parts[i]))
	}
	return sum
}

// total is the average of a worker's scores by weight, rounded.
func (s *scores) total(w *Worker) int32 {
	return int32(math.Round(float64(s.sum(w)) / float64(s.weights) / float64(point)))
}

// message shows how a total comes about: "score 73: LeastAllocated 80 x2, Price 60".
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

// part is one score of a worker.
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
	case v1alpha1.ScoreSticky:
		if s.previous != "" && s.previous == w.Name {
			return 100 * point
		}
	}
	return 0
}

// percent makes a score of a share.
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

// dominant looks among extended resources (GPUs) if the job requests any: a job with GPUs goes by where GPUs are free, however many
// CPUs it takes.
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

// leastAllocated is the share of the job's dominant resource that is still free on the worker when the job is placed. A job that
// requests nothing scores 100 everywhere.
func (g *gang) leastAllocated(w *Worker) points {
	d := g.dominant(w)
	if d.name < 0 {
		return 100 * point
	}
	return percent(float64(d.free-d.need) / float64(d.all))
}

// rendezvous hashes a worker together with a job. Among workers of equal score the highest hash wins: jobs spread over them, and
// one job's answer depends neither on the workers' order nor on those that lost.
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
	// The job last: the end of the text is what FNV mixes least, and workers' names often differ in their last byte only.
	_, _ = r.hash.Write(r.name)
	_, _ = r.hash.Write(r.job)
	return r.hash.Sum64()
}
