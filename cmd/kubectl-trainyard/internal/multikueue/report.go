// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package multikueue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/internal/cluster"
)

// Report is what an import has done, and what is left to do.
type Report struct {
	// Plan is what was to be done.
	Plan *Plan
	// Rights are the answers of the workers whose credentials were imported, sorted by name.
	Rights []WorkerRights
	// outcomes are by the objects of the plan.
	outcomes map[*unstructured.Unstructured]outcome
	dryRun   DryRun
}

// WorkerRights is what a worker says about the imported credentials. Lack is nil after an error.
type WorkerRights struct {
	Worker string
	Lack   *Lack
	Err    error
}

// errNoSecret is the outcome of a WorkerCluster whose Secret cannot be written. The Secret has the error.
var errNoSecret = errors.New("its Secret was not written")

type outcome struct {
	result cluster.Result
	err    error
}

// Import applies the objects of a plan, and asks the workers for rights. After an error it goes on with the next
// object. It passes the names of the workers that have not answered yet to waits, each time that one has answered.
func Import(
	ctx context.Context, c client.Client, seen *Observation, plan *Plan, dryRun DryRun, waits func(silent []string),
) *Report {
	r := &Report{Plan: plan, dryRun: dryRun, outcomes: map[*unstructured.Unstructured]outcome{}}
	for _, object := range plan.Objects() {
		if r.lacksSecret(object) {
			r.outcomes[object] = outcome{err: errNoSecret}
			continue
		}
		result, err := Apply(ctx, c, object, seen.Has(object), dryRun)
		r.outcomes[object] = outcome{result: result, err: err}
	}
	r.Rights = askRights(ctx, plan, waits)
	return r
}

// askRights asks the workers at the same time.
func askRights(ctx context.Context, plan *Plan, waits func(silent []string)) []WorkerRights {
	var asked []*Cluster
	var silent []string
	for _, cluster := range plan.Clusters {
		if cluster.Credentials != nil {
			asked, silent = append(asked, cluster), append(silent, cluster.Name)
		}
	}
	answers := make(chan int)
	rights := make([]WorkerRights, len(asked))
	for i, cluster := range asked {
		go func() {
			lack, err := lackOf(ctx, cluster.Credentials.Config)
			rights[i] = WorkerRights{Worker: cluster.Name, Lack: lack, Err: err}
			answers <- i
		}()
	}
	for len(silent) > 0 {
		waits(silent)
		name := asked[<-answers].Name
		silent = slices.DeleteFunc(silent, func(other string) bool { return other == name })
	}
	return rights
}

// lacksSecret says whether an object is a WorkerCluster whose Secret could not be written.
func (r *Report) lacksSecret(object *unstructured.Unstructured) bool {
	return slices.ContainsFunc(r.Plan.Clusters, func(c *Cluster) bool {
		return c.Worker == object && failed(r.outcomes[c.Secret].err)
	})
}

// failed is false for a conflict, which leaves an object that is there as it is.
func failed(err error) bool {
	conflict := (*ConflictError)(nil)
	return err != nil && !errors.As(err, &conflict)
}

// Errors returns the errors of writes. Conflicts are not among them: they are in Left.
func (r *Report) Errors() []error {
	var all []error
	for _, object := range r.Plan.Objects() {
		if err := r.outcomes[object].err; failed(err) && !errors.Is(err, errNoSecret) {
			all = append(all, err)
		}
	}
	return all
}

// Applied returns the objects that were applied.
func (r *Report) Applied() []*unstructured.Unstructured {
	return slices.DeleteFunc(r.Plan.Objects(), func(object *unstructured.Unstructured) bool { return r.outcomes[object].err != nil })
}

// Results returns lines about what was done with each object.
func (r *Report) Results() []string {
	how := map[DryRun]string{ClientDryRun: " (dry run)", ServerDryRun: " (server dry run)"}[r.dryRun]
	var lines []string
	for _, object := range r.Applied() {
		lines = append(lines, fmt.Sprintf("%s/%s %s%s", strings.ToLower(object.GetKind()), object.GetName(), r.outcomes[object].result, how))
	}
	for _, cluster := range r.Plan.Clusters {
		if cluster.Kept && len(cluster.Lacks) == 0 {
			lines = append(lines, fmt.Sprintf("workercluster/%s kept: this command has not made it", cluster.Name))
		}
	}
	return lines
}

