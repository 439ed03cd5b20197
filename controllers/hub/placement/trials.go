// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/placement/decider"
	"github.com/trainyard/trainyard/dispatch"
)

// Trials asks workers whether they take the copy of a job.
type Trials interface {
	// Try has a worker asked, by a dry run, whether it takes the copy that it would get if the Dispatch were written. Try
	// does not wait. answered is called, from any goroutine, when the worker has answered: with its words if it refuses
	// the copy, with nothing if it takes it. It is not called if the worker does not answer.
	Try(worker v1alpha1.ClusterName, job *unstructured.Unstructured, dispatch *v1alpha1.Dispatch, answered func(refused string))
}

// questions has workers asked what the decider wants to know.
type questions struct {
	trials    Trials
	decider   *decider.Decider
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
		decision := dispatch.Decision{Cluster: worker}
		if policy, _, err := dispatch.SelectPolicy(job.Policies, job.Job); err == nil && policy != nil {
			decision.Policy = policy.DispatchPolicy
		}
		d := seen.record()
		placed(d, &decider.Grant{Job: job, Decision: decision, Worker: trial.Worker})
		asked := seen.job
		q.trials.Try(worker, asked, d, func(refused string) {
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
