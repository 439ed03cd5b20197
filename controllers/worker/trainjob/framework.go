// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"sync"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	trainerruntime "github.com/kubeflow/trainer/v2/pkg/runtime"
	runtimecore "github.com/kubeflow/trainer/v2/pkg/runtime/core"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	schedulerpluginsv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	volcanov1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/health"
)

// framework is the runtime framework of the Kubeflow Trainer.
type framework struct {
	runtimes map[string]trainerruntime.Runtime
	// kinds are the kinds of runtime that exist, as "Kind.group", sorted.
	kinds []string
	// reader reads the snapshots of runtimes that the framework has written.
	reader client.Reader
}

func newFramework(runtimes map[string]trainerruntime.Runtime, reader client.Reader) *framework {
	return &framework{runtimes: runtimes, kinds: slices.Sorted(maps.Keys(runtimes)), reader: reader}
}

func (fw *framework) watch(b *builder.Builder, mgr ctrl.Manager) *builder.Builder {
	for _, runtime := range fw.runtimes {
		for _, register := range runtime.EventHandlerRegistrars() {
			if register != nil {
				b = register(b, mgr.GetClient(), mgr.GetCache())
			}
		}
	}
	return b
}

// status derives a TrainJob's status from its JobSet, by method Status of the trainer module's plugin jobset. It
// returns nil for an unknown kind of runtime.
func (fw *framework) status(ctx context.Context, job *trainer.TrainJob) (*trainer.TrainJobStatus, error) {
	runtime, ok := fw.runtimes[runtimeKind(job)]
	if !ok {
		return nil, nil
	}
	return runtime.TrainJobStatus(ctx, job)
}

// newObjects asks the runtime framework for the TrainJob's objects. The framework also writes the runtime's snapshot.
//
// The framework dereferences optional fields without a check (Flux: spec.trainer.numNodes, MPI: a runtime without
// defaults). So newObjects recovers from a panic. The cause is the data of one job, and the job's owner should see it.
func (fw *framework) newObjects(ctx context.Context, job *trainer.TrainJob) (objects []apiruntime.ApplyConfiguration, err error) {
	defer func() {
		if p := recover(); p != nil {
			ctrl.LoggerFrom(ctx).Error(nil, "Runtime framework panicked", "panic", p, "stack", string(debug.Stack()))
			err = &problem{reason: ReasonBuildFailed, action: "Build", err: fmt.Errorf(
				"build objects of TrainJob %s: the runtime framework panicked, is a field missing in the TrainJob or its runtime? %v",
				klog.KObj(job), p)}
		}
	}()
	if into := job.Annotations[v1alpha1.AnnotationTranslatedInto]; into != "" { // It would run with less than it says.
		return nil, &problem{reason: ReasonBuildFailed, action: "Build", err: fmt.Errorf(
			"build objects of TrainJob %s: spec.%s is of an older Kubeflow Trainer than the agent's; install the CRDs of Kubeflow Trainer 2.3",
			klog.KObj(job), into)}
	}
	objects, err = fw.runtimes[runtimeKind(job)].NewObjects(ctx, job.DeepCopy())
	if err == nil {
		return objects, nil
	}
	if snapshot, err := fw.predecessorsSnapshot(ctx, job); err == nil && snapshot != nil {
		return nil, errPredecessor
	}
	p := &problem{reason: ReasonBuildFailed, action: "Build", err: fmt.Errorf("build objects of TrainJob %s: %w", klog.KObj(job), err)}
	if isRuntimeNotFound(err, job.Spec.RuntimeRef) {
		p.reason = ReasonRuntimeNotFound
	}
	return nil, p
}

// predecessorsSnapshot returns the snapshot of an earlier TrainJob's runtime, or nil. A build waits for its deletion.
func (fw *framework) predecessorsSnapshot(ctx context.Context, job *trainer.TrainJob) (*corev1.ConfigMap, error) {
	key := client.ObjectKey{Namespace: job.Namespace, Name: trainjobs.SnapshotName(job.Name)}
	snapshot := &corev1.ConfigMap{}
	if err := fw.reader.Get(ctx, key, snapshot); err != nil || !isPredecessors(snapshot, job) {
		return nil, client.IgnoreNotFound(err)
	}
	return snapshot, nil
}

// isRuntimeNotFound says whether err is about a missing runtime, and not about another missing object such as a CRD.
func isRuntimeNotFound(err error, ref trainer.RuntimeRef) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Group == ptr.Deref(ref.APIGroup, "") && details.Name == ref.Name
}

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
	j.Spec = jobsetv1alpha2.JobSetSpec{Suspend: j.Spec.Suspend, TTLSecondsAfterFinished: j.Spec.TTLSecondsAfterFinished}
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