// Left returns what is left to do about objects before the cut-over: texts, some with several lines.
func (r *Report) Left() []string {
	var left []string
	for _, cluster := range r.Plan.Clusters {
		switch {
		case cluster.Refusal != "":
			left = append(left, fmt.Sprintf("multikueuecluster/%s not imported: %s", cluster.Name, cluster.Refusal))
		case len(cluster.Lacks) > 0:
			left = append(left, fmt.Sprintf("workercluster/%s not changed: this command has not made it; to let the imported policy select it, run:\n"+
				"%s label workercluster %s %s", cluster.Name, r.Plan.options.kubectl(), cluster.Name, strings.Join(cluster.Lacks, " ")))
		}
	}
	for _, policy := range r.Plan.Policies {
		if policy.Refusal != "" {
			left = append(left, fmt.Sprintf("multikueueconfig/%s has no policy: %s", policy.Name, policy.Refusal))
		}
	}
	for _, object := range r.Plan.Objects() {
		if isConflict := (*ConflictError)(nil); errors.As(r.outcomes[object].err, &isConflict) {
			left = append(left, fmt.Sprintf("%s/%s not changed: %s", strings.ToLower(object.GetKind()), object.GetName(), isConflict))
		}
	}
	return left
}

// Complete says whether nothing is left to do before the cut-over, as far as the workers have answered.
func (r *Report) Complete() bool {
	return len(r.Left()) == 0 && len(r.Errors()) == 0 && !slices.ContainsFunc(r.Rights, func(rights WorkerRights) bool {
		return rights.Err != nil || len(rights.Lack.Rights) > 0
	})
}

// Lines returns a text about the rights of the imported credentials on one worker.
func (w WorkerRights) Lines() []string {
	if w.Err != nil {
		return []string{fmt.Sprintf("Worker %s: unknown, because it does not answer from here: %v", w.Worker, w.Err)}
	}
	user := w.Lack.User
	if user == "" {
		user = "its user"
	}
	if len(w.Lack.Rights) == 0 {
		return []string{fmt.Sprintf("Worker %s: %s has all rights that Trainyard needs", w.Worker, user)}
	}
	lines := []string{fmt.Sprintf("Worker %s: %s lacks", w.Worker, user)}
	for _, right := range w.Lack.Rights {
		lines = append(lines, "  "+right)
	}
	lines = append(lines, "  An admin of the worker grants them with")
	for _, command := range w.Lack.Grants(w.Worker) {
		lines = append(lines, "  $ "+command)
	}
	return lines
}

// CutOver returns the steps of the cut-over of a ClusterQueue, and back.
func (p *Plan) CutOver(q *Queue) []string {
	state := "is dispatched by MultiKueue"
	if q.Done {
		state = "is not dispatched by MultiKueue any more"
	}
	lines := []string{fmt.Sprintf("ClusterQueue %s (MultiKueueConfig %s) %s", q.Name, q.Config, state)}
	for _, queue := range q.LocalQueues {
		lines = append(lines, fmt.Sprintf("  LocalQueue %s: %s", queue.NamespacedName, queue.count()))
	}
	if kinds := q.OtherKinds(); len(kinds) > 0 {
		lines = append(lines, fmt.Sprintf("  Trainyard dispatches TrainJobs only. Leave this queue to MultiKueue as long as it has others: %s.", strings.Join(kinds, ", ")))
	}
	add := func(title string, steps []Step) {
		lines = append(lines, "  "+title)
		for i, step := range steps {
			lines = append(lines, fmt.Sprintf("  %d. %s", i+1, step.Why))
			if step.Command != "" {
				lines = append(lines, "     $ "+step.Command)
			}
		}
	}
	if !q.Done {
		add("To Trainyard:", q.ToTrainyard(p.options.kubectl(), p.workers(q.Config)))
	}
	add("Back to MultiKueue:", q.ToMultiKueue(p.options.kubectl()))
	return lines
}

func (q LocalQueue) count() string {
	if len(q.Workloads) == 0 {
		return "no Workloads that have not finished"
	}
	var counts []string
	for _, kind := range slices.Sorted(maps.Keys(q.Workloads)) {
		counts = append(counts, fmt.Sprintf("%d of kind %s", q.Workloads[kind], kind))
	}
	return "Workloads that have not finished: " + strings.Join(counts, ", ")
}

// workers returns the workers of a config, sorted.
func (p *Plan) workers(config string) []string {
	var names []string
	for _, cluster := range p.Clusters {
		if slices.Contains(cluster.configs, config) && cluster.Refusal == "" {
			names = append(names, cluster.Name)
		}
	}
	return names
}
