// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/kubeflow/trainer/v2/pkg/constants"
	trainerruntime "github.com/kubeflow/trainer/v2/pkg/runtime"
	trainercore "github.com/kubeflow/trainer/v2/pkg/runtime/core"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapply "sigs.k8s.io/jobset/client-go/applyconfiguration/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
)

// Obstacle is an error for which a job waits, whatever the workers have.
type Obstacle struct {
	// Reason is the reason of the condition Placed. Message says what to change.
	Reason, Message string
}

// Error implements error.
func (o *Obstacle) Error() string { return o.Message }

func obstacle(reason, format string, args ...any) error {
	return &Obstacle{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Decision returns what a job waits for because of an error, nil if the error is no Obstacle and wraps none.
func Decision(err error) *dispatch.Decision {
	var o *Obstacle
	if !errors.As(err, &o) {
		return nil
	}
	return &dispatch.Decision{Reason: o.Reason, Message: err.Error()}
}

// Demand is what a job needs.
type Demand struct {
	PodSets []v1alpha1.PodSet
	// Runtime is "<UID>.<generation>" of the job's runtime. It changes with the runtime.
	Runtime string
	// RuntimeFields are the fields of the runtime's spec, as fields.Of.
	RuntimeFields []string
	// PriorityClasses are the classes that the pod templates name, in the order of the PodSets.
	PriorityClasses []PriorityClass
	// Topologies are what the pod templates say to Kueue about their topology, in the order of the PodSets.
	Topologies []PodTopology
	// Reads are the URIs of the data that the job reads. dispatch.DataMap.Locate makes Data of the job of them.
	Reads dispatch.Reads
	// Dependencies are the objects that the pods name, of the kinds that the job's policy brings to workers.
	// Needed are those of them without which pods do not run, or images may not be pulled.
	Dependencies, Needed []v1alpha1.Dependency
	// dependencies returns Dependencies and Needed of some kinds. It may change the JobSet, so it is called at most once.
	dependencies func(kinds []v1alpha1.DependencyKind) (named, needed []v1alpha1.Dependency, err error)
}

// Deriver derives demands.
type Deriver struct {
	reader   client.Reader
	runtimes map[string]trainerruntime.Runtime
	fields   runtimeFields
	owned    ownDemands
}

// NewDeriver returns a Deriver that reads runtimes with a client. It uses the client only when there is a job.
func NewDeriver(ctx context.Context, reader client.Client) (*Deriver, error) {
	runtimes, err := trainercore.New(ctx, reader, noIndex{}, nil)
	if err != nil {
		return nil, fmt.Errorf("load training runtimes: %w", err)
	}
	return &Deriver{reader: reader, runtimes: runtimes}, nil
}

// noIndex discards the indexes that only the TrainJob controller of the trainer module reads.
type noIndex struct{}

// IndexField implements client.FieldIndexer.
func (noIndex) IndexField(context.Context, client.Object, string, client.IndexerFunc) error {
	return nil
}

// Of returns the demand of a job. The error wraps an Obstacle if the runtime does not exist, or if the demand is beyond
// a limit. Any other error says what is wrong with the job or the runtime, or why it could not be read. Pass a copy of
// the job: the trainer module writes to it.
func (d *Deriver) Of(ctx context.Context, job *trainer.TrainJob) (Demand, error) {
	spec, version, err := d.runtimeSpec(ctx, job)
	if err != nil {
		return Demand{}, err
	}
	used, err := d.fields.of(version, spec)
	if err != nil {
		return Demand{}, err
	}
	demand, err := d.derive(job, spec)
	demand.Runtime, demand.RuntimeFields = version, used
	return demand, err
}

// derive applies the job to its runtime. It may change both.
func (d *Deriver) derive(job *trainer.TrainJob, spec *trainer.TrainingRuntimeSpec) (demand Demand, err error) {
	flavors := trainjobs.TakeFlavorTolerations(job)
	key := trainerruntime.RuntimeRefToRuntimeRegistryKey(job.Spec.RuntimeRef)
	info, err := runtimeInfo(d.runtimes[key], job, spec)
	if err != nil {
		return demand, fmt.Errorf("apply TrainJob to %s %q: %w", *job.Spec.RuntimeRef.Kind, job.Spec.RuntimeRef.Name, err)
	}
	jobSet, ok := trainerruntime.TemplateSpecApply[jobsetapply.JobSetSpecApplyConfiguration](info)
	if !ok {
		return demand, fmt.Errorf("%s %q has no JobSet template", *job.Spec.RuntimeRef.Kind, job.Spec.RuntimeRef.Name)
	}
	pods, err := podSpecs(jobSet.ReplicatedJobs, info.TemplateSpec.PodSets)
	if err != nil {
		return demand, err
	}
	addPorts(pods, info.TemplateSpec.PodSets)
	unmerged := unmergedPods(job, info, pods)
	if err := completeRequests(slices.Concat(pods, slices.Collect(maps.Values(unmerged)))); err != nil {
		return demand, err
	}
	for i, pod := range pods {
		podSet := newPodSet(pod, info.TemplateSpec.PodSets[i], ptr.Deref(jobSet.ReplicatedJobs[i].Replicas, 1))
		podSet.Tolerations = trainjobs.WithTolerations(podSet.Tolerations, flavors[podSet.Name])
		podSet.UnmergedRequests = unmergedRequests(podSet.Requests, unmerged[i])
		if err := checkForm(&podSet); err != nil {
			return Demand{}, err
		}
		demand.PodSets = append(demand.PodSets, podSet)
		if topology, is := podTopology(podSet.Name, jobSet.ReplicatedJobs[i].Template.Spec.Template); is {
			demand.Topologies = append(demand.Topologies, topology)
		}
		if name := pod.PriorityClassName; name != "" {
			demand.PriorityClasses = append(demand.PriorityClasses, PriorityClass{ReplicatedJob: podSet.Name, Name: name})
		}
	}
	if err := limitPodSets(demand.PodSets); err != nil {
		return Demand{}, err
	}
	markConcurrent(demand.PodSets, jobSet.ReplicatedJobs)
	demand.dependencies = func(kinds []v1alpha1.DependencyKind) (named, needed []v1alpha1.Dependency, err error) {
		return dependenciesOf(job, info, jobSet, kinds)
	}
	return demand, nil
}

// podSpecs returns the pod specs of the replicated jobs.
func podSpecs(jobs []jobsetapply.ReplicatedJobApplyConfiguration, podSets []trainerruntime.PodSet) ([]*corev1.PodSpec, error) {
	pods := make([]*corev1.PodSpec, len(jobs))
	for i := range jobs {
		var err error
		if pods[i], err = podSpec(jobs[i].Template.Spec.Template.Spec); err != nil {
			return nil, fmt.Errorf("read pod template of replicated job %q: %w", podSets[i].Name, err)
		}
	}
	return pods, nil
}

// addPorts gives the containers the ports that the runtime's policies add to those of the template. Kubeflow Trainer adds
// them only when it builds the JobSet.
func addPorts(pods []*corev1.PodSpec, podSets []trainerruntime.PodSet) {
	add := func(containers []corev1.Container, decided []trainerruntime.Container) {
		for i := range min(len(containers), len(decided)) {
			for _, port := range decided[i].Ports {
				containers[i].Ports = append(containers[i].Ports, corev1.ContainerPort{
					ContainerPort: ptr.Deref(port.ContainerPort, 0), HostPort: ptr.Deref(port.HostPort, 0),
					HostIP: ptr.Deref(port.HostIP, ""), Protocol: ptr.Deref(port.Protocol, ""),
				})
			}
		}
	}
	for i, pod := range pods {
		add(pod.Containers, podSets[i].Containers)
		add(pod.InitContainers, podSets[i].InitContainers)
	}
}

// runtimeInfo turns a panic into an error: the framework of the trainer module dereferences fields that a runtime may
// leave out, such as spec.trainer with Flux.
func runtimeInfo(
	runtime trainerruntime.Runtime, job *trainer.TrainJob, spec *trainer.TrainingRuntimeSpec,
) (info *trainerruntime.Info, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("the runtime cannot be used with this job: %v", cause)
		}
	}()
	return runtime.RuntimeInfo(job, spec.Template, spec.MLPolicy, spec.PodGroupPolicy)
}

