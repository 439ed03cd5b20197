// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Values of a TrainJob's spec.managedBy that concern Trainyard.
const (
	// ManagedByBuiltIn is the value with which the TrainJob controller of a cluster runs a job itself. Copies carry it.
	ManagedByBuiltIn = "trainer.kubeflow.org/trainjob-controller"
	// ManagedByMultiKueue is the only other value that the upstream TrainJob CRD admits, and so the default that the manager
	// owns.
	ManagedByMultiKueue = "kueue.x-k8s.io/multikueue"
	// ManagedByDispatcher is the manager's own value. It needs the TrainJob CRD that admits any domain-prefixed value.
	ManagedByDispatcher = "trainyard.dev/dispatcher"
)

// AnnotationTTL on a TrainJob says for how many seconds it stays after it has become Complete or Failed; then the agent of its
// cluster deletes it, with all that belongs to it, unless somebody else manages it. Without it, a TrainJob stays. It stands in for a
// field that the API does not have yet, and is not copied to workers, where a DispatchPolicy's retention counts.
const AnnotationTTL = "trainyard.dev/ttl-seconds-after-finished"

// AnnotationPriorityClass on a hub TrainJob names the PriorityClass of the hub whose value is the job's priority. Without it the
// priority is that of its pods.
const AnnotationPriorityClass = "trainyard.dev/priority-class"

// KeyPrefix begins the labels and annotations whose meaning Trainyard gives. On TrainJobs users may write
// UserAnnotations, and only Trainyard may write the others: config/admission has the cluster refuse it to others.
const KeyPrefix = "trainyard.dev/"

// UserAnnotations are the annotations under KeyPrefix that are the user's to write on a TrainJob.
func UserAnnotations() []string {
	return []string{AnnotationClusters, AnnotationPriorityClass, AnnotationTTL}
}

// Labels and annotations on what Trainyard creates on a worker.
const (
	// LabelHub is the hub ID, the UID of the hub's kube-system namespace. With LabelOriginUID it says whose a copy is.
	LabelHub = "trainyard.dev/hub"
	// LabelOriginUID is the UID of the hub TrainJob of which this object is the copy.
	LabelOriginUID = "trainyard.dev/origin-uid"
	// AnnotationAttempt is the attempt of the Dispatch for which the copy was created.
	AnnotationAttempt = "trainyard.dev/attempt"
	// AnnotationFailover is on a copy: the Dispatch's spec.failover. An agent stops those with Fenced when it hears nothing from the hub.
	AnnotationFailover = "trainyard.dev/failover"
	// AnnotationChallenge is on a copy with failover Fenced: the agent's challenge that the hub had last answered when it created the
	// copy, resumed it or stamped it anew. What was on its way for so long that the hub may have given it up is known by it, and not run.
	AnnotationChallenge = "trainyard.dev/challenge"
	// AnnotationFenced is on a copy that the worker's agent has suspended because it heard nothing from the hub: the last challenge that
	// the hub had answered. The hub takes it off when it resumes the copy.
	AnnotationFenced = "trainyard.dev/fenced"
	// AnnotationLaterAttempt is on a copy that the worker's agent does not let run because it has seen a later attempt of its hub TrainJob: that
	// attempt. The hub goes on counting from there.
	AnnotationLaterAttempt = "trainyard.dev/later-attempt"
	// LabelPropagatedBy is the hub ID, on namespaces and runtimes that Trainyard created because a copy needed them.
	LabelPropagatedBy = "trainyard.dev/propagated-by"
	// AnnotationSource says of which object on the hub, and of which generation of it, a copy ("<UID>.<generation>") or a propagated runtime
	// ("<UID>.<generation>.replaced") was made. Another value on the hub means that the hub's object has changed since. Releases that wrote
	// runtimes otherwise left out the end.
	AnnotationSource = "trainyard.dev/source"
)

const (
	// FinalizerCopy keeps a Dispatch until its copy is known to be gone from the worker.
	FinalizerCopy = "trainyard.dev/copy"
	// AnnotationAcceptIdentity names, on a WorkerCluster, the cluster ID to which an admin agrees after IdentityChanged.
	AnnotationAcceptIdentity = "trainyard.dev/accept-identity"
	// AnnotationForget on a WorkerCluster says that this cluster (its value is the cluster ID) will never return, or that nothing of it
	// runs any more: its jobs are placed anew at once, whatever their failover is, and what is deleted is let go. Should it come back,
	// what is there of them is deleted first.
	AnnotationForget = "trainyard.dev/forget"
	// AnnotationDecisionPrefix followed by the UID of an unknown copy is, on the WorkerCluster, what an admin has decided about it.
	AnnotationDecisionPrefix = "decision.trainyard.dev/"
)

// ClusterName is the name of a WorkerCluster.
// +kubebuilder:validation:MaxLength=253
type ClusterName string

// CopyDecision is what an admin has decided about a copy that the hub has no record of.
type CopyDecision string

const (
	// DecisionAdopt makes it the copy of the hub TrainJob of its name, which has to exist and wait.
	DecisionAdopt CopyDecision = "Adopt"
	// DecisionRelease takes our labels and annotations off it: it becomes a TrainJob of the worker, and runs on.
	DecisionRelease CopyDecision = "Release"
	// DecisionDelete deletes it.
	DecisionDelete CopyDecision = "Delete"
)

// OfAnotherHub is true for a copy with the label of another hub. Another hub may have been made from the same backup as
// this hub, and then knows the same TrainJobs. A copy without the label is not of another hub: the UID of its TrainJob
// tells whose it is.
func OfAnotherHub(copy metav1.Object, hubID string) bool {
	hub, labelled := copy.GetLabels()[LabelHub]
	return labelled && hub != hubID
}
