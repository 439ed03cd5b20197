// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/placement/decider"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/queue"
)

// Trials asks workers whether they take the copy of a job.
type Trials interface {
	// Try has a worker asked, by a dry run, whether it takes the copy that it would get if the Dispatch were written. Try
	// does not wait. answered is called, from any goroutine, when the worker has answered: with its words if it refuses
	// the copy, with nothing if it takes it. It is not called if the worker does not answer.
	Try(worker v1alpha1.ClusterName, job *unstructured.Unstructured, dispatch *v1alpha1.Dispatch, answered func(refused string))
}

// try sends the questions that the decider has about a waiting job.
func (r *Reconciler) try(f observation, job *queue.Job) {
	for _, trial := range r.decider.Trials(job.Key()) {
		if trial.Job.Circumstances != job.Circumstances {
			continue // The job has changed in between. Its next reconcile asks about what it is now.
		}
		worker := v1alpha1.ClusterName(trial.Worker.Name)
		decision := dispatch.Decision{Cluster: worker}
		if policy, _, err := dispatch.SelectPolicy(job.Policies, job.Job); err == nil && policy != nil {
			decision.Policy = policy.DispatchPolicy
		}
		d := f.record()
		placed(d, &decider.Grant{Job: job, Decision: decision, Worker: trial.Worker})
		r.Trials.Try(worker, f.job, d, func(refused string) {
			if !r.decider.Answer(trial, refused) {
				return
			}
			if refused != "" {
				r.writer.recordTrialRefused(f.job, worker, refused)
			}
			r.wake(client.ObjectKeyFromObject(f.job))
		})
	}
}
