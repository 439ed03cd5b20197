// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/executionlease/protocol"
)

// Job is a TrainJob that needs a worker.
type Job struct {
	// UID of the TrainJob. It decides between workers of equal score.
	UID types.UID
	// Name and Namespace of the TrainJob, for expressions.
	Name, Namespace string
	// Labels of the TrainJob.
	Labels map[string]string
	// Annotations of the TrainJob. v1alpha1.AnnotationClusters pins it. Expressions read the others.
	Annotations map[string]string
	// NamespaceLabels are the labels of its namespace.
	NamespaceLabels map[string]string
	// Priority of the TrainJob, for expressions. A higher number is more important.
	Priority int32
	// WorkerQueue is what the policy of the job says. QueuedOnHub: the hub's Kueue has the job in the queue of its label.
	WorkerQueue v1alpha1.WorkerQueue
	QueuedOnHub bool
	// Nominated: MultiKueue brings the job to the worker, and not Trainyard.
	Nominated bool
	// AddNodes is what the policy of the job says. Empty: AddNodesLast.
	AddNodes v1alpha1.AddNodes
	// PodSets are the demand of the job, as the hub's runtime says it. Use PodSetsOn.
	PodSets []v1alpha1.PodSet
	// Own is the demand on workers whose own runtime makes other pods. Nil: there are none.
	Own *OwnDemand `json:",omitempty"`
	// Admitted is the demand on workers that make other pods of the job: by their admission, or by Worker.Merging.
	Admitted map[v1alpha1.ClusterName][]v1alpha1.PodSet
	// Grace is the grace period that the policy's checkpoint gives pods of the job, nil if it gives none. PodSets have it.
	// Use GraceOn.
	Grace *v1alpha1.PodGrace
	// Claim is the PersistentVolumeClaim in which the job saves its checkpoints, empty if it uses none, and Home the worker
	// that has the checkpoint: the job ran there. Empty: it did not run yet.
	Claim string
	Home  v1alpha1.ClusterName
	// Fields are the fields of the copy's spec that some worker does not know: as Worker.Trainer names them, sorted.
	Fields []string
	// Runtime is the job's runtime, if some worker does not know fields of it.
	Runtime Runtime
	// Data is what counts of the data that the job reads. nil: nothing.
	Data *Data `json:",omitempty"`
	// Topology says which pods belong together. nil: they may run anywhere on a worker.
	Topology *Topology
	// Previous is the worker on which the job ran before, for the score Sticky. Empty: it did not run before.
	Previous v1alpha1.ClusterName
	// PinsRuntime: the worker gets a runtime that is made from the hub's for the copy, whatever it has.
	PinsRuntime bool `json:",omitempty"`
	// RequiredRuntime is the hub's runtime that the worker must have. Nil: any runtime of the name does.
	RequiredRuntime *RequiredRuntime `json:",omitempty"`
	// Excluded are workers that cannot take this job now. The caller leaves out exclusions that have ended.
	Excluded map[v1alpha1.ClusterName]Exclusion
}

// PodSetsOn is the demand of the job on a worker.
func (j *Job) PodSetsOn(worker v1alpha1.ClusterName) []v1alpha1.PodSet {
	if podSets, changed := j.Admitted[worker]; changed {
		return podSets
	}
	return j.AssumedOn(worker)
}

// AssumedOn is the demand of the job on a worker without what the worker's admission changes.
func (j *Job) AssumedOn(worker v1alpha1.ClusterName) []v1alpha1.PodSet {
	if own := j.Own.On(worker); own != nil && own.Fault == "" {
		return own.PodSets
	}
	return j.PodSets
}

// GraceOn is the grace period that the policy's checkpoint gives pods of the job on a worker, nil if it gives none.
func (j *Job) GraceOn(worker v1alpha1.ClusterName) *v1alpha1.PodGrace {
	if own := j.Own.On(worker); own != nil && own.Fault == "" {
		return own.Grace
	}
	return j.Grace
}

// Admit sets the demand of the job on a worker that makes other pods of it.
func (j *Job) Admit(worker v1alpha1.ClusterName, podSets []v1alpha1.PodSet) {
	if j.Admitted == nil {
		j.Admitted = map[v1alpha1.ClusterName][]v1alpha1.PodSet{}
	}
	j.Admitted[worker] = podSets
}

// Exclude excludes a worker.
func (j *Job) Exclude(worker v1alpha1.ClusterName, why Exclusion) {
	if j.Excluded == nil {
		j.Excluded = map[v1alpha1.ClusterName]Exclusion{}
	}
	j.Excluded[worker] = why
}

// Runtime is a runtime on the hub.
type Runtime struct {
	Kind string
	// Key has no namespace for a ClusterTrainingRuntime.
	Key types.NamespacedName
	// Fields are as Job.Fields.
	Fields []string
}

// Exclusion is why a worker cannot take one job, even with enough free resources.
type Exclusion struct {
	// Domain is the only domain of the worker that cannot take the job. Empty: the worker cannot.
	Domain v1alpha1.Domain
	// Reason is the result of an attempt there: NameConflict, Rejected, CopyDeleted or AdmissionTimeout.
	Reason string
	// Message is the worker's message.
	Message string
}

// JobOf returns what the object of a job and its namespace say. The caller adds the demand, the priority, and what it
// knows of workers that had the job before.
func JobOf(object metav1.Object, namespaceLabels map[string]string) Job {
	return Job{
		UID: object.GetUID(), Name: object.GetName(), Namespace: object.GetNamespace(),
		Labels: object.GetLabels(), Annotations: object.GetAnnotations(), NamespaceLabels: namespaceLabels,
	}
}