// runtimeSpec reads the job's runtime from the hub. It returns a copy that the caller may change, and its version.
func (d *Deriver) runtimeSpec(ctx context.Context, job *trainer.TrainJob) (*trainer.TrainingRuntimeSpec, string, error) {
	reference, key := &job.Spec.RuntimeRef, runtimeKey(job)
	var spec *trainer.TrainingRuntimeSpec
	var meta *metav1.ObjectMeta
	var err error
	switch *reference.Kind {
	case trainer.ClusterTrainingRuntimeKind:
		var runtime trainer.ClusterTrainingRuntime
		err = d.reader.Get(ctx, key, &runtime)
		spec, meta = &runtime.Spec, &runtime.ObjectMeta
	case trainer.TrainingRuntimeKind:
		var runtime trainer.TrainingRuntime
		err = d.reader.Get(ctx, key, &runtime)
		spec, meta = &runtime.Spec, &runtime.ObjectMeta
	}
	switch {
	case spec == nil || d.runtimes[trainerruntime.RuntimeRefToRuntimeRegistryKey(*reference)] == nil:
		return nil, "", fmt.Errorf("spec.runtimeRef: kind %q of group %q is not known; known are %s and %s of group %s",
			*reference.Kind, *reference.APIGroup, trainer.ClusterTrainingRuntimeKind, trainer.TrainingRuntimeKind, trainer.GroupVersion.Group)
	case apierrors.IsNotFound(err):
		return nil, "", obstacle(v1alpha1.ReasonRuntimeNotFound, "spec.runtimeRef: %s %q is not on the hub; create it there, and the job goes on",
			*reference.Kind, reference.Name)
	case err != nil:
		return nil, "", fmt.Errorf("get %s %q: %w", *reference.Kind, reference.Name, err)
	}
	return spec, fmt.Sprintf("%s.%d", meta.UID, meta.Generation), nil
}

// newPodSet combines the count that the runtime's policies have decided for a replicated job with its pod template.
func newPodSet(pod *corev1.PodSpec, podSet trainerruntime.PodSet, replicas int32) v1alpha1.PodSet {
	result := podSetOf(podSet.Name, times(ptr.Deref(podSet.Count, 1), replicas), pod)
	result.Role = roleOf(podSet)
	return result
}

// roleOf looks at the name first: in an MPI runtime the launcher is the trainer, and the nodes have no role.
func roleOf(podSet trainerruntime.PodSet) v1alpha1.PodSetRole {
	switch {
	case podSet.Name == constants.Launcher:
		return v1alpha1.RoleLauncher
	case podSet.Ancestor != nil:
		return v1alpha1.PodSetRole(*podSet.Ancestor)
	case podSet.Name == constants.Node:
		return v1alpha1.RoleTrainer
	}
	return ""
}

// podSpec converts an apply configuration to a PodSpec.
func podSpec(template *corev1apply.PodSpecApplyConfiguration) (*corev1.PodSpec, error) {
	encoded, err := json.Marshal(template)
	if err != nil {
		return nil, err
	}
	spec := &corev1.PodSpec{}
	return spec, json.Unmarshal(encoded, spec)
}
