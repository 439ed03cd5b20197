// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"context"
	"fmt"
	"sync"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	trainerruntime "github.com/kubeflow/trainer/v2/pkg/runtime"
	runtimecore "github.com/kubeflow/trainer/v2/pkg/runtime/core"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	schedulerpluginsv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	volcanov1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"github.com/trainyard/trainyard/internal/health"
)

// runtimesMu serializes calls of runtimecore.New. New passes its TrainingRuntime to the ClusterTrainingRuntime through
// a package variable (trainingRuntimeFactory, trainer v2.3.0 pkg/runtime/core/trainingruntime.go). Two calls at once
// could mix up their clients. After the call, each runtime keeps its own client.
var runtimesMu sync.Mutex

// NewRuntimes returns the runtime framework of one cluster, by "Kind.group". The client must read through a cache (see
// the package's documentation). NewRuntimes adds indexes for TrainJobs and runtimes, so call it once per indexer.
// Concurrent calls of NewRuntimes are safe, but not together with runtimecore.New.
func NewRuntimes(ctx context.Context, c client.Client, i client.FieldIndexer) (map[string]trainerruntime.Runtime, error) {
	runtimesMu.Lock()
	defer runtimesMu.Unlock()
	runtimes, err := runtimecore.New(ctx, c, i, nil)
	if err != nil {
		return nil, fmt.Errorf("set up the training runtimes: %w", err)
	}
	return runtimes, nil
}

// AddToScheme registers all types that the runtime framework asks for: Kubernetes' own, TrainJobs and their runtimes,
// JobSets, and the PodGroups of scheduler-plugins and Volcano, also where their CRDs are not installed.
func AddToScheme(s *apiruntime.Scheme) error {
	builder := apiruntime.NewSchemeBuilder(clientgoscheme.AddToScheme, trainer.AddToScheme, jobsetv1alpha2.AddToScheme,
		schedulerpluginsv1alpha1.AddToScheme, volcanov1beta1.AddToScheme)
	return builder.AddToScheme(s)
}

// CacheOptions keeps out of memory what neither the framework nor the controller reads.
//
// The framework watches all Secrets and ConfigMaps of the cluster: its MPI and Flux plugins make some for their jobs,
// without a label to select by, and recreate deleted ones. A watch of the field type=kubernetes.io/ssh-auth would find
// MPI's Secrets but not Flux's, which are opaque. So the cache has all objects and drops their contents. Of a Secret,
// the framework only asks whether it exists (mpi.go, Build). Of ConfigMaps, it reads only the data of
// <trainjob>-runtime-snapshot, and only if the TrainJob controls the ConfigMap (snapshot.go, getRuntimeSnapshot). Of a
// JobSet, it reads spec.suspend and the status (jobset.go, Build, Status and Validate).
func CacheOptions() cache.Options {
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Secret{}:         {Transform: stripped(stripSecret)},
			&corev1.ConfigMap{}:      {Transform: stripped(stripConfigMap)},
			&jobsetv1alpha2.JobSet{}: {Transform: stripped(stripJobSet)},
			&corev1.Pod{}:            {Transform: stripped(health.Strip), Label: health.Selector()},
		},
	}
}

func stripSecret(s *corev1.Secret) {
	s.Data = nil
}

func stripConfigMap(c *corev1.ConfigMap) {
	if owner := metav1.GetControllerOfNoCopy(c); owner == nil || owner.Kind != trainer.TrainJobKind {
		c.Data, c.BinaryData = nil, nil
	}
}

func stripJobSet(j *jobsetv1alpha2.JobSet) {
	j.Spec = jobsetv1alpha2.JobSetSpec{Suspend: j.Spec.Suspend}
}

// stripped returns a transform that applies strip to objects of type T and removes the managed fields of all objects.
func stripped[T any](strip func(*T)) toolscache.TransformFunc {
	managedFields := cache.TransformStripManagedFields()
	return func(in any) (any, error) {
		if object, ok := in.(*T); ok {
			strip(object)
		}
		return managedFields(in)
	}
}
