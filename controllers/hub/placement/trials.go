// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/placement/decider"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/queue"
	"github.com/trainyard/trainyard/dispatch/record"
)

// Trials asks workers whether they take the copy of a job.
type Trials interface {
	// Try has a worker asked, by a dry run, whether it takes the copy that it would get if the Dispatch were written. Try
	// does not wait. answered is called, from any goroutine, when the worker has answered: with its words if it refuses
	// the copy, with nothing if it takes it. It is not called if the worker does not answer.
	Try(worker v1alpha1.ClusterName, job *unstructured.Unstructured, dispatch *v1alpha1.Dispatch, answered func(refused string))
	// Ask has a worker asked, by a dry run, what its admission makes of the pods of that copy. Ask does not wait. answered is
	// called, from any goroutine, when the worker has answered or cannot. It is not called if the worker does not answer.
	Ask(worker v1alpha1.ClusterName, job *unstructured.Unstructured, dispatch *v1alpha1.Dispatch, answered func(trainjobs.Admission))
}

// questions has workers asked about jobs that wait.
type questions struct {
	hub       client.Reader
	trials    Trials
	decider   *decider.Decider
	pods      *podAnswers
	announcer announcer
	wake      func(jobs ...types.NamespacedName)
}

// ask sends the questions that the decider has about a job on the waiting list.
func (q *questions) ask(seen *observation) {
	job := seen.needs.job
	for _, trial := range q.decider.Trials(job.Key()) {
		if trial.Job.Circumstances != job.Circumstances {
			continue // The job has changed in between. Its next reconcile asks about what it is now.
		}
		worker := v1alpha1.ClusterName(trial.Worker.Name)
		asked := seen.job
		q.trials.Try(worker, asked, placedOn(seen, job, trial.Worker), func(refused string) {
			if !q.decider.Answer(trial, refused) {
				return
			}
			if refused != "" {
				q.announcer.trialRefused(asked, worker, refused)
			}
			q.wake(client.ObjectKeyFromObject(asked))
		})
	}
}

// placedOn is the Dispatch that a job would get on a worker.
func placedOn(seen *observation, job *queue.Job, worker *v1alpha1.WorkerCluster) *v1alpha1.Dispatch {
	decision := dispatch.Decision{Cluster: v1alpha1.ClusterName(worker.Name)}
	if policy, _, err := dispatch.SelectPolicy(job.Policies, job.Job); err == nil && policy != nil {
		decision.Policy = policy.DispatchPolicy
	}
	d := seen.record()
	placed(d, &decider.Grant{Job: job, Decision: decision, Worker: worker})
	return d
}

// confirm says whether a grant may be written. If not, it says when to look again: its worker is asked what it makes of
// the pods, or has said something else than was counted. Then again is zero.
func (q *questions) confirm(seen *observation) (ok bool, again time.Duration) {
	job, worker := seen.grant.Job, seen.grant.Worker
	if q.trials == nil || job.Counted == nil || !mayAnswer(worker) {
		return true, 0
	}
	kind := podsKindOf(seen.job, job)
	ok, ask, again := q.pods.confirm(kind, job, worker)
	if ask {
		q.askPods(seen, kind, job, worker)
	}
	return ok, again
}

// askPods sends a question about pods.
func (q *questions) askPods(seen *observation, kind podsKind, job *queue.Job, worker *v1alpha1.WorkerCluster) {
	name, asked := v1alpha1.ClusterName(worker.Name), seen.job
	q.trials.Ask(name, asked, placedOn(seen, job, worker), func(answer trainjobs.Admission) {
		if q.pods.heard(kind, job, worker, answer); answer.Refused != "" {
			q.announcer.podsRefused(asked, name, answer.Refused)
		}
	})
}

// askOthers asks some of the workers on which no node takes the pods of a job as they are assumed to be. It returns the
// explanation, with a note on the workers that have not answered, and when to ask again.
func (q *questions) askOthers(
	ctx context.Context, seen *observation, explanation []v1alpha1.ClusterExplanation,
) ([]v1alpha1.ClusterExplanation, time.Duration, error) {
	job := seen.needs.job
	mismatched := func(line v1alpha1.ClusterExplanation) bool { return line.Reason == v1alpha1.ReasonNoMatchingNode }
	if q.trials == nil || job.Counted == nil || !slices.ContainsFunc(explanation, mismatched) {
		return explanation, 0, nil
	}
	workers, err := workersOf(ctx, q.hub)
	if err != nil {
		return nil, 0, err
	}
	kind := podsKindOf(seen.job, job)
	ask, unasked, again := q.pods.askable(kind, job, explanation, workers)
	for _, worker := range ask {
		q.askPods(seen, kind, job, worker)
	}
	explanation = slices.Clone(explanation) // The decider keeps its own.
	for i := range explanation {
		if line := &explanation[i]; unasked.Has(line.Cluster) {
			line.Message = record.Cut(line.Message, record.NoteLimit-len(notAsked)) + notAsked
		}
	}
	return explanation, again, nil
}
