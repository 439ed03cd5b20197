// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterprofile

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	inventory "sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// action is what to do about one name.
type action int

const (
	// leave: nothing is to be done.
	leave action = iota
	// create: the profile has no WorkerCluster yet.
	create
	// refuse: there is a WorkerCluster of the name that was not made of the profile.
	refuse
	// follow: the labels of the WorkerCluster differ from the labels of the profile.
	follow
	// uncordon: the profile of a worker that was cordoned without it is back.
	uncordon
	// cordon: the profile is gone.
	cordon
)

// String returns the name of the action.
func (a action) String() string {
	return [...]string{"leave", "create", "refuse", "follow", "uncordon", "cordon"}[a]
}

// observation is what is known of one name.
type observation struct {
	// origin is "namespace/name" of the profile, whether it exists or not.
	origin string
	// profile is nil if there is none, or if it is being deleted.
	profile *inventory.ClusterProfile
	// worker is nil if there is none.
	worker *v1alpha1.WorkerCluster
	// property says whether a property of the profile becomes a label.
	property func(name string) bool
}

// decision is what to do, with the WorkerCluster as it is to be, and the properties that cannot be labels.
type decision struct {
	action action
	worker *v1alpha1.WorkerCluster
	unfit  []string
}

func decide(seen observation) decision {
	if seen.profile == nil {
		return withoutProfile(seen)
	}
	labels, unfit := labelsOf(seen.profile, seen.property)
	switch {
	case seen.worker == nil:
		worker := &v1alpha1.WorkerCluster{ObjectMeta: metav1.ObjectMeta{
			Name: seen.profile.Name, Annotations: map[string]string{v1alpha1.AnnotationClusterProfile: seen.origin},
		}}
		worker.Spec.Connection.KubeconfigSecretRef = &v1alpha1.SecretReference{Name: secretName(seen.profile.Name)}
		setLabels(worker, labels)
		return decision{action: create, worker: worker, unfit: unfit}
	case seen.worker.DeletionTimestamp != nil:
		return decision{}
	case !seen.follows():
		return decision{action: refuse}
	}
	after := seen.worker.DeepCopy()
	changed := setLabels(after, labels)
	if _, cordoned := after.Annotations[v1alpha1.AnnotationCordonedFor]; cordoned {
		delete(after.Annotations, v1alpha1.AnnotationCordonedFor)
		after.Spec.Unschedulable = false
		return decision{action: uncordon, worker: after, unfit: unfit}
	}
	if !changed {
		return decision{}
	}
	return decision{action: follow, worker: after, unfit: unfit}
}

// withoutProfile cordons a worker once. An admin who uncordons it then has the last word. A worker that an admin has
// cordoned already stays as it is, so that the return of the profile does not uncordon it.
func withoutProfile(seen observation) decision {
	if seen.worker == nil || seen.worker.DeletionTimestamp != nil || !seen.follows() || seen.worker.Spec.Unschedulable {
		return decision{}
	}
	if _, done := seen.worker.Annotations[v1alpha1.AnnotationCordonedFor]; done {
		return decision{}
	}
	after := seen.worker.DeepCopy()
	after.Spec.Unschedulable = true
	after.Annotations[v1alpha1.AnnotationCordonedFor] = v1alpha1.ReasonClusterProfileMissing
	return decision{action: cordon, worker: after}
}

// follows says whether the WorkerCluster was made of this profile, or an admin has said that it is to follow it.
func (o observation) follows() bool {
	return o.worker.Annotations[v1alpha1.AnnotationClusterProfile] == o.origin
}

// secretName is the name of the Secret that kubectl trainyard join writes for a worker.
func secretName(worker string) string { return worker + "-kubeconfig" }

// labelsOf returns the labels that a profile gives its worker: its own, and properties by which policies may select. A
// label goes before a property of the same name. Nothing under trainyard.dev/ comes from an inventory. unfit are the
// properties that cannot be labels.
func labelsOf(profile *inventory.ClusterProfile, property func(name string) bool) (labels map[string]string, unfit []string) {
	labels = map[string]string{}
	for _, p := range profile.Status.Properties {
		if !property(p.Name) || reserved(p.Name) {
			continue
		}
		if len(validation.IsQualifiedName(p.Name)) > 0 || len(validation.IsValidLabelValue(p.Value)) > 0 {
			unfit = append(unfit, p.Name)
			continue
		}
		labels[p.Name] = p.Value
	}
	for key, value := range profile.Labels {
		if !reserved(key) {
			labels[key] = value
		}
	}
	slices.Sort(unfit)
	return labels, unfit
}

// reserved says whether a key is under trainyard.dev/ or a subdomain of it.
func reserved(key string) bool {
	prefix, _, ok := strings.Cut(key, "/")
	domain := strings.TrimSuffix(v1alpha1.KeyPrefix, "/")
	return ok && (prefix == domain || strings.HasSuffix(prefix, "."+domain))
}

// setLabels replaces the labels that a worker had from its profile by these labels, and says whether it has changed
// anything. Other labels are the admin's.
func setLabels(worker *v1alpha1.WorkerCluster, labels map[string]string) (changed bool) {
	if worker.Labels == nil {
		worker.Labels = map[string]string{}
	}
	before := strings.FieldsFunc(worker.Annotations[v1alpha1.AnnotationClusterProfileLabels], func(r rune) bool { return r == ',' })
	for _, key := range before {
		if _, stays := labels[key]; !stays {
			delete(worker.Labels, key)
			changed = true
		}
	}
	for key, value := range labels {
		if had, ok := worker.Labels[key]; !ok || had != value {
			worker.Labels[key] = value
			changed = true
		}
	}
	keys := strings.Join(slices.Sorted(maps.Keys(labels)), ",")
	if worker.Annotations[v1alpha1.AnnotationClusterProfileLabels] != keys {
		worker.Annotations[v1alpha1.AnnotationClusterProfileLabels] = keys
		changed = true
	}
	return changed
}
