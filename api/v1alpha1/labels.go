// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Values of a TrainJob's spec.managedBy that concern Trainyard.
const (
	// ManagedByBuiltIn is the value with which the TrainJob controller of a cluster runs a job itself. Copies have it.
	ManagedByBuiltIn = "trainer.kubeflow.org/trainjob-controller"
	// ManagedByMultiKueue is the only other value that the upstream TrainJob CRD accepts. So it is the manager's default.
	ManagedByMultiKueue = "kueue.x-k8s.io/multikueue"
	// ManagedByDispatcher is the manager's own value. It needs a TrainJob CRD that accepts any domain-prefixed value.
	ManagedByDispatcher = "trainyard.dev/dispatcher"
)

// AnnotationTTL on a TrainJob says for how many seconds it stays after it has become Complete or Failed. Then whoever
// runs it deletes it with its objects: the manager a job of the hub, the agent a TrainJob of its own cluster. Without
// the annotation, a job of the hub stays as long as its DispatchPolicy says, and other TrainJobs stay. The annotation
// replaces a field that the API does not have yet. Copies do not have it: retention counts there.
const AnnotationTTL = "trainyard.dev/ttl-seconds-after-finished"

// Labels of a TrainJob that Kueue reads.
const (
	// LabelLocalQueue names the LocalQueue of the job.
	LabelLocalQueue = "kueue.x-k8s.io/queue-name"
	// LabelWorkloadPriorityClass names the WorkloadPriorityClass of the job.
	LabelWorkloadPriorityClass = "kueue.x-k8s.io/priority-class"
)

// AnnotationPriorityClass on a hub TrainJob names the hub's PriorityClass whose value is the job's priority. Without it
// the priority comes from the job's pods.
const AnnotationPriorityClass = "trainyard.dev/priority-class"

// AnnotationTopology on a hub TrainJob says that its pods belong together in one domain of a worker: "required=LABEL" or
// "preferred=LABEL", with a label of nodes.
const AnnotationTopology = "trainyard.dev/topology"

// AnnotationData on a hub TrainJob says which data the job reads: "required=URI" or "preferred=URI", or several of them
// separated by commas.
const AnnotationData = "trainyard.dev/data"

// AnnotationRetry on a hub TrainJob asks that the workers which have refused the job are asked again at once, and not after
// their back-off. Each value that differs from the last one is a request, whatever it says. "kubectl trainyard retry" writes
// the time. The annotation has an effect while the job waits.
const AnnotationRetry = "trainyard.dev/retry"

// Annotations of pod templates with which users tell Kueue that the pods belong together. The value is a label of nodes.
const (
	AnnotationKueueRequiredTopology  = "kueue.x-k8s.io/podset-required-topology"
	AnnotationKueuePreferredTopology = "kueue.x-k8s.io/podset-preferred-topology"
)

// LabelDispatch on a hub namespace, with the value DispatchYes, lets the hub's webhook give the manager's value of
// spec.managedBy to each new TrainJob that names no other manager. Then unmodified clients are dispatched.
const LabelDispatch = "trainyard.dev/dispatch"

// AnnotationDispatch on a TrainJob that names no manager says whether it is dispatched, if its namespace has LabelDispatch
// or its policy takes such jobs. The CRD gives the built-in value to
// a job that names no manager. So nobody can tell such a job from one that names the built-in manager, and only
// DispatchNo keeps a job on the hub.
const AnnotationDispatch = LabelDispatch

// Values of LabelDispatch and AnnotationDispatch.
const (
	DispatchYes = "true"
	DispatchNo  = "false"
	// DispatchByNamespace and DispatchByPolicy are written by the hub's webhook: the job has its spec.managedBy from the
	// webhook, because of LabelDispatch or of a policy's unmanagedJobs.
	DispatchByNamespace = "namespace"
	DispatchByPolicy    = "policy"
)

// KeyPrefix begins the labels and annotations that Trainyard defines. On TrainJobs, users may write UserAnnotations.
// Only Trainyard may write the others: config/admission makes the cluster refuse them from other users.
const KeyPrefix = "trainyard.dev/"

// UserAnnotations returns the annotations under KeyPrefix that users may write on a TrainJob.
func UserAnnotations() []string {
	return []string{
		AnnotationCheckpoint, AnnotationClusters, AnnotationData, AnnotationDispatch, AnnotationPriorityClass, AnnotationRetry,
		AnnotationTopology, AnnotationTTL,
	}
}

