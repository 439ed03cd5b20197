// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterprofile

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// record records what was done, on the profile or, if that is gone, on the WorkerCluster.
func (r *Reconciler) record(seen observation, decided decision) {
	switch decided.action {
	case create:
		r.Recorder.Eventf(seen.profile, decided.worker, corev1.EventTypeNormal, "Registered", "Register",
			"Made WorkerCluster %q. Its credentials come from the Secret %q in namespace %q",
			decided.worker.Name, decided.worker.Spec.Connection.KubeconfigSecretRef.Name, r.Namespace)
	case refuse:
		r.Recorder.Eventf(seen.profile, seen.worker, corev1.EventTypeWarning, v1alpha1.ReasonWorkerClusterExists, "Register",
			"%s", refusal(seen))
	case cordon:
		r.Recorder.Eventf(seen.worker, nil, corev1.EventTypeWarning, v1alpha1.ReasonClusterProfileMissing, "Cordon",
			"The ClusterProfile %s is gone, or is no longer selected: the worker gets no new jobs, and keeps those that it has",
			seen.origin)
	case uncordon:
		r.Recorder.Eventf(seen.worker, seen.profile, corev1.EventTypeNormal, "ClusterProfileReturned", "Uncordon",
			"The ClusterProfile %s is there again: the worker takes jobs as before", seen.origin)
	case leave, follow:
	}
	if len(decided.unfit) > 0 {
		r.Recorder.Eventf(seen.profile, decided.worker, corev1.EventTypeWarning, "PropertyIgnored", "Register",
			"Properties that cannot be labels of WorkerCluster %q: %s", decided.worker.Name, strings.Join(decided.unfit, ", "))
	}
}

// refusal says why a WorkerCluster is left alone, and how an admin can have it follow the profile.
func refusal(seen observation) string {
	whose := "was not made of a ClusterProfile"
	if other := seen.worker.Annotations[v1alpha1.AnnotationClusterProfile]; other != "" {
		whose = fmt.Sprintf("follows the ClusterProfile %s", other)
	}
	return fmt.Sprintf("WorkerCluster %q %s, and is left alone. If it is to follow this one: "+
		"kubectl annotate --overwrite workercluster %s %s=%s",
		seen.worker.Name, whose, seen.worker.Name, v1alpha1.AnnotationClusterProfile, seen.origin)
}
