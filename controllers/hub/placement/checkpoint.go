// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/queue"
	"github.com/trainyard/trainyard/dispatch/record"
)

// checkpointOf is what the process of the next attempt is told, and the grace period of its pods, nil if the policy of
// the job has no checkpoint. past is the Dispatch as it was before.
func checkpointOf(decision *dispatch.Decision, job *queue.Job, past *v1alpha1.Dispatch) *v1alpha1.Checkpoint {
	policy := decision.Policy
	if policy == nil || policy.Spec.Checkpoint == nil {
		return nil
	}
	told := &v1alpha1.Checkpoint{Grace: job.GraceOn(decision.Cluster).DeepCopy()}
	if value, annotated := job.Annotations[v1alpha1.AnnotationCheckpoint]; annotated {
		told.URI, _ = trainjobs.CheckpointURI(value, job.UID, job.Namespace) // A job with a bad value has no worker.
	}
	if last := record.LastRun(past); last != nil {
		told.PreviousCluster, told.LastProgress = last.Cluster, trainjobs.EncodeProgress(last.Progress)
	}
	return told
}

// checkpointWarnings are about a new job of which a policy, or nothing, says something about checkpoints.
func checkpointWarnings(job *trainer.TrainJob, reviewed *queue.Job) []string {
	policy, _, err := dispatch.SelectPolicy(reviewed.Policies, reviewed.Job)
	_, annotated := job.Annotations[v1alpha1.AnnotationCheckpoint]
	path := annotationsPath.Key(v1alpha1.AnnotationCheckpoint)
	switch {
	case err != nil:
		return nil
	case annotated && policy == nil:
		return []string{fmt.Sprintf("%s: has no effect, because no DispatchPolicy applies to the job", path)}
	case annotated && policy.Spec.Checkpoint == nil:
		return []string{fmt.Sprintf("%s: has no effect, because DispatchPolicy %s, which applies to the job, has no spec.checkpoint", path, policy.Name)}
	case policy == nil || policy.Spec.Checkpoint == nil || job.Spec.Trainer == nil:
		return nil
	}
	if most := trainjobs.MaxEnv - trainjobs.CheckpointVariables; len(job.Spec.Trainer.Env) > most {
		return []string{fmt.Sprintf("spec.trainer.env: has %d variables, and with more than %d there is no place for all variables that "+
			"DispatchPolicy %s gives the copy", len(job.Spec.Trainer.Env), most, policy.Name)}
	}
	return nil
}
