// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// filterResult is the filter that rejected a worker, or fits: its place in filterRows. A lower result is closer to
// taking the job.
type filterResult uint8

const (
	fits filterResult = iota
	excluded
	insufficient
	unfenceable
	awayFromHome
	dataElsewhere
	fieldUnknown
	runtimeDiffers
	inadmissible
	pinMismatch
	policyMismatch
	cordoned
	notReady
)

// Remedy is what lets a worker take a job that it does not take now.
type Remedy uint8

const (
	// Waiting says: other jobs end, nodes are added, or time passes.
	Waiting Remedy = iota
	// ChangedPin says: the job needs another pin. Without it no end of a job helps, and no more nodes like those that the
	// worker has. So it is with the next two.
	ChangedPin
	// ChangedPolicy says: the policy has to allow the worker.
	ChangedPolicy
	// ChangedWorker says: the worker has to be ready, take jobs, list other data, or have nodes of another kind or another
	// runtime.
	ChangedWorker
)

// filterRows say what follows from a filter. open and check run the filters.
var filterRows = [...]struct {
	// reason in explanations.
	reason  string
	remedy  Remedy
	message func(f *filters, w *Worker) string
}{
	fits: {reason: v1alpha1.ReasonFits},
	// The exclusion has its own reason.
	excluded: {message: func(f *filters, w *Worker) string { return f.job.Excluded[w.Name].Message }},
	insufficient: {
		reason: v1alpha1.ReasonInsufficientResources,
		message: func(f *filters, w *Worker) string {
			message := f.lack(w) + f.job.Own.note(w.Name)
			if _, changed := f.job.Admitted[w.Name]; changed {
				message += countedBy(w)
			}
			return message
		},
	},
	// The agent could not stop the copy in time if its pods took the grace period of the policy.
	unfenceable: {reason: v1alpha1.ReasonGraceTooLong, remedy: ChangedPolicy, message: (*filters).tooLong},
	awayFromHome: {
		reason: v1alpha1.ReasonCheckpointElsewhere, remedy: ChangedPin,
		message: func(f *filters, _ *Worker) string {
			return fmt.Sprintf("the job stays with worker %s, where it ran and saves its checkpoints in PersistentVolumeClaim %s; "+
				"without the annotation %s it may go elsewhere, and begins anew", f.job.Home, f.job.Claim, v1alpha1.AnnotationCheckpoint)
		},
	},
	dataElsewhere: {reason: v1alpha1.ReasonDataElsewhere, remedy: ChangedWorker, message: (*filters).dataElsewhere},
	fieldUnknown:  {reason: v1alpha1.ReasonFieldUnknown, remedy: ChangedWorker, message: (*filters).unknownFields},
	runtimeDiffers: {
		reason: v1alpha1.ReasonRuntimeDiffers, remedy: ChangedWorker,
		message: func(f *filters, w *Worker) string { return f.job.runtimeObjection(w) },
	},
	// The policy's expression is false.
	inadmissible: {reason: v1alpha1.ReasonPolicyMismatch, remedy: ChangedPolicy, message: (*filters).objection},
	pinMismatch: {
		reason: v1alpha1.ReasonPinMismatch, remedy: ChangedPin,
		message: func(f *filters, w *Worker) string {
			if f.denial != nil {
				return f.denial.message
			}
			return fmt.Sprintf("the job is pinned to %s=%q, which does not select the worker%s",
				v1alpha1.AnnotationClusters, f.job.Annotations[v1alpha1.AnnotationClusters], mismatch(f.pin, w.Labels))
		},
	},
	// The policy's selector does not match.
	policyMismatch: {
		reason: v1alpha1.ReasonPolicyMismatch, remedy: ChangedPolicy,
		message: func(f *filters, w *Worker) string {
			if f.denial != nil {
				return f.denial.message
			}
			return "DispatchPolicy " + f.policy.Name + " does not select the worker" + mismatch(f.clusters, w.Labels)
		},
	},
	cordoned: {
		reason: v1alpha1.ReasonCordoned, remedy: ChangedWorker,
		message: func(_ *filters, w *Worker) string {
			if w.Draining {
				return "the worker is being drained (spec.drain)"
			}
			return "the worker is cordoned (spec.unschedulable)"
		},
	},
	notReady: {
		reason: v1alpha1.ReasonNotReady, remedy: ChangedWorker,
		message: func(_ *filters, w *Worker) string { return w.NotReady },
	},
}

