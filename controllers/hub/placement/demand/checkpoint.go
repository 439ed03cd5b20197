// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"k8s.io/utils/ptr"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
)

// checkpoint fills in what the policy of a job says about its checkpoints. The error is an Obstacle of the job's annotation.
func checkpoint(job *dispatch.Job, policy *v1alpha1.DispatchPolicy) error {
	if policy == nil || policy.Spec.Checkpoint == nil {
		return nil
	}
	if value, annotated := job.Annotations[v1alpha1.AnnotationCheckpoint]; annotated {
		uri, err := trainjobs.CheckpointURI(value, job.UID, job.Namespace)
		if err != nil {
			return obstacle(v1alpha1.ReasonInvalidCheckpoint, "annotation %s: %v", v1alpha1.AnnotationCheckpoint, err)
		}
		job.Claim = trainjobs.CheckpointClaim(uri)
	}
	job.Grace = giveGrace(job.PodSets, policy)
	return nil
}

// giveGrace gives pods of the trainer and of the launcher the grace period of the policy if runtime and job say none. It
// returns what it has given, nil for nothing.
func giveGrace(podSets []v1alpha1.PodSet, policy *v1alpha1.DispatchPolicy) *v1alpha1.PodGrace {
	if policy == nil || policy.Spec.Checkpoint == nil {
		return nil
	}
	grace := v1alpha1.PodGrace{Seconds: policy.Spec.Checkpoint.GraceSeconds()}
	for i := range podSets {
		set := &podSets[i]
		trains := set.Role == v1alpha1.RoleTrainer || set.Role == v1alpha1.RoleLauncher
		if grace.Seconds > 0 && trains && set.TerminationGracePeriodSeconds == nil {
			set.TerminationGracePeriodSeconds = ptr.To(grace.Seconds)
			grace.PodSets = append(grace.PodSets, set.Name)
		}
	}
	if len(grace.PodSets) == 0 {
		return nil
	}
	return &grace
}
