// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/output"
)

// Ready returns the worker's state in a few words, with the age of its data where that matters.
func Ready(cluster *v1alpha1.WorkerCluster, now time.Time) string {
	state, _ := readiness(cluster)
	states := []string{output.Or(state, "True")}
	switch {
	case cluster.Spec.Drain:
		states = append(states, "Draining") // A drain cordons the worker too.
	case cluster.Spec.Unschedulable:
		states = append(states, "Cordoned")
	}
	if meta.IsStatusConditionTrue(cluster.Status.Conditions, v1alpha1.WorkerClusterFailoverPaused) {
		states = append(states, "FailoverPaused")
	}
	if id := cluster.Status.ClusterID; id != "" && cluster.Annotations[v1alpha1.AnnotationForget] == string(id) {
		states = append(states, "Forgotten")
	}
	text := strings.Join(states, ",")
	if seen := cluster.Status.LastSeenTime; seen != nil {
		text += fmt.Sprintf(" (seen %s ago)", output.Age(*seen, now))
	}
	return text
}

// Agent returns the state of the worker's agent in a word. It is True if the agent answers, so that jobs can be fenced.
func Agent(cluster *v1alpha1.WorkerCluster) string {
	agent := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.WorkerClusterAgentReady)
	switch {
	case agent == nil:
		return output.Unknown
	case agent.Status == metav1.ConditionTrue:
		return "True"
	}
	return strings.TrimPrefix(agent.Reason, "Agent")
}

// Notes returns a line for each problem that an admin should look at, and what to do.
func Notes(clusters []v1alpha1.WorkerCluster) []string {
	var notes []string
	for i := range clusters {
		cluster := &clusters[i]
		paused := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.WorkerClusterFailoverPaused)
		if paused != nil && paused.Status == metav1.ConditionTrue {
			notes = append(notes, fmt.Sprintf("the jobs of worker %q are not moved: %s", cluster.Name, paused.Message))
		}
		if n := len(cluster.Status.UnknownCopies); n > 0 {
			notes = append(notes, fmt.Sprintf("worker %q has copies that the hub has no record of: kubectl trainyard adopt %s prints %d of them",
				cluster.Name, cluster.Name, n))
		}
	}
	return notes
}
