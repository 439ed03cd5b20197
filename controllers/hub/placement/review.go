// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"
	"slices"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/queue"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/internal/spelling"
)

var annotationsPath = field.NewPath("metadata", "annotations")

// annotationFaults returns the annotations of a TrainJob under v1alpha1.KeyPrefix whose values mean nothing, whatever
// the hub has. Another package checks the TTL, which is not about placement.
func annotationFaults(annotations map[string]string) field.ErrorList {
	var faults field.ErrorList
	if text, pinned := annotations[v1alpha1.AnnotationClusters]; pinned {
		if err := dispatch.CheckPin(text); err != nil {
			path := annotationsPath.Key(v1alpha1.AnnotationClusters)
			faults = append(faults, field.Invalid(path, record.Cut(text, shownValue),
				fmt.Sprintf("must be a label selector that selects WorkerClusters, such as region=east: %v", err)))
		}
	}
	if text, annotated := annotations[v1alpha1.AnnotationTopology]; annotated {
		if _, err := dispatch.ParseTopology(text); err != nil {
			path := annotationsPath.Key(v1alpha1.AnnotationTopology)
			faults = append(faults, field.Invalid(path, record.Cut(text, shownValue), err.Error()))
		}
	}
	if value, annotated := annotations[v1alpha1.AnnotationCheckpoint]; annotated {
		if _, err := trainjobs.CheckpointURI(value, "", ""); err != nil {
			path := annotationsPath.Key(v1alpha1.AnnotationCheckpoint)
			faults = append(faults, field.Invalid(path, record.Cut(value, shownValue), err.Error()))
		}
	}
	if text, annotated := annotations[v1alpha1.AnnotationData]; annotated {
		if _, err := trainjobs.ParseData(text); err != nil {
			path := annotationsPath.Key(v1alpha1.AnnotationData)
			faults = append(faults, field.Invalid(path, record.Cut(text, shownValue), err.Error()))
		}
	}
	if name, named := annotations[v1alpha1.AnnotationPriorityClass]; named {
		if messages := validation.IsDNS1123Subdomain(name); len(messages) > 0 {
			faults = append(faults, field.Invalid(annotationsPath.Key(v1alpha1.AnnotationPriorityClass),
				record.Cut(name, shownValue), "must be the name of a PriorityClass of the hub: "+messages[0]))
		}
	}
	return faults
}

const (
	// shownValue is how much of a user's value an answer repeats, in bytes.
	shownValue = 253
	// mostNamed is how many workers or names an answer has.
	mostNamed = 10
)

// Reviewer answers questions about jobs before they are created or changed.
type Reviewer struct {
	hub   client.Reader
	needs *needs
	// consented has the metadata of the hub's objects with v1alpha1.LabelPropagate. Nil: nothing is brought to workers.
	consented client.Reader
}

// NewReviewer makes a Reviewer that knows what the Reconciler knows of policies, runtimes and classes. consented has the
// metadata of the hub's objects that may be brought to workers, nil if the manager brings none.
func NewReviewer(r *Reconciler, consented client.Reader) Reviewer {
	return Reviewer{hub: r.options.Hub, needs: r.needs, consented: consented}
}

