// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dependencies

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// Kind is the kind of an object, in the words of Kubernetes.
type Kind string

// The kinds of objects that pods name.
const (
	Secret                Kind = "Secret"
	ConfigMap             Kind = "ConfigMap"
	ServiceAccount        Kind = "ServiceAccount"
	PersistentVolumeClaim Kind = "PersistentVolumeClaim"
	ResourceClaim         Kind = "ResourceClaim"
	ResourceClaimTemplate Kind = "ResourceClaimTemplate"
	PodGroup              Kind = "PodGroup"
	PriorityClass         Kind = "PriorityClass"
	RuntimeClass          Kind = "RuntimeClass"
	ClusterTrustBundle    Kind = "ClusterTrustBundle"
)

// OfCluster says whether objects of the kind belong to the cluster. Others belong to the namespace of the pod.
func (k Kind) OfCluster() bool {
	return k == PriorityClass || k == RuntimeClass || k == ClusterTrustBundle
}

// Object is the name of an object.
type Object struct {
	Kind Kind
	Name string
}

// Need says what a pod does without an object that it names.
type Need int

const (
	// Required says: the pod is not made, or its containers do not start.
	Required Need = iota
	// Optional says: the pod runs, because the reference is marked as optional.
	Optional
	// Unused says: the pod runs, because nothing reads the object. No container mounts the volume, for one.
	Unused
	// ForImages says: the kubelet pulls the images without the Secret. That fails for images that are not public and not
	// on the node.
	ForImages
)

// String returns the name of the need.
func (n Need) String() string {
	return [...]string{"Required", "Optional", "Unused", "ForImages"}[n]
}

// Reference is one mention of an object by the pods of a step.
type Reference struct {
	Object
	// Key must be in the Secret or ConfigMap. Empty: the reference is to the whole object.
	Key string
	// Text is true if a key of a ConfigMap must be in its data, as for env. Keys of its binaryData do not count there.
	Text bool
	// Step is the name of the replicated job.
	Step string
	// Field names the place in the pod, for people: "env HF_TOKEN", "volume corpus".
	Field string
	Need  Need
}

// Of returns the references of all pods of a JobSet, in the order of its steps. Steps without pods have none. made are
// objects that are created with the JobSet, which are left out, like the claims that JobSet makes for its
// volumeClaimPolicies.
func Of(jobSet *jobsetv1alpha2.JobSet, made ...Object) []Reference {
	for _, policy := range jobSet.Spec.VolumeClaimPolicies {
		for i := range policy.Templates {
			made = append(made, Object{PersistentVolumeClaim, policy.Templates[i].Name + "-" + jobSet.Name})
		}
	}
	var all []Reference
	for i := range jobSet.Spec.ReplicatedJobs {
		step := &jobSet.Spec.ReplicatedJobs[i]
		if step.Replicas > 0 && ptr.Deref(step.Template.Spec.Parallelism, 1) > 0 {
			all = append(all, OfPod(step.Name, &step.Template.Spec.Template.Spec)...)
		}
	}
	return slices.DeleteFunc(all, func(r Reference) bool { return slices.Contains(made, r.Object) })
}

// OfPod returns the references of the pods of one step. Ephemeral containers have none: no pod is created with them.
func OfPod(step string, pod *corev1.PodSpec) []Reference {
	w := walk{step: step, mounted: map[string]bool{}, several: len(pod.InitContainers)+len(pod.Containers) > 1}
	w.add(ServiceAccount, cmp.Or(pod.ServiceAccountName, pod.DeprecatedServiceAccount), "serviceAccountName", Required)
	w.add(PriorityClass, pod.PriorityClassName, "priorityClassName", Required)
	w.add(RuntimeClass, ptr.Deref(pod.RuntimeClassName, ""), "runtimeClassName", Required)
	if group := pod.SchedulingGroup; group != nil {
		w.add(PodGroup, ptr.Deref(group.PodGroupName, ""), "schedulingGroup", Required)
	}
	for _, secret := range pod.ImagePullSecrets {
		w.add(Secret, secret.Name, "imagePullSecrets", ForImages)
	}
	for _, containers := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
		for i := range containers {
			w.container(&containers[i])
		}
	}
	for i := range pod.Volumes {
		w.volume(&pod.Volumes[i])
	}
	for _, claim := range pod.ResourceClaims {
		field := fmt.Sprintf("resource claim %s", claim.Name)
		w.add(ResourceClaim, ptr.Deref(claim.ResourceClaimName, ""), field, Required)
		w.add(ResourceClaimTemplate, ptr.Deref(claim.ResourceClaimTemplateName, ""), field, Required)
	}
	return w.found
}

// walk collects the references of one pod.
type walk struct {
	step string
	// mounted are the names of the volumes that containers mount, as files or as block devices.
	mounted map[string]bool
	// several is true if the pod has several containers, so that a field needs the name of its container.
	several bool
	found   []Reference
}

// add notes a reference to a whole object. An empty name is no reference.
func (w *walk) add(kind Kind, name, field string, need Need) {
	w.addKey(Reference{Object: Object{kind, name}, Field: field, Need: need})
}

func (w *walk) addKey(reference Reference) {
	if reference.Name != "" {
		reference.Step = w.step
		w.found = append(w.found, reference)
	}
}

func (w *walk) container(container *corev1.Container) {
	of := ""
	if w.several {
		of = " of container " + container.Name
	}
	for i := range container.Env {
		from, field := container.Env[i].ValueFrom, "env "+container.Env[i].Name+of
		if from == nil {
			continue
		}
		if s := from.SecretKeyRef; s != nil {
			w.addKey(Reference{Object: Object{Secret, s.Name}, Key: s.Key, Field: field, Need: needOf(s.Optional)})
		}
		if c := from.ConfigMapKeyRef; c != nil {
			w.addKey(Reference{Object: Object{ConfigMap, c.Name}, Key: c.Key, Text: true, Field: field, Need: needOf(c.Optional)})
		}
	}
	for _, from := range container.EnvFrom {
		if s := from.SecretRef; s != nil {
			w.add(Secret, s.Name, "envFrom"+of, needOf(s.Optional))
		}
		if c := from.ConfigMapRef; c != nil {
			w.add(ConfigMap, c.Name, "envFrom"+of, needOf(c.Optional))
		}
	}
	for _, mount := range container.VolumeMounts {
		w.mounted[mount.Name] = true
	}
	for _, device := range container.VolumeDevices {
		w.mounted[device.Name] = true
	}
}

func needOf(optional *bool) Need {
	if ptr.Deref(optional, false) {
		return Optional
	}
	return Required
}
