// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	jobsetconstants "sigs.k8s.io/jobset/pkg/constants"

	"github.com/trainyard/trainyard/api/dependencies"
	"github.com/trainyard/trainyard/api/trainjobs"
)

// fieldOwner is the TrainJob controller's. Under another name, a dry run would keep fields that a build no longer has.
const fieldOwner = client.FieldOwner(trainjobs.FieldOwner)

const jobSetKind = "JobSet"

// built is what the framework makes from a TrainJob and a runtime.
type built struct {
	// jobSet is ready to apply.
	jobSet *unstructured.Unstructured
	// others are made with it: the hostfile of MPI and its keys, for example.
	others []dependencies.Object
}

// build returns what the framework makes from a TrainJob and a runtime. nil: it makes no JobSet.
func (c *Checker) build(ctx context.Context, job *trainer.TrainJob, r *Runtime) (*built, error) {
	ctx = context.WithValue(ctx, runtimeKey{}, r)
	objects, err := c.runtimes[runtimeKind(job)].NewObjects(ctx, job.DeepCopy())
	if err != nil {
		return nil, err
	}
	var all built
	for _, object := range objects {
		named, ok := object.(interface {
			GetKind() *string
			GetName() *string
		})
		if !ok {
			continue
		}
		if kind := ptr.Deref(named.GetKind(), ""); kind != jobSetKind {
			all.others = append(all.others, dependencies.Object{Kind: dependencies.Kind(kind), Name: ptr.Deref(named.GetName(), "")})
			continue
		}
		content, err := json.Marshal(object)
		if err != nil {
			return nil, fmt.Errorf("encode JobSet: %w", err)
		}
		all.jobSet = &unstructured.Unstructured{}
		if err := json.Unmarshal(content, all.jobSet); err != nil {
			return nil, fmt.Errorf("decode JobSet: %w", err)
		}
	}
	if all.jobSet == nil {
		return nil, nil
	}
	return &all, nil
}

// apply applies a JobSet like the controller, but as a dry run. It returns what the API server would store.
func (c *Checker) apply(ctx context.Context, jobSet *unstructured.Unstructured) (*jobsetv1alpha2.JobSet, error) {
	answer := jobSet.DeepCopy()
	err := c.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(answer), fieldOwner, client.ForceOwnership, client.DryRunAll)
	if err != nil {
		return nil, err
	}
	return typed(answer)
}

func typed(jobSet *unstructured.Unstructured) (*jobsetv1alpha2.JobSet, error) {
	out := &jobsetv1alpha2.JobSet{}
	err := apiruntime.DefaultUnstructuredConverter.FromUnstructured(jobSet.Object, out)
	return out, err
}

// asNew returns the JobSet as it can be created before its TrainJob exists. If the name is taken, for example by the
// JobSet of an earlier TrainJob, the JobSet gets another name of the same length: only the length matters.
func asNew(jobSet *unstructured.Unstructured, taken bool) *unstructured.Unstructured {
	jobSet = jobSet.DeepCopy()
	jobSet.SetOwnerReferences(nil)
	if taken {
		jobSet.SetName(standIn(jobSet.GetName()))
	}
	return jobSet
}

func standIn(name string) string {
	other := "x" + hashOf(name)
	return other[:min(len(name), len(other))]
}

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// podOf returns the first pod that the JobSet's controllers would make for a replicated job. It has the name, labels and
// owner that JobSet and Kubernetes' Job controller give it, because webhooks and policies select pods by them.
func podOf(jobSet *jobsetv1alpha2.JobSet, step *jobsetv1alpha2.ReplicatedJob) *corev1.Pod {
	template := step.Template.Spec.Template.DeepCopy()
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Namespace = jobSet.Namespace
	job := fmt.Sprintf("%s-%s-0", jobSet.Name, step.Name)
	// No real pod has this end of its name: the random letters of Jobs have no vowels.
	pod.Name = job + "-0-probe"
	mark(pod, jobSet, step, job)
	if pod.Spec.RestartPolicy == "" {
		pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure // JobSet's default.
	}
	addClaims(jobSet, pod)
	return pod
}

// notYet stands for the UID of an object that does not exist yet.
const notYet = types.UID("00000000-0000-4000-8000-000000000000")

