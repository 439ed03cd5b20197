// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"fmt"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// These messages of conditions are for the owner of a job. They say what the job waits for and what an admin can do.
// They change only with their cause: no times, no counters.

func forgetCommand(worker v1alpha1.ClusterName) string {
	return fmt.Sprintf("kubectl trainyard forget %s", worker)
}

// orForgotten ends the messages of jobs that do not move without an admin.
func orForgotten(worker v1alpha1.ClusterName) string {
	return fmt.Sprintf("if nothing runs there any more, an admin can have its jobs placed again: %s", forgetCommand(worker))
}

func holdWords(d *v1alpha1.Dispatch) string {
	worker := d.Spec.Cluster
	if c := d.Spec.Checkpoint; c != nil && trainjobs.CheckpointClaim(c.URI) != "" {
		return fmt.Sprintf("worker %q does not answer, and PersistentVolumeClaim %q there has the checkpoints of the job: it stays until "+
			"the worker answers again; %s", worker, trainjobs.CheckpointClaim(c.URI), orForgotten(worker))
	}
	return fmt.Sprintf("worker %q does not answer, and the job may be running there: it stays until the worker answers "+
		"again; %s",
		worker, orForgotten(worker))
}

func answeredWords(worker v1alpha1.ClusterName) string {
	return fmt.Sprintf("worker %q does not answer correctly, but something at its address has answered since contact was lost: its "+
		"API server may be down, and without it the agent cannot stop the job, so the job stays until the worker answers again; %s", worker, orForgotten(worker))
}

func noAgentWords(worker v1alpha1.ClusterName) string {
	return fmt.Sprintf("worker %q does not answer, and had no agent that stops the job when it was last seen: the job "+
		"stays until the worker answers again; %s", worker, orForgotten(worker))
}

func fencingWords(worker v1alpha1.ClusterName) string {
	return fmt.Sprintf("worker %q does not answer: the hub places the job again when the worker's agent must have "+
		"stopped it, unless the worker answers first", worker)
}

func pausingWords(worker v1alpha1.ClusterName) string {
	return fmt.Sprintf("worker %q and many other workers do not answer, so the hub itself may be cut off: no job is "+
		"moved until workers answer again; %s", worker, orForgotten(worker))
}

func goneWords(d *v1alpha1.Dispatch) string {
	return fmt.Sprintf("WorkerCluster %q was deleted, and the job may be running there: it stays until an admin "+
		"creates the WorkerCluster again; if nothing runs there any more, create it with the annotation %s: %q, and the "+
		"hub places the job again",
		d.Spec.Cluster, v1alpha1.AnnotationForget, d.Spec.ClusterID)
}

func elsewhereWords(d *v1alpha1.Dispatch) string {
	return fmt.Sprintf("WorkerCluster %q leads to another cluster than when the job was placed, and the job may be "+
		"running on the former cluster: it stays until the WorkerCluster leads to the former cluster again; if nothing "+
		"runs there any more, an admin can have its jobs placed again: kubectl annotate workercluster %s %s=%s", d.Spec.Cluster, d.Spec.Cluster, v1alpha1.AnnotationForget, d.Spec.ClusterID)
}

func unusableWords(worker v1alpha1.ClusterName, reason string) string {
	return fmt.Sprintf("worker %q cannot be used (%s), but it is not lost: the job may be running there, and stays; "+
		"the conditions of the WorkerCluster say what to do", worker, reason)
}

func noTrainJobsWords(worker v1alpha1.ClusterName) string {
	return fmt.Sprintf("worker %q does not serve TrainJobs any more, so the copy has gone, or nobody looks after it; the job is placed "+
		"again when the CRDs of Kubeflow Trainer are there again", worker)
}

func (f *jobObservation) pendingWords() string {
	if f.worker == gone {
		return pendingGoneWords(f.dispatch)
	}
	return pendingWords(f.dispatch)
}

// pendingGoneWords do not name the command: it needs a WorkerCluster.
func pendingGoneWords(d *v1alpha1.Dispatch) string {
	return fmt.Sprintf("the job was deleted; WorkerCluster %q was deleted too, and the copy may be running there: the hub "+
		"deletes the copy if an admin creates the WorkerCluster again; after a while the hub writes a Tombstone for the copy "+
		"and stops waiting", d.Spec.Cluster)
}

func pendingWords(d *v1alpha1.Dispatch) string {
	return fmt.Sprintf("the job was deleted; the hub deletes its copy when worker %q answers again; after a while the "+
		"hub writes a Tombstone for the copy and stops waiting; if nothing runs on the worker any more, an admin can end "+
		"the wait now: %s", d.Spec.Cluster, forgetCommand(d.Spec.Cluster))
}

// These messages say why attempts end.

func forgottenWords(worker v1alpha1.ClusterName) string {
	return fmt.Sprintf("an admin told the hub to forget worker %q", worker)
}

func immediateWords(worker v1alpha1.ClusterName) string {
	return fmt.Sprintf("worker %q does not answer, and the job's failover is Immediate: until the worker is back, the "+
		"job may run there too", worker)
}

func fencedWords(worker v1alpha1.ClusterName) string {
	return fmt.Sprintf("worker %q does not answer, and its agent must have stopped the job there", worker)
}

// These messages are for conditions of WorkerClusters.

func pausedWords(worker v1alpha1.ClusterName, share float64) string {
	return fmt.Sprintf("more than %.0f %% of the workers were lost at about the same time, so the hub itself may be "+
		"cut off: the jobs of this worker are not moved before other workers answer again; if nothing runs there any more: %s", share*100, forgetCommand(worker))
}

func resumedWords() string {
	return "other workers answer again; if this worker does not answer within its grace period, its jobs are moved as " +
		"their failover says"
}