// Review says what the hub knows of a job that does not exist yet, or is to be changed. Faults are what can never work.
// Warnings are what the job would wait for: policies, workers and classes may change. Any replica can answer, because
// Review reads objects of the hub only: the nodes of workers are those in the status of the WorkerClusters.
func (r Reviewer) Review(ctx context.Context, trainJob *trainer.TrainJob) (field.ErrorList, []string, error) {
	if faults := annotationFaults(trainJob.Annotations); len(faults) > 0 {
		return faults, nil, nil
	}
	warnings := unknownKeys(trainJob)
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(trainJob)
	if err != nil {
		return nil, warnings, fmt.Errorf("convert TrainJob %s/%s: %w", trainJob.Namespace, trainJob.Name, err)
	}
	object := &unstructured.Unstructured{Object: content}
	object.SetGroupVersionKind(trainjobs.GroupVersionKind)
	seen := &observation{job: object}
	if err := r.needs.observe(ctx, seen); err != nil {
		return nil, warnings, err
	}
	warnings = slices.Concat(warnings, checkpointWarnings(trainJob, seen.needs.job), dataWarnings(trainJob, seen.needs.job))
	unbrought, err := r.dependencyWarnings(ctx, seen)
	if err != nil {
		return nil, warnings, err
	}
	warnings = append(warnings, unbrought...)
	if obstacle := seen.obstacle(); obstacle != nil {
		switch v1alpha1.PlacedReasonOf(obstacle.Reason).Review {
		case v1alpha1.ReviewRefuses:
			return field.ErrorList{field.Invalid(field.NewPath("spec"), field.OmitValueType{}, obstacle.Message)}, warnings, nil
		case v1alpha1.ReviewSilent:
			return nil, warnings, nil
		case v1alpha1.ReviewWarns:
		}
		if seen.needs.protected {
			return nil, append(warnings, "metadata.namespace: "+obstacle.Message), nil
		}
		warnings = append(warnings, obstacle.Message)
	}
	workers, err := workersOf(ctx, r.hub)
	if err != nil {
		return nil, warnings, err
	}
	seen.needs.job.Data = dataOf(workers).Locate(seen.needs.reads) // A standby watches no workers.
	return nil, append(warnings, prospects(seen.needs.job, workers)...), nil
}

// TakesUnmanaged says whether a policy takes jobs that name no manager.
func (r Reviewer) TakesUnmanaged(ctx context.Context) (bool, error) {
	policies, err := r.needs.policies.all(ctx)
	return slices.ContainsFunc(policies, func(p v1alpha1.DispatchPolicy) bool {
		return p.Rules().UnmanagedJobs == v1alpha1.UnmanagedDispatch
	}), err
}

// PolicyOf returns the policy of a job that does not exist yet, nil if it has none.
func (r Reviewer) PolicyOf(
	ctx context.Context, job *metav1.ObjectMeta, namespaceLabels map[string]string,
) (*v1alpha1.DispatchPolicy, error) {
	policies, err := r.needs.policies.all(ctx)
	if err != nil {
		return nil, err
	}
	return policyOf(policies, dispatch.JobOf(job, namespaceLabels))
}

// unknownKeys warns of names under v1alpha1.KeyPrefix that have no effect: most are misspelt.
func unknownKeys(job *trainer.TrainJob) []string {
	var unknown []string
	known := v1alpha1.UserAnnotations()
	for key := range job.Annotations {
		if strings.HasPrefix(key, v1alpha1.KeyPrefix) && !slices.Contains(known, key) {
			unknown = append(unknown, fmt.Sprintf("%s: has no effect, because users may write only the annotations %s under %s%s",
				annotationsPath.Key(key), strings.Join(known, ", "), v1alpha1.KeyPrefix, spelling.DidYouMean(key, known)))
		}
	}
	for key := range job.Labels {
		if strings.HasPrefix(key, v1alpha1.KeyPrefix) {
			unknown = append(unknown, fmt.Sprintf("%s: has no effect, because labels under %s are Trainyard's",
				field.NewPath("metadata", "labels").Key(key), v1alpha1.KeyPrefix))
		}
	}
	slices.Sort(unknown)
	if more := len(unknown) - mostNamed; more > 0 { // A user can bring thousands.
		unknown = append(unknown[:mostNamed:mostNamed], fmt.Sprintf("%d more names under %s have no effect", more, v1alpha1.KeyPrefix))
	}
	return unknown
}