// lackingNodes are the reasons of an explanation that say more than ReasonInsufficientResources: the worker lacks nodes.
var lackingNodes = []string{v1alpha1.ReasonNoMatchingNode, v1alpha1.ReasonNoDomain}

// RemedyOf returns what lets a worker take the job, by the reason in the explanation of the worker.
func RemedyOf(reason string) Remedy {
	if slices.Contains(lackingNodes, reason) {
		return ChangedWorker
	}
	for i := range filterRows {
		if filterRows[i].reason == reason {
			return filterRows[i].remedy
		}
	}
	return Waiting
}

// Objections returns the reasons of explanations of workers that do not take a job, each one once. A worker that has refused
// the job has the outcome of that attempt instead.
func Objections() []string {
	var all []string
	for i := len(filterRows) - 1; i > int(fits); i-- { // The first filters come first.
		if reason := filterRows[i].reason; reason != "" && !slices.Contains(all, reason) {
			all = append(all, reason)
		}
	}
	return slices.Concat(all, lackingNodes)
}

// filters are the filters of one job, ready to check workers.
type filters struct {
	job   Job
	gang  *gang               // Use gangOn.
	gangs map[demandKey]*gang // Those of job.Own and job.Admitted that were asked for.
	// Of a job with a topology: where it would be on the workers that fits was asked of, and what searches there.
	choices  map[v1alpha1.ClusterName]*choice
	searches map[demandKey]*domainSearch
	// expansions are the nodes that workers would add for the job. Use expansionOn.
	expansions map[v1alpha1.ClusterName]*expansion
	policy     *Policy
	clusters   labels.Selector                    // The policy's selector.
	pin        labels.Selector                    // The job's pin.
	admits     func(worker *Worker) (bool, error) // The policy's expression. nil: it has none.
	denial     *denial
}

// denial is why no worker at all may take the job.
type denial struct{ reason, message string }

func newFilters(job Job, policies []Policy) *filters {
	f := &filters{job: job, gang: newGang(job.PodSets), clusters: labels.Nothing(), pin: labels.Nothing()}
	policy, ok, err := SelectPolicy(policies, job)
	var clusters, pin labels.Selector
	if err == nil {
		clusters, err = clusterSelector(policy)
		f.policy = policy
	}
	if err != nil {
		f.denial = &denial{v1alpha1.ReasonInvalidPolicy, err.Error()}
		return f
	}
	if !ok {
		f.denial = &denial{v1alpha1.ReasonNoPolicy, "no DispatchPolicy matches the labels of the job and its namespace"}
		return f
	}
	f.clusters = clusters
	if pin, err = pinOf(job); err != nil {
		f.denial = &denial{v1alpha1.ReasonInvalidPin, err.Error()}
		return f
	}
	f.pin = pin
	if policy != nil && policy.Expression != nil {
		f.admits = policy.Expression.For(&f.job)
	}
	return f
}

// gangOn is the gang as the worker admits it. A gang with a topology is in its domain there, once fits was asked.
func (f *filters) gangOn(w *Worker) *gang {
	if chosen := f.choices[w.Name]; chosen != nil && chosen.value != "" {
		return f.search(w).gangIn(chosen.value)
	}
	return f.wholeGang(w)
}

// wholeGang is the gang as the worker admits it, anywhere on its nodes.
func (f *filters) wholeGang(w *Worker) *gang {
	key := f.job.demandOn(w.Name)
	if key == (demandKey{}) {
		return f.gang
	}
	if f.gangs == nil {
		f.gangs = map[demandKey]*gang{}
	}
	if f.gangs[key] == nil {
		f.gangs[key] = newGang(f.job.PodSetsOn(w.Name))
	}
	return f.gangs[key]
}

