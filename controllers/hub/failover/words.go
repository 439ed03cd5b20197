// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"fmt"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// These messages of conditions are for the owner of a job. They say what the job waits for and what an admin can do.
// They change only with their cause: no times, no counters.

func forgetCommand(worker v1alpha1.ClusterName) string {
	return fmt.Sprintf("kubectl trainyard forget %s", worker)
}

// orForgotten ends the messages of jobs that do not move without an admin.
func orForgotten(worker v1alpha1.ClusterName) string {
	return fmt.Sprintf("if nothing of it runs any more, an admin can have its jobs placed anew: %s", forgetCommand(worker))
}

func holdWords(worker v1alpha1.ClusterName) string {
	return fmt.Sprintf("worker %q does not answer, and the job may be running there: it stays until the worker answers again; %s",
		worker, orForgotten(worker))
}

func answeredWords(worker v1alpha1.ClusterName) string {
	return fmt.Sprintf("worker %q does not answer as it should, but something at its address does: its API server may be down, without which "+
		"its agent cannot stop the job, so the job stays until the worker answers again; %s", worker, orForgotten(worker))
}

func noAgentWords(worker v1alpha1.ClusterName) string {
	return fmt.Sprintf("worker %q does not answer, and had no agent that stops the job when it was last seen: the job stays until the worker "+
		"answers again; %s", worker, orForgotten(worker))
}

func fencingWords(worker v1alpha1.ClusterName) string {
	return fmt.Sprintf("worker %q does not answer: the job is placed anew as soon as the worker's agent must have stopped it there, unless the "+
		"worker answers before", worker)
}

func pausingWords(worker v1alpha1.ClusterName) string {
	return fmt.Sprintf("worker %q does not answer, and neither do so many others that it is rather the hub that is cut off: no job is moved "+
		"until workers answer again; %s", worker, orForgotten(worker))
}

func goneWords(d *v1alpha1.Dispatch) string {
	return fmt.Sprintf("WorkerCluster %q was deleted, and the job may be running there: it stays until an admin creates the WorkerCluster "+
		"again; if nothing of it runs any more, with the annotation %s: %q, and the job is placed anew",
		d.Spec.Cluster, v1alpha1.AnnotationForget, d.Spec.ClusterID)
}

func elsewhereWords(d *v1alpha1.Dispatch) string {
	return fmt.Sprintf("WorkerCluster %q leads to another cluster now than when the job was placed, and the job may be running on the former: "+
		"it stays until the WorkerCluster leads back; if nothing of the former runs any more, an admin can have its jobs placed anew: "+
		"kubectl annotate workercluster %s %s=%s", d.Spec.Cluster, d.Spec.Cluster, v1alpha1.AnnotationForget, d.Spec.ClusterID)
}

func unusableWords(worker v1alpha1.ClusterName, reason string) string {
	return fmt.Sprintf("worker %q cannot be used (%s), which is no loss: the job may be running there, and stays; what is to be done says the "+
		"WorkerCluster", worker, reason)
}

func pendingWords(d *v1alpha1.Dispatch) string {
	return fmt.Sprintf("the job was deleted; its copy is deleted when worker %q answers again, and after a while this is noted in a Tombstone "+
		"and no longer waited for; an admin can do so now if nothing of the worker runs any more: %s", d.Spec.Cluster, forgetCommand(d.Spec.Cluster))
}

// These messages say why attempts end.

func forgottenWords(worker v1alpha1.ClusterName) string {
	return fmt.Sprintf("an admin has had worker %q forgotten", worker)
}

func immediateWords(worker v1alpha1.ClusterName) string {
	return fmt.Sprintf("worker %q does not answer, and the job's failover is Immediate: until the worker is back, it may run there too", worker)
}

func fencedWords(worker v1alpha1.ClusterName) string {
	return fmt.Sprintf("worker %q does not answer, and its agent must have stopped the job there", worker)
}

// These messages are for conditions of WorkerClusters.

func pausedWords(worker v1alpha1.ClusterName, share float64) string {
	return fmt.Sprintf("more than %.0f %% of the workers were lost at about the same time, so it is rather the hub that is cut off: the jobs of "+
		"this one are not moved before others answer again; if nothing of it runs any more: %s", share*100, forgetCommand(worker))
}

func resumedWords() string {
	return "other workers answer again; the jobs of this one are moved, as their failover says, if it does not within its grace period"
}
