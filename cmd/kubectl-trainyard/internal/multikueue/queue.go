// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package multikueue

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/trainyard/trainyard/api/kueues"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// trainJobKind is the kind of job that Trainyard dispatches.
const trainJobKind = "TrainJob"

// Queue is a ClusterQueue that MultiKueue dispatches, or dispatched before its cut-over.
type Queue struct {
	Name string
	// Config is its MultiKueueConfig.
	Config string
	// Done: the ClusterQueue has no AdmissionCheck of MultiKueue any more.
	Done        bool
	LocalQueues []LocalQueue
	// rules are its AdmissionChecks before the cut-over.
	rules []kueues.CheckRule
	// kept are its AdmissionChecks after the cut-over.
	kept []kueues.CheckRule
}

// Step is a step of a cut-over: what it is for, and a command, or "" if there is none to run.
type Step struct {
	Why, Command string
}

// decideQueues returns the ClusterQueues of some configs.
func (o *Observation) decideQueues(configs []string) []*Queue {
	remembered := map[string]*Queue{}
	for _, config := range configs {
		for name, rules := range o.remembered(config) {
			remembered[name] = &Queue{Name: name, Config: config, Done: true, rules: rules}
		}
	}
	var queues []*Queue
	for i := range o.queues {
		rules := o.queues[i].Spec.AdmissionChecksStrategy.AdmissionChecks
		queue := &Queue{Name: o.queues[i].Name, rules: rules}
		for _, r := range rules {
			check, multi := o.checks[r.Name]
			if !multi {
				queue.kept = append(queue.kept, r)
			} else if slices.Contains(configs, check.Spec.Parameters.Name) {
				queue.Config = check.Spec.Parameters.Name
			}
		}
		if len(queue.kept) == len(rules) && remembered[queue.Name] != nil {
			queue = remembered[queue.Name]
			queue.kept = rules
		}
		if queue.Config != "" {
			queue.LocalQueues = o.local[queue.Name]
			queues = append(queues, queue)
		}
	}
	return queues
}

// remembered returns the AdmissionChecks that the ClusterQueues of a config had at an earlier import.
func (o *Observation) remembered(config string) map[string][]kueues.CheckRule {
	policy := o.objects[key(policyKind, config)]
	if policy == nil || !isOf(policy, configKind, config) {
		return nil
	}
	var queues map[string][]kueues.CheckRule
	if err := json.Unmarshal([]byte(policy.GetAnnotations()[annotationQueues]), &queues); err != nil {
		return nil // Somebody has edited the annotation. The import writes it again.
	}
	return queues
}

// OtherKinds returns the kinds of jobs in the queue that Trainyard does not dispatch, sorted.
func (q *Queue) OtherKinds() []string {
	kinds := map[string]bool{}
	for _, queue := range q.LocalQueues {
		for kind := range queue.Workloads {
			kinds[kind] = kind != trainJobKind
		}
	}
	delete(kinds, trainJobKind)
	return slices.Sorted(maps.Keys(kinds))
}

// ToTrainyard returns the steps of the cut-over, from the import on. kubectl is the command with its flags.
func (q *Queue) ToTrainyard(kubectl string, workers []string) []Step {
	var steps []Step
	if len(workers) > 0 {
		steps = append(steps, Step{
			Why:     "All workers are ready for Trainyard.",
			Command: fmt.Sprintf("%s wait workerclusters %s --for=condition=Ready --timeout=1m", kubectl, strings.Join(workers, " ")),
		})
	}
	steps = append(steps, Step{
		Why: fmt.Sprintf("New TrainJobs of this queue need spec.managedBy: %s. Without the AdmissionCheck, Kueue does not set it: see docs/kueue.md.",
			v1alpha1.ManagedByMultiKueue),
	})
	return append(append(steps, q.stop(kubectl, "MultiKueue")...), Step{
		Why:     "Kueue goes on with quota and order of the jobs, and Trainyard dispatches them.",
		Command: q.patch(kubectl, map[string]any{"stopPolicy": "None", "admissionChecksStrategy": strategy(q.kept)}),
	})
}

// ToMultiKueue returns the steps back.
func (q *Queue) ToMultiKueue(kubectl string) []Step {
	return append(q.stop(kubectl, "Trainyard"), Step{
		Why:     "MultiKueue dispatches the jobs again.",
		Command: q.patch(kubectl, map[string]any{"stopPolicy": "None", "admissionChecksStrategy": strategy(q.rules)}),
	})
}

// stop returns the steps after which no job of the queue runs.
func (q *Queue) stop(kubectl, dispatcher string) []Step {
	return []Step{
		{
			Why:     "No more jobs start. Jobs that run go on: with HoldAndDrain instead of Hold, Kueue stops them, and they start anew later.",
			Command: q.patch(kubectl, map[string]any{"stopPolicy": "Hold"}),
		},
		{
			Why:     "Kueue has stopped the queue.",
			Command: fmt.Sprintf("%s wait clusterqueue %s --for=condition=Active=false --timeout=1m", kubectl, q.Name),
		},
		{
			Why:     fmt.Sprintf("No job of %s is left. Go on only after this has succeeded.", dispatcher),
			Command: fmt.Sprintf("%s wait clusterqueue %s --for=jsonpath='{.status.reservingWorkloads}'=0 --timeout=24h", kubectl, q.Name),
		},
	}
}

// strategy is the admissionChecksStrategy of a ClusterQueue with these AdmissionChecks.
func strategy(rules []kueues.CheckRule) any {
	if len(rules) == 0 {
		return nil // A merge patch removes the field.
	}
	return map[string]any{"admissionChecks": rules}
}

func (q *Queue) patch(kubectl string, spec map[string]any) string {
	text, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		panic(err) // Maps and strings have a JSON form.
	}
	return fmt.Sprintf("%s patch clusterqueue %s --type=merge --patch='%s'", kubectl, q.Name, text)
}
