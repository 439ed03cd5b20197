// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package joblogs

import (
	"context"
	"fmt"
	"slices"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/hub"
)

var (
	trainJobs = trainer.SchemeGroupVersion.WithResource("trainjobs")
	jobSets   = jobsetv1alpha2.SchemeGroupVersion.WithResource("jobsets")
)

type reader struct {
	clients Clients
	job     types.NamespacedName
	context string // for messages; may be empty
	// elsewhere is true if the pods of the job are on a worker. find sets it, and makes the clients lead through the gateway.
	elsewhere bool
}

// Jobs returns the names of the TrainJobs in a namespace.
func (c Clients) Jobs(ctx context.Context, namespace string) ([]string, error) {
	list, err := c.Dynamic.Resource(trainJobs).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list TrainJobs: %w", err)
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].GetName())
	}
	return names, nil
}

// Steps returns the names of a job's steps.
func (c Clients) Steps(ctx context.Context, job types.NamespacedName) ([]string, error) {
	s, err := reader{clients: c, job: job}.read(ctx)
	if err != nil {
		return nil, err
	}
	return stepNames(s.steps()), nil
}

// Containers returns the names of the containers in a job's pods, sorted.
func (c Clients) Containers(ctx context.Context, job types.NamespacedName) ([]string, error) {
	r := reader{clients: c, job: job}
	s, err := r.find(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, pod := range s.pods {
		names = append(names, containerNames(pod.Spec.InitContainers)...)
		names = append(names, containerNames(pod.Spec.Containers)...)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// find reads the job where its pods are: on this cluster, or through the gateway of the hub. Its error says where they
// are, if they cannot be reached.
func (r *reader) find(ctx context.Context) (*snapshot, error) {
	s, err := r.read(ctx)
	if err != nil || trainjobs.ManagedBy(s.job) == v1alpha1.ManagedByBuiltIn {
		return s, err
	}
	r.elsewhere = true
	if s, err = r.readElsewhere(ctx); err != nil || len(s.pods) > 0 {
		return s, err // The kubeconfig leads through a gateway.
	}
	through, err := r.clients.Gateway(ctx)
	if err != nil {
		return nil, r.notHere(ctx, s.job, err)
	}
	r.clients = through
	return r.readElsewhere(ctx)
}

// readElsewhere reads the job and its pods. If it has ended and they are gone, they are those whose logs the log archive
// has of the last attempt.
func (r reader) readElsewhere(ctx context.Context) (*snapshot, error) {
	s, err := r.read(ctx)
	if err != nil || len(s.pods) > 0 || s.end() == nil {
		return s, err
	}
	kept, err := r.listPods(ctx, r.podSelector()+","+labels.Set{v1alpha1.LabelLogArchived: "true", v1alpha1.LabelOriginUID: string(s.job.GetUID())}.String())
	if err != nil {
		return nil, err
	}
	attempt := func(pod *corev1.Pod) int32 { return number(pod.Annotations[v1alpha1.AnnotationAttempt]) }
	var last int32
	for _, pod := range kept {
		last = max(last, attempt(pod))
	}
	s.pods = slices.DeleteFunc(kept, func(pod *corev1.Pod) bool { return attempt(pod) != last })
	s.kept = len(s.pods) > 0
	return s, nil
}

func (r reader) read(ctx context.Context) (*snapshot, error) {
	job, err := r.clients.Dynamic.Resource(trainJobs).Namespace(r.job.Namespace).Get(ctx, r.job.Name, metav1.GetOptions{})
	if err != nil {
		return nil, r.explainNoJob(ctx, err)
	}
	pods, err := r.listPods(ctx, r.podSelector())
	if err != nil {
		return nil, err
	}
	if r.elsewhere {
		return r.snapshotElsewhere(ctx, job, pods)
	}
	jobSet, known := r.readJobSet(ctx)
	s, err := newSnapshot(job, jobSet, pods, r.clients.Clock.Now())
	if err == nil {
		s.jobSetDeleted = known && s.jobSet == nil
	}
	return s, err
}

// snapshotElsewhere reads where the job is if it has no pods.
func (r reader) snapshotElsewhere(ctx context.Context, job *unstructured.Unstructured, pods []*corev1.Pod) (*snapshot, error) {
	s, err := newSnapshotElsewhere(job, pods, r.clients.Clock.Now())
	if err != nil || len(pods) > 0 {
		return s, err
	}
	dispatch, err := r.readDispatch(ctx)
	if err != nil {
		return nil, err
	}
	s.where, s.placed = whereItIs(dispatch), dispatch != nil && dispatch.Spec.Cluster != ""
	return s, nil
}

func (r reader) explainNoJob(ctx context.Context, err error) error {
	if isKindMissing(err) {
		return fmt.Errorf("this cluster%s has no TrainJobs: neither Kubeflow Trainer nor Trainyard is installed here", r.ofContext(" (context %q)"))
	}
	if apierrors.IsUnauthorized(err) {
		return fmt.Errorf("get TrainJob %q: %w: you must be logged in to the cluster%s", r.job.Name, err, r.ofContext(" (context %q)"))
	}
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("get TrainJob %q: %w", r.job.Name, err)
	}
	var near string
	if names, err := r.clients.Jobs(ctx, r.job.Namespace); err == nil {
		near = hub.DidYouMean(r.job.Name, names)
	}
	return fmt.Errorf("there is no TrainJob %q in namespace %q%s%s", r.job.Name, r.job.Namespace, r.ofContext(" of context %q"), near)
}

// ofContext returns a part of a sentence, or "" without a context.
func (r reader) ofContext(format string) string {
	if r.context == "" {
		return ""
	}
	return fmt.Sprintf(format, r.context)
}

// isKindMissing is true if the API server does not know the kind. It is false if only the object is missing.
func isKindMissing(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// podSelector selects the pods of the job. The hub may have a JobSet of the same name that is not the job's.
func (r reader) podSelector() string {
	selector := labels.Set{jobsetv1alpha2.JobSetNameKey: r.job.Name}.String()
	if r.elsewhere {
		selector += "," + v1alpha1.LabelCluster
	}
	return selector
}

func (r reader) listPods(ctx context.Context, selector string) ([]*corev1.Pod, error) {
	list, err := r.clients.Kubernetes.CoreV1().Pods(r.job.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("list pods of TrainJob %q: %w", r.job.Name, err)
	}
	pods := make([]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		pods[i] = &list.Items[i]
	}
	return pods, nil
}

// readJobSet returns the JobSet with the job's name. known is false if it could not be read, as by many users.
func (r reader) readJobSet(ctx context.Context) (jobSet *jobsetv1alpha2.JobSet, known bool) {
	object, err := r.get(ctx, jobSets)
	if err != nil {
		return nil, apierrors.IsNotFound(err)
	}
	jobSet = &jobsetv1alpha2.JobSet{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, jobSet); err != nil {
		return nil, false
	}
	return jobSet, true
}

// get reads an object of another kind with the job's name.
func (r reader) get(ctx context.Context, resource schema.GroupVersionResource) (*unstructured.Unstructured, error) {
	return r.clients.Dynamic.Resource(resource).Namespace(r.job.Namespace).Get(ctx, r.job.Name, metav1.GetOptions{})
}
