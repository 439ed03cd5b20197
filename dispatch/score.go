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

	"github.com/trainyard/trainyard/api/hostports"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Score is a row of Scores.
type Score struct {
	Name v1alpha1.ScoreName
	// Counts says what the score of a worker is, and Use what the score is for, in the words of docs/policy.md.
	Counts, Use string
	// compares: the score of a worker depends on other workers.
	compares bool
	// of computes the score of a worker for the policy's setting. The gang is bound to the nodes of the worker.
	of func(s *scores, setting *v1alpha1.Score, w *Worker) points
	// says, in explanations, what the score of a worker was computed from. Nil: nothing.
	says func(s *scores, w *Worker) string
}

// Scores has all scores, in the order of the enum of v1alpha1.ScoreName. Each is a number from 0 to 100 that follows
// from the job and the worker alone, unless it compares. So other workers change neither it nor the order of two
// workers.
var Scores = []Score{
	{
		Name: v1alpha1.ScoreLeastAllocated, of: leastAllocated,
		Counts: "the share of the job's dominant resource (GPUs if it requests any) that is free on the worker afterwards",
		Use:    "spread jobs",
	},
	{
		Name: v1alpha1.ScoreMostAllocated, of: mostAllocated,
		Counts: "Three quarters: the part that the job would use of what is free on its nodes. One quarter: how full the " +
			"worker would be with the job. One point less for each job that was placed there and has no pods yet.",
		Use: "keep whole nodes free for gangs",
	},
	{
		Name: v1alpha1.ScorePrice, of: price, compares: true,
		Counts: "what the job costs there per hour: 100 if nothing, 0 at the ceiling or above",
		Use:    "prefer cheap workers",
	},
	{
		Name: v1alpha1.ScoreQueueDepth, of: queueDepth,
		Counts: "100 divided by one more than the number of jobs that were placed there and have no pods yet",
		Use:    "avoid workers that start pods slowly",
	},
	{
		Name: v1alpha1.ScoreSticky, of: sticky,
		Counts: "100 on the worker where the job ran before, 0 elsewhere",
		Use:    "reuse images and data",
	},
	{
		Name: v1alpha1.ScorePreference, of: preference,
		Counts: "the worker's place in `order`: 100 for the first worker, less by the same amount for each next one (of 4: " +
			"100, 75, 50, 25), 0 for workers that are not in it",
		Use: "fill workers in a fixed order. As the only score, it alone decides between the workers on which a job fits.",
	},
	{
		Name: v1alpha1.ScoreAddedNodes, of: fewestAdded,
		Counts: "100 if the job fits on nodes that are there, else 100 divided by one more than the number of nodes that the " +
			"worker would add",
		Use: "weigh nodes that have to be added against the other scores, with `addNodes: ByScore`",
	},
	{
		Name: v1alpha1.ScoreDataLocality, of: locality, says: costs,
		Counts: "100 less what it costs there to read the [data](#data) of the job, on average over its URIs. Data that the worker does " +
			"not list costs 100. A job that reads nothing has 100 everywhere.",
		Use: "bring jobs to their data",
	},
}

// scoreOf returns the row of a score, nil for a name that only another version knows.
func scoreOf(name v1alpha1.ScoreName) *Score {
	for i := range Scores {
		if Scores[i].Name == name {
			return &Scores[i]
		}
	}
	return nil
}

// Compares says whether a worker that changes can change the scores of other workers under the policy.
func (p Policy) Compares() bool {
	return slices.ContainsFunc(p.Spec.Scoring, func(setting v1alpha1.Score) bool {
		score := scoreOf(setting.Name)
		return score != nil && score.compares
	})
}

// scores are the scores that a policy asks for, prepared for one job.
type scores struct {
	job     *Job
	filters *filters
	// workers are all workers, also those that do not fit.
	workers []Worker
	parts   []part
	few     [8]part // The parts, unless they are more than the API permits. That saves an allocation.
	weights int64
	pricing *pricing // nil: no worker has been asked for its price.
}

// part is a score with its setting. The score is nil if it is not known, and then the worker has 0.
type part struct {
	*v1alpha1.Score

	score *Score
}

func newScores(f *filters, workers []Worker) *scores {
	s := &scores{job: &f.job, filters: f, workers: workers}
	settings := f.policy.Rules().Scoring
	s.parts = s.few[:0]
	for i := range settings {
		s.parts = append(s.parts, part{&settings[i], scoreOf(settings[i].Name)})
		s.weights += s.parts[i].weight()
	}
	return s
}

// weight of a part. The API server sets the default 1. A file that a simulation reads may have none.
func (p *part) weight() int64 { return int64(max(p.Weight, 1)) }

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
		sum += s.part(&s.parts[i], w) * points(s.parts[i].weight())
	}
	return sum
}

// total is the weighted average of a worker's scores, rounded.
func (s *scores) total(w *Worker) int32 {
	return int32(math.Round(float64(s.sum(w)) / float64(s.weights) / float64(point)))
}

// message shows the parts of a total: "score 73: LeastAllocated 80 x2, Price 60". Before it, it says which nodes the worker
// would add.
func (s *scores) message(w *Worker) string {
	parts := make([]string, len(s.parts))
	for i := range s.parts {
		p := &s.parts[i]
		parts[i] = fmt.Sprintf("%s %d", p.Name, s.part(p, w).score())
		if weight := p.weight(); weight != 1 {
			parts[i] += fmt.Sprintf(" x%d", weight)
		}
		if p.score != nil && p.score.says != nil {
			parts[i] += " (" + p.score.says(s, w) + ")"
		}
	}
	message := fmt.Sprintf("score %d: %s", s.total(w), strings.Join(parts, ", "))
	if adds := s.filters.expansionOn(w); adds != nil {
		message = adds.String() + "; " + message
	}
	return message
}

func (s *scores) part(p *part, w *Worker) points {
	if p.score == nil {
		return 0
	}
	return p.score.of(s, p.Score, w)
}

func queueDepth(_ *scores, _ *v1alpha1.Score, w *Worker) points {
	return percent(1 / float64(1+max(w.Queued, 0)))
}

func sticky(s *scores, _ *v1alpha1.Score, w *Worker) points {
	if s.job.Previous != "" && s.job.Previous == w.Name {
		return 100 * point
	}
	return 0
}

// preference is the place of a worker in the order of the policy. It does not depend on which workers there are.
func preference(_ *scores, setting *v1alpha1.Score, w *Worker) points {
	if at := slices.Index(setting.Order, w.Name); at >= 0 {
		return percent(float64(len(setting.Order)-at) / float64(len(setting.Order)))
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
		if need == 0 || col < 0 || w.Nodes.total[col] == unlimited || extended && !g.extended[i] || len(g.hostPorts) > 0 && hostports.Is(name) {
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
func leastAllocated(s *scores, _ *v1alpha1.Score, w *Worker) points {
	d := s.filters.gangOn(w).dominant(w)
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