// prospects warns if no worker that the hub knows could take the job, even if no other job ran there. Workers that are
// cordoned or away count as if they were there, because that passes.
func prospects(job *queue.Job, registered []v1alpha1.WorkerCluster) []string {
	workers, unknown := emptyWorkers(registered)
	decision := dispatch.Decide(job.Job, job.Policies, workers)
	switch {
	case decision.Cluster != "":
		return nil
	case !v1alpha1.ReasonKindOf(decision.Reason).IsForRoom(): // No worker has been asked.
		return []string{"the job waits: " + decision.Message}
	case len(registered) == 0:
		return []string{"the job waits: no WorkerCluster is registered"}
	}
	nearest := dispatch.Nearest(job.Job, job.Policies, workers)
	switch remedy := dispatch.RemedyOf(nearest.Reason); {
	case remedy == dispatch.ChangedPin:
		return []string{fmt.Sprintf("%s: %q matches none of the workers that the job's policy allows: %s",
			annotationsPath.Key(v1alpha1.AnnotationClusters), job.Annotations[v1alpha1.AnnotationClusters], namesOf(workers))}
	case remedy == dispatch.ChangedPolicy:
		return []string{fmt.Sprintf("the job waits: its policy allows no worker; nearest is worker %q: %s", nearest.Cluster, nearest.Message)}
	case len(job.PodSets) == 0 || unknown[nearest.Cluster] || mayFitUnknown(job, workers, unknown):
		return nil
	}
	return []string{fmt.Sprintf("no worker could hold the job even if no other job ran there; nearest is worker %q: %s",
		nearest.Cluster, nearest.Message)}
}

// emptyWorkers returns the workers as if no job ran there. unknown are the workers of which the hub has not seen a
// node.
func emptyWorkers(registered []v1alpha1.WorkerCluster) (workers []dispatch.Worker, unknown map[v1alpha1.ClusterName]bool) {
	unknown = map[v1alpha1.ClusterName]bool{}
	for i := range registered {
		w := registered[i]
		var groups []dispatch.NodeGroup
		shown := slices.Clone(w.Status.NodeGroups)
		for j := range shown {
			group := &shown[j]
			groups = append(groups, dispatch.NodeGroup{
				Labels: group.Labels, Taints: group.Taints, Free: dispatch.FromList(group.Allocatable), Count: int(group.Nodes),
			})
			gpus := group.Allocatable[group.Resource]
			group.Free = []v1alpha1.FreeNodes{{GPUs: gpus.Value(), Nodes: group.Nodes, Free: group.Allocatable}}
		}
		groups = append(groups, dispatch.AddableOf(&w)...)
		name := v1alpha1.ClusterName(w.Name)
		unknown[name] = len(shown) == 0
		w.Spec.Unschedulable, w.Spec.Drain, w.Status.Jobs, w.Status.NodeGroups = false, false, 0, shown
		workers = append(workers, dispatch.WorkerOf(&w, dispatch.NewNodes(groups), dispatch.AllocatableOf(shown)))
	}
	return workers, unknown
}

// mayFitUnknown is true if the job may run on a worker of which no node is known.
func mayFitUnknown(job *queue.Job, workers []dispatch.Worker, unknown map[v1alpha1.ClusterName]bool) bool {
	for i := range workers {
		if !unknown[workers[i].Name] {
			continue
		}
		if dispatch.RemedyOf(dispatch.Nearest(job.Job, job.Policies, workers[i:i+1]).Reason) == dispatch.Waiting {
			return true
		}
	}
	return false
}

func namesOf(workers []dispatch.Worker) string {
	var names []v1alpha1.ClusterName
	for i := range workers {
		names = append(names, workers[i].Name)
	}
	return listed(names)
}

// listed returns the first names in order, and says how many more there are.
func listed(workers []v1alpha1.ClusterName) string {
	var names []string
	for _, name := range slices.Sorted(slices.Values(workers)) {
		names = append(names, string(name))
	}
	if more := len(names) - mostNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:mostNamed], ", "), more)
	}
	return strings.Join(names, ", ")
}

// PlacedOn returns the worker of a TrainJob that has, or is about to have, a copy. It is empty if there is none.
func (r Reviewer) PlacedOn(ctx context.Context, job types.NamespacedName, uid types.UID) (v1alpha1.ClusterName, error) {
	d, err := records.Dispatch(ctx, r.hub, job)
	if err != nil || !record.AttemptOf(d).Live() || d.Spec.TrainJob.UID != uid {
		return "", err
	}
	return d.Spec.Cluster, nil
}