// mark adds what JobSet v0.12 (pkg/controllers/jobset_controller.go, labelAndAnnotateObject) and the Job controller
// write on the first pod of a replicated job.
func mark(pod *corev1.Pod, jobSet *jobsetv1alpha2.JobSet, step *jobsetv1alpha2.ReplicatedJob, job string) {
	replicas, inGroup, index, groupIndex, before := int32(0), int32(0), int32(0), int32(0), true
	for i := range jobSet.Spec.ReplicatedJobs {
		other := &jobSet.Spec.ReplicatedJobs[i]
		before = before && other.Name != step.Name
		replicas += other.Replicas
		if before {
			index += other.Replicas
		}
		if other.GroupName == step.GroupName {
			inGroup += other.Replicas
			if before {
				groupIndex += other.Replicas
			}
		}
	}
	uid, number := cmp.Or(jobSet.UID, notYet), func(n int32) string { return strconv.FormatInt(int64(n), 10) }
	both := map[string]string{
		jobsetv1alpha2.JobSetNameKey: jobSet.Name, jobsetv1alpha2.JobSetUIDKey: string(uid),
		jobsetv1alpha2.ReplicatedJobNameKey: step.Name, jobsetv1alpha2.ReplicatedJobReplicas: number(step.Replicas),
		jobsetv1alpha2.GlobalReplicasKey: number(replicas), jobsetv1alpha2.JobIndexKey: "0",
		jobsetv1alpha2.JobGlobalIndexKey: number(index), jobsetv1alpha2.GroupNameKey: step.GroupName,
		jobsetv1alpha2.GroupReplicasKey: number(inGroup), jobsetv1alpha2.JobGroupIndexKey: number(groupIndex),
		jobsetconstants.RestartsKey: "0", jobsetv1alpha2.JobKey: hashOf(jobSet.Namespace + "/" + job)[:40], batchv1.JobCompletionIndexAnnotation: "0",
	}
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	maps.Copy(pod.Annotations, both)
	for _, topology := range []map[string]string{jobSet.Annotations, step.Template.Annotations} {
		for _, key := range []string{jobsetv1alpha2.ExclusiveKey, jobsetv1alpha2.NodeSelectorStrategyKey} {
			if value, has := topology[key]; has {
				pod.Annotations[key] = value
			}
		}
	}
	maps.Copy(both, map[string]string{
		batchv1.JobNameLabel: job, batchv1.ControllerUidLabel: string(notYet), "job-name": job, "controller-uid": string(notYet),
	})
	for key, value := range both {
		if len(value) <= maxLabel { // The name of a TrainJob that is too long is told once, for the JobSet.
			pod.Labels[key] = value
		}
	}
	pod.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job", Name: job, UID: notYet, Controller: ptr.To(true),
	}}
}

// addClaims adds the volumes that JobSet makes for its volume claim policies, if containers mount them.
func addClaims(jobSet *jobsetv1alpha2.JobSet, pod *corev1.Pod) {
	for _, policy := range jobSet.Spec.VolumeClaimPolicies {
		for _, claim := range policy.Templates {
			if !mounts(pod, claim.Name) {
				continue
			}
			volume := corev1.Volume{Name: claim.Name}
			volume.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name + "-" + jobSet.Name}
			pod.Spec.Volumes = append(pod.Spec.Volumes, volume)
		}
	}
}

func mounts(pod *corev1.Pod, volume string) bool {
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, container := range containers {
			for _, mount := range container.VolumeMounts {
				if mount.Name == volume {
					return true
				}
			}
		}
	}
	return false
}

// maxNameLength returns how long the JobSet's name may be so that the names of its Jobs and pods are DNS labels. It
// also returns the longest of these names. JobSet v0.12 pkg/webhooks/jobset_webhook.go, ValidateCreate, has the rule.
func maxNameLength(jobSet *jobsetv1alpha2.JobSet) (most int, longest string) {
	most = maxLabel
	for i := range jobSet.Spec.ReplicatedJobs {
		step := &jobSet.Spec.ReplicatedJobs[i]
		name := fmt.Sprintf("%s-%s-%d", jobSet.Name, step.Name, max(step.Replicas, 1)-1)
		mode := ptr.Deref(step.Template.Spec.CompletionMode, batchv1.IndexedCompletion) // JobSet's default.
		if completions := step.Template.Spec.Completions; mode == batchv1.IndexedCompletion && completions != nil {
			name += fmt.Sprintf("-%d-abcde", *completions-1)
		}
		if fits := maxLabel - (len(name) - len(jobSet.Name)); fits < most {
			most, longest = fits, name
		}
	}
	return most, longest
}

const maxLabel = 63