// Labels and annotations on objects that Trainyard creates on a worker.
const (
	// LabelHub is the hub ID, the UID of the hub's kube-system namespace. LabelHub and LabelOriginUID identify a job.
	LabelHub = "trainyard.dev/hub"
	// LabelOriginUID is the UID of the hub TrainJob of this copy.
	LabelOriginUID = "trainyard.dev/origin-uid"
	// AnnotationAttempt is the attempt of the Dispatch for which the copy was created.
	AnnotationAttempt = "trainyard.dev/attempt"
	// AnnotationFailover is the Dispatch's spec.failover, on a copy. An agent stops Fenced copies of a silent hub.
	AnnotationFailover = "trainyard.dev/failover"
	// AnnotationChallenge is on a copy with failover Fenced. It is the agent's challenge that the hub had answered last
	// when it created, resumed or stamped the copy. By it the agent recognises a write that was too late, and does not run
	// that copy.
	AnnotationChallenge = "trainyard.dev/challenge"
	// AnnotationFenced is on a copy that the worker's agent has suspended because the hub was silent. It is the last
	// challenge that the hub had answered. The hub removes it when it resumes the copy.
	AnnotationFenced = "trainyard.dev/fenced"
	// AnnotationStalled is on a copy that makes no progress: "reason: message", in the words of the worker's agent. The agent
	// writes it, and removes it when the trouble is over. The hub shows it on the Dispatch.
	AnnotationStalled = "trainyard.dev/stalled"
	// AnnotationLaterAttempt is on a copy that the worker's agent does not run because it has seen a later attempt of the
	// job. It is that attempt. The hub counts on from it.
	AnnotationLaterAttempt = "trainyard.dev/later-attempt"
	// AnnotationTranslatedInto is the Dispatch's spec.translatedInto, on a copy.
	AnnotationTranslatedInto = "trainyard.dev/translated-into"
	// AnnotationOwnPatches is on a translated copy. It has, as JSON, the entries of runtimePatches that Trainyard has added to
	// those of the job: the translation does not say whose they are. A hub that finds the copy reads them.
	AnnotationOwnPatches = "trainyard.dev/own-patches"
	// AnnotationPinnedRuntime is on a copy whose policy pins its runtime. It is the name of the TrainingRuntime that was made for
	// such copies: a cache drops the spec of a copy that has ended.
	AnnotationPinnedRuntime = "trainyard.dev/pinned-runtime"
	// LabelPinned is on a TrainingRuntime that was made for copies whose policy pins the runtime. It is a digest of the spec,
	// which nobody may change.
	LabelPinned = "trainyard.dev/pinned"
	// LabelPropagatedBy is the hub ID, on namespaces and runtimes that Trainyard created because a copy needed them.
	LabelPropagatedBy = "trainyard.dev/propagated-by"
	// AnnotationSource names the hub's object, and its generation, of which a copy ("<UID>.<generation>") or a propagated
	// runtime ("<UID>.<generation>.replaced") was made. Another value means that the hub's object has changed since. Older
	// releases, which wrote runtimes in another way, left out the suffix.
	AnnotationSource = "trainyard.dev/source"
	// SourceReplaced ends the source of a runtime that was written strictly and as a whole.
	SourceReplaced = "replaced"
	// LabelCluster is on pods and Events that the hub's gateway shows. It has the name of the WorkerCluster from which they
	// come. No object that exists has it.
	LabelCluster = "trainyard.dev/cluster"
	// LabelLogArchived is on pods that are gone and whose logs are in the log archive, as the hub's gateway shows them. A
	// list that selects it and the name of one JobSet has them. They have LabelOriginUID and AnnotationAttempt.
	LabelLogArchived = "trainyard.dev/log-archived"
	// AnnotationPods asks, on a dry run of a copy, what the worker's admission makes of the pods of the copy. The worker's
	// agent puts the answer in the place of the question. No object that exists has it.
	AnnotationPods = "trainyard.dev/pods"
)

