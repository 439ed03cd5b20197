// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"fmt"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Kind is the kind of an object.
type Kind string

// The kinds. TrainJobs and JobSets are kept unstructured, Namespaces and runtimes as metadata.
const (
	TrainJob       Kind = "TrainJob"
	JobSet         Kind = "JobSet"
	Job            Kind = "Job" // Simulated workers have none.
	Pod            Kind = "Pod"
	Dispatch       Kind = "Dispatch"
	WorkerCluster  Kind = "WorkerCluster"
	Tombstone      Kind = "Tombstone"
	ExecutionLease Kind = "ExecutionLease"
	Policy         Kind = "DispatchPolicy"
	Namespace      Kind = "Namespace"
	Runtime        Kind = "ClusterTrainingRuntime"
)

// KindOf returns the kind of an object, or of the items of a list.
func KindOf(object runtime.Object) Kind {
	switch object := object.(type) {
	case *v1alpha1.Dispatch, *v1alpha1.DispatchList:
		return Dispatch
	case *v1alpha1.WorkerCluster, *v1alpha1.WorkerClusterList:
		return WorkerCluster
	case *v1alpha1.Tombstone, *v1alpha1.TombstoneList:
		return Tombstone
	case *v1alpha1.ExecutionLease, *v1alpha1.ExecutionLeaseList:
		return ExecutionLease
	case *v1alpha1.DispatchPolicy, *v1alpha1.DispatchPolicyList:
		return Policy
	case *batchv1.JobList:
		return Job
	case *corev1.Pod, *corev1.PodList:
		return Pod
	case *trainer.TrainJob, *trainer.TrainJobList:
		return TrainJob
	case *jobsetv1alpha2.JobSet:
		return JobSet
	default:
		return Kind(strings.TrimSuffix(object.GetObjectKind().GroupVersionKind().Kind, "List"))
	}
}

// newObject is an empty object as a Server keeps it.
func newObject(kind Kind) client.Object {
	switch kind {
	case Dispatch:
		return &v1alpha1.Dispatch{}
	case WorkerCluster:
		return &v1alpha1.WorkerCluster{}
	case Tombstone:
		return &v1alpha1.Tombstone{}
	case ExecutionLease:
		return &v1alpha1.ExecutionLease{}
	case Policy:
		return &v1alpha1.DispatchPolicy{}
	case Job:
		return &batchv1.Job{}
	case Pod:
		return &corev1.Pod{}
	case Namespace, Runtime:
		return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{Kind: string(kind)}}
	case TrainJob, JobSet:
	}
	return &unstructured.Unstructured{Object: map[string]any{}}
}

// Version is one version of an object. It never changes.
type Version struct {
	Object client.Object
	// job and jobSet are Object as a Go type, made when it is first asked for.
	job    *trainer.TrainJob
	jobSet *jobsetv1alpha2.JobSet
}

// Job returns a TrainJob of this version as a Go type. The caller must not change it.
func (v *Version) Job() *trainer.TrainJob {
	if v.job == nil {
		v.job = &trainer.TrainJob{}
		convert(v.Object, v.job)
	}
	return v.job
}

func (v *Version) asJobSet() *jobsetv1alpha2.JobSet {
	if v.jobSet == nil {
		v.jobSet = &jobsetv1alpha2.JobSet{}
		convert(v.Object, v.jobSet)
	}
	return v.jobSet
}

func convert(from client.Object, to any) {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(from.(*unstructured.Unstructured).Object, to); err != nil {
		panic(err) // It was written by this package's users.
	}
}

// into writes a version into an object of the caller. If share is true, the object shares the parts of the version.
func (v *Version) into(to client.Object, share bool) {
	switch to := to.(type) {
	case *unstructured.Unstructured:
		from := v.Object.(*unstructured.Unstructured)
		if !share {
			from = from.DeepCopy()
		}
		to.Object = from.Object
	case *v1alpha1.Dispatch:
		copyInto(v.Object.(*v1alpha1.Dispatch), to, share)
	case *v1alpha1.WorkerCluster:
		copyInto(v.Object.(*v1alpha1.WorkerCluster), to, share)
	case *v1alpha1.Tombstone:
		copyInto(v.Object.(*v1alpha1.Tombstone), to, share)
	case *v1alpha1.ExecutionLease:
		copyInto(v.Object.(*v1alpha1.ExecutionLease), to, share)
	case *v1alpha1.DispatchPolicy:
		copyInto(v.Object.(*v1alpha1.DispatchPolicy), to, share)
	case *corev1.Pod:
		copyInto(v.Object.(*corev1.Pod), to, share)
	case *trainer.TrainJob:
		copyInto(v.Job(), to, share)
	case *jobsetv1alpha2.JobSet:
		copyInto(v.asJobSet(), to, share)
	case *metav1.PartialObjectMetadata:
		to.ObjectMeta = *metaOf(v.Object)
	default:
		panic(fmt.Sprintf("no way to write a %s into a %T", KindOf(v.Object), to))
	}
}

// copier is implemented by generated types.
type copier[T any] interface {
	*T
	DeepCopyInto(*T)
}

func copyInto[T any, P copier[T]](from, to P, share bool) {
	if share {
		*to = *from
		return
	}
	*to = *new(T)
	from.DeepCopyInto(to)
}

// metaOf is a copy of an object's metadata.
func metaOf(object client.Object) *metav1.ObjectMeta {
	return (&metav1.ObjectMeta{
		Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID(), ResourceVersion: object.GetResourceVersion(),
		Generation: object.GetGeneration(), Labels: object.GetLabels(), Annotations: object.GetAnnotations(),
		Finalizers: object.GetFinalizers(), OwnerReferences: object.GetOwnerReferences(), DeletionTimestamp: object.GetDeletionTimestamp(),
		CreationTimestamp: object.GetCreationTimestamp(),
	}).DeepCopy()
}
