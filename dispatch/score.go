// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"hash"
	"hash/fnv"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// leastAllocated scores a worker on which the gang fits, 0 to 100: the share of the job's dominant resource that is still free
// when the job is placed. Dominant is the resource of which it takes the largest share of the worker, among extended resources
// (GPUs) if it requests any: a job with GPUs goes where most GPUs are free, however many CPUs it takes. A job that requests
// nothing scores 100 everywhere.
func (g *gang) leastAllocated(w *Worker) int32 {
	var share, score float64 = 0, 100
	extended := false
	for i, name := range g.names {
		need := g.total[i]
		col := g.cols[i]
		if need == 0 || col < 0 || w.Nodes.total[col] == unlimited || extended && !isExtended(name) {
			continue
		}
		free, all := w.Nodes.total[col], max(w.Allocatable[name], w.Nodes.total[col])
		if all == 0 {
			continue
		}
		s := float64(need) / float64(all)
		if s > share || isExtended(name) && !extended {
			share, score = s, 100*float64(free-need)/float64(all)
		}
		extended = extended || isExtended(name)
	}
	return int32(min(max(score, 0), 100))
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