// demandKey is equal for workers on which the job has the same demand.
type demandKey struct {
	admitted *v1alpha1.PodSet // The first of the PodSets that the worker makes of the job.
	own      *Variant         // The worker's runtime makes the pods.
}

func (j *Job) demandOn(worker v1alpha1.ClusterName) demandKey {
	if podSets := j.Admitted[worker]; len(podSets) > 0 {
		return demandKey{admitted: &podSets[0]}
	}
	return demandKey{own: j.Own.On(worker)}
}

// check runs the filters, the cheap ones first.
func (f *filters) check(w *Worker) filterResult {
	if r := f.open(w); r != fits || f.fits(w) {
		return r
	}
	return insufficient
}

// fits says whether the gang fits on what the worker has free, in a domain if it requires one. If it fits without nodes
// that the worker would have to add, the worker has only the others from then on: w must belong to the caller.
func (f *filters) fits(w *Worker) bool {
	if !canAdd(w.Nodes) {
		return f.fitsNow(w)
	}
	all := w.Nodes
	if w.Nodes = all.Present(); f.fitsNow(w) {
		return true
	}
	w.Nodes = all
	return f.fitsNow(w)
}

// fitsNow is fits on the nodes that the worker has, wherever they are.
func (f *filters) fitsNow(w *Worker) bool {
	if f.job.Topology == nil {
		return f.gangOn(w).fits(w.Nodes)
	}
	if f.choices == nil {
		f.choices = map[v1alpha1.ClusterName]*choice{}
	}
	chosen := f.choose(w, w.Nodes)
	f.choices[w.Name] = &chosen
	return chosen.fits
}

// fitsOn is fits on other nodes of the worker.
func (f *filters) fitsOn(w *Worker, n *Nodes) bool {
	if f.job.Topology == nil {
		return f.gangOn(w).fits(n)
	}
	return f.choose(w, n).fits
}

// lack says why the gang does not fit on the worker. fits has been asked.
func (f *filters) lack(w *Worker) string {
	if f.job.Topology.IsRequired() {
		return Cut(f.lackDomain(w))
	}
	return f.gangOn(w).shortfall(w.Nodes).Message
}

// open runs all filters but the last one, which checks the room for the gang.
func (f *filters) open(w *Worker) filterResult {
	if closed := w.closed(); closed != fits {
		return closed
	}
	switch {
	case !f.clusters.Matches(labels.Set(w.Labels)):
		return policyMismatch
	case !f.pin.Matches(labels.Set(w.Labels)):
		return pinMismatch
	}
	if f.admits != nil {
		if admitted, err := f.admits(w); !admitted || err != nil {
			return inadmissible
		}
	}
	switch {
	case f.job.Home != "" && f.job.Home != w.Name:
		return awayFromHome
	case len(unlisted(w.Data, f.job.Data.required())) > 0:
		return dataElsewhere
	case f.isUnfenceable(w):
		return unfenceable
	}
	if len(f.unknownOfJob(w)) > 0 || len(f.unknownOfRuntime(w)) > 0 {
		return fieldUnknown
	}
	if f.job.runtimeObjection(w) != "" {
		return runtimeDiffers
	}
	if len(f.job.Excluded) > 0 {
		if f.job.excludes(w.Name) {
			return excluded
		}
	}
	return fits
}

// isUnfenceable says whether the worker's agent would have to shorten the grace period that the policy gives pods. A job
// with a Claim is not fenced.
func (f *filters) isUnfenceable(w *Worker) bool {
	grace := f.job.GraceOn(w.Name)
	return grace != nil && f.job.Claim == "" && f.policy.Rules().Failover == v1alpha1.FailoverFenced && w.LongestGrace > 0 &&
		time.Duration(grace.Seconds)*time.Second > w.LongestGrace
}