// Kind is equal for jobs whose fields are equal, except for the UID and for why they are excluded from workers. The
// caller clears the fields that make no difference to it, so a new field makes one.
func (j Job) Kind() string {
	kind := struct {
		Job

		Excluded []v1alpha1.ClusterName
		Domains  map[v1alpha1.ClusterName]v1alpha1.Domain `json:",omitempty"`
	}{Job: j, Excluded: slices.Sorted(maps.Keys(j.Excluded))}
	kind.UID = ""
	for worker, why := range j.Excluded {
		if why.Domain == (v1alpha1.Domain{}) {
			continue
		}
		if kind.Domains == nil {
			kind.Domains = map[v1alpha1.ClusterName]v1alpha1.Domain{}
		}
		kind.Domains[worker] = why.Domain
	}
	text, err := json.Marshal(kind) // Maps are encoded in the order of their keys.
	if err != nil {
		return string(j.UID) // JSON has no text for the job. Then it is like no other.
	}
	return string(text)
}

// Worker is a WorkerCluster as it is now.
type Worker struct {
	// Name of the WorkerCluster. No two workers have the same.
	Name v1alpha1.ClusterName
	// Labels of the WorkerCluster.
	Labels map[string]string
	// NotReady is the reason and message of a Ready condition that is not True. Empty: the worker is Ready.
	NotReady string
	// Cordoned: the worker takes no jobs, by spec.unschedulable or because it is Draining, by spec.drain.
	Cordoned, Draining bool
	// LongestGrace is the longest grace that pods of jobs with failover Fenced have there in full. 0: the worker has no agent,
	// so its jobs get another failover.
	LongestGrace time.Duration
	// Nodes that take pods, without what is reserved for jobs whose pods are not on them yet. Those that the worker would
	// have to add are among them.
	Nodes *Nodes
	// Allocatable of all nodes together, for scores and expressions.
	Allocatable Resources
	// WorkerQueue is spec.kueue.workerQueue.
	WorkerQueue v1alpha1.WorkerQueue
	// Price is spec.price as PricesOf converts it. It can change the score of other workers, see v1alpha1.ScorePrice.
	Price Prices
	// Pools are the prices of the nodes that the worker can add, by the name of the item of spec.expandable.
	Pools map[string]PoolPrice
	// Data is spec.data.
	Data []v1alpha1.WorkerData
	// Assigned counts jobs that are placed there and have not ended. Queued counts those with pods on no node yet.
	Assigned, Queued int
	// Trainer is what the worker's TrainJob API knows.
	Trainer v1alpha1.TrainerAPI
	// Merging is what the worker makes of resources that a job and its runtime say.
	Merging Merging
	// Runtimes are the worker's runtimes beside the hub's. Of a worker from WorkerOf they are what the status says.
	Runtimes *Runtimes
	// KubernetesVersion and NodeGroups come from the status of the WorkerCluster, for expressions.
	KubernetesVersion string
	NodeGroups        []v1alpha1.NodeGroup
	// Revision changes whenever another field changes. An expression may cache its answer by it. 0: it may not.
	Revision uint64
}

// WorkerOf returns what a WorkerCluster says of its worker, with nodes and allocatable as the caller has counted them.
// The caller adds NotReady, Queued and Revision, and may know a newer number of assigned jobs than the status. Resources
// that the worker's scheduler extender manages are in no amounts of the worker.
func WorkerOf(cluster *v1alpha1.WorkerCluster, nodes *Nodes, allocatable Resources) Worker {
	return Worker{
		Name: v1alpha1.ClusterName(cluster.Name), Labels: cluster.Labels,
		Cordoned: cluster.Spec.Unschedulable || cluster.Spec.Drain, Draining: cluster.Spec.Drain,
		Nodes: nodes.Ignoring(cluster.Spec.IgnoredResources), LongestGrace: longestGrace(cluster),
		Allocatable: without(allocatable, cluster.Spec.IgnoredResources), WorkerQueue: cluster.Spec.Kueue.WorkerQueue,
		Price: PricesOf(cluster.Spec.Price), Pools: poolPrices(cluster), Assigned: int(cluster.Status.Jobs),
		Trainer:           ptr.Deref(cluster.Status.Trainer, v1alpha1.TrainerAPI{}),
		Merging:           MergingOf(cluster),
		Data:              cluster.Spec.Data,
		KubernetesVersion: cluster.Status.KubernetesVersion, NodeGroups: cluster.Status.NodeGroups,
		Runtimes: reportedRuntimes(cluster.Status.Runtimes),
	}
}

// longestGrace is Worker.LongestGrace.
func longestGrace(cluster *v1alpha1.WorkerCluster) time.Duration {
	if !meta.IsStatusConditionTrue(cluster.Status.Conditions, v1alpha1.WorkerClusterAgentReady) {
		return 0
	}
	return protocol.LongestGrace(cluster.FenceAfter())
}

// without returns the amounts of all but some resources. It returns the same map if that changes nothing.
func without(amounts Resources, names []v1alpha1.ExtendedResourceName) Resources {
	rest := amounts
	for _, name := range names {
		if _, has := rest[corev1.ResourceName(name)]; !has {
			continue
		}
		if len(rest) == len(amounts) {
			rest = maps.Clone(amounts)
		}
		delete(rest, corev1.ResourceName(name))
	}
	return rest
}

// TakesJobs says whether new jobs may come to the worker, whatever they need.
func (w *Worker) TakesJobs() bool { return w.closed() == fits }

// closed says why the worker takes no jobs, whatever they need. fits: it takes some.
func (w *Worker) closed() filterResult {
	switch {
	case w.NotReady != "":
		return notReady
	case w.Cordoned:
		return cordoned
	}
	return fits
}