const (
	// FinalizerCopy keeps a Dispatch until its copy is known to be deleted on the worker.
	FinalizerCopy = "trainyard.dev/copy"
	// AnnotationAcceptIdentity on a WorkerCluster names the cluster ID that an admin accepts after IdentityChanged.
	AnnotationAcceptIdentity = "trainyard.dev/accept-identity"
	// AnnotationForget on a WorkerCluster says that the cluster with this ID will never return, or that none of its jobs
	// runs any more. The manager places its jobs again at once, whatever their failover is, and waits for no deletion
	// there. If the cluster returns, the manager first deletes their copies there.
	AnnotationForget = "trainyard.dev/forget"
	// AnnotationClusterProfile on a WorkerCluster is "namespace/name" of the ClusterProfile that it follows, where the
	// manager reads ClusterProfiles. The manager writes it on WorkerClusters that it makes. An admin may write it too.
	AnnotationClusterProfile = "trainyard.dev/cluster-profile"
	// AnnotationClusterProfileLabels are the keys of the labels of a WorkerCluster that come from its ClusterProfile,
	// separated by commas.
	AnnotationClusterProfileLabels = "trainyard.dev/cluster-profile-labels"
	// AnnotationCordonedFor on a WorkerCluster is the reason for which the manager has cordoned the worker. When that is
	// over, it uncordons the worker.
	AnnotationCordonedFor = "trainyard.dev/cordoned-for"
	// AnnotationDecisionPrefix begins the annotation of a WorkerCluster that has an admin's decision about an unknown
	// copy. The UID of the copy follows.
	AnnotationDecisionPrefix = "decision.trainyard.dev/"
)

// ClusterName is the name of a WorkerCluster.
// +kubebuilder:validation:MaxLength=253
type ClusterName string

// CopyDecision is what an admin has decided about a copy that the hub has no record of.
type CopyDecision string

const (
	// DecisionAdopt makes it the copy of the hub TrainJob of the same name, which must exist and wait.
	DecisionAdopt CopyDecision = "Adopt"
	// DecisionRelease removes Trainyard's labels and annotations: the copy becomes a TrainJob of the worker, and runs on.
	DecisionRelease CopyDecision = "Release"
	// DecisionDelete deletes the copy.
	DecisionDelete CopyDecision = "Delete"
)

// OfAnotherHub is true for a copy with the label of another hub. That hub may come from the same backup as this hub,
// and then knows the same TrainJobs. A copy without the label is not of another hub: the UID of its TrainJob identifies
// it.
func OfAnotherHub(copy metav1.Object, hubID string) bool {
	hub, labelled := copy.GetLabels()[LabelHub]
	return labelled && hub != hubID
}

// LabelRenew on a Secret with a worker's kubeconfig says who renews the credentials in it. "kubectl trainyard join" sets
// it. The manager leaves Secrets without it alone.
const (
	LabelRenew = "trainyard.dev/renew"
	// RenewToken is the value of LabelRenew with which the manager renews the token.
	RenewToken = "token"
	// AnnotationRenewed on such a Secret is when the manager has requested the token in it, and the fingerprint of the
	// credentials: 2026-11-27T11:00:00Z/8c2f....
	AnnotationRenewed = "trainyard.dev/renewed"
)

// TrackingNames returns the labels and annotations by which other tools know what they have applied to a cluster, and
// what they may delete there. A name that ends in * stands for all names that begin so. They are about the hub's object
// and never come to a worker: the same tool may manage the worker, and would delete what is not in its sources.
//
// docs/install.md has the list with the tools. A name belongs here if a tool deletes, or takes over, an object because of
// the name.
func TrackingNames() []string {
	return []string{
		// By convention of several tools: Argo CD with label tracking, Helm, Config Sync.
		"app.kubernetes.io/instance",
		"app.kubernetes.io/managed-by",
		// kubectl apply --prune: of an ApplySet by its label, else by its annotation.
		"applyset.kubernetes.io/*",
		"kubectl.kubernetes.io/last-applied-configuration",
		// Argo CD.
		"argocd.argoproj.io/*",
		// kpt and others with the library cli-utils.
		"config.k8s.io/owning-inventory",
		// Config Sync.
		"configmanagement.gke.io/*",
		"configsync.gke.io/*",
		// Flux, version 1 and 2.
		"fluxcd.io/*",
		"helm.toolkit.fluxcd.io/*",
		"kustomize.toolkit.fluxcd.io/*",
		// kapp.
		"kapp.k14s.io/*",
		// Kluctl.
		"kluctl.io/*",
		// Helm.
		"meta.helm.sh/*",
		// Rancher, K3s and Fleet.
		"objectset.rio.cattle.io/*",
		// Tanka.
		"tanka.dev/*",
	}
}

// IsTrackingName says whether a label or an annotation is one of TrackingNames.
func IsTrackingName(key string) bool {
	return slices.ContainsFunc(TrackingNames(), func(pattern string) bool {
		beginning, isPrefix := strings.CutSuffix(pattern, "*")
		return key == pattern || isPrefix && strings.HasPrefix(key, beginning)
	})
}
