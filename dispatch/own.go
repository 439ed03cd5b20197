// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// OwnDemand is the demand of a job on the workers whose own runtime of the name makes other pods than the hub's. Jobs share
// an OwnDemand, which does not change. Nil: there is no such worker.
type OwnDemand struct {
	on map[v1alpha1.ClusterName]*Variant
	// sum is equal for demands about which every decision is the same.
	sum string
}

// Variant is the demand of a job as the runtime of some workers makes it.
type Variant struct {
	// Runtime names the runtime, for words.
	Runtime string
	// Digest is that of the spec.
	Digest string
	// PodSets and Grace are as those of a Job.
	PodSets []v1alpha1.PodSet
	Grace   *v1alpha1.PodGrace
	// Fault says why no job like this can run with the runtime. Then there is nothing else.
	Fault string
}

// NewOwnDemand returns the demand on these workers, nil for none. Neither the map nor a Variant may change any more.
// Workers with the same runtime should share a Variant.
func NewOwnDemand(on map[v1alpha1.ClusterName]*Variant) *OwnDemand {
	if len(on) == 0 {
		return nil
	}
	o, sums, all := &OwnDemand{on: on}, map[*Variant][]byte{}, sha256.New()
	for _, worker := range slices.Sorted(maps.Keys(on)) {
		variant := on[worker]
		if sums[variant] == nil {
			// The digest of the spec says nothing about the pods.
			text, err := json.Marshal([]any{variant.Runtime, variant.PodSets, variant.Grace, variant.Fault})
			if err != nil { // JSON has no text for the demand. Then it is like no other spec's.
				text = []byte(variant.Digest)
			}
			sum := sha256.Sum256(text)
			sums[variant] = sum[:]
		}
		_, _ = fmt.Fprintf(all, "%q %x\n", worker, sums[variant]) // A hash takes everything.
	}
	o.sum = hex.EncodeToString(all.Sum(nil))
	return o
}

// On returns the demand on a worker, nil if it is the demand that the hub's runtime says.
func (o *OwnDemand) On(worker v1alpha1.ClusterName) *Variant {
	if o == nil {
		return nil
	}
	return o.on[worker]
}

// Variants returns the demands on all workers, each one once, in no order.
func (o *OwnDemand) Variants() []*Variant {
	if o == nil {
		return nil
	}
	distinct := map[*Variant]struct{}{}
	for _, variant := range o.on {
		distinct[variant] = struct{}{}
	}
	return slices.Collect(maps.Keys(distinct))
}

// MarshalJSON encodes the sum of the demand instead of the demand on each worker, for Job.Kind.
func (o *OwnDemand) MarshalJSON() ([]byte, error) { return json.Marshal(o.sum) }

// note says that the worker's own runtime was counted. It is empty if the hub's was.
func (o *OwnDemand) note(worker v1alpha1.ClusterName) string {
	own := o.On(worker)
	if own == nil || own.Fault != "" {
		return ""
	}
	return fmt.Sprintf("; the pods are counted as the worker's own %s makes them", own.Runtime)
}

// runtimeObjection says why the worker may not take the job because of its runtime. Empty: it may.
func (j *Job) runtimeObjection(w *Worker) string {
	if own := j.Own.On(w.Name); own != nil && own.Fault != "" {
		return fmt.Sprintf("the worker has its own %s, which cannot be used for the job: %s", own.Runtime, own.Fault)
	}
	return w.Runtimes.objection(j.RequiredRuntime)
}
