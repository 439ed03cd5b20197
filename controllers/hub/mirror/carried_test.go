// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// TestReservedNamesStayOnTheHub: what a user writes on the hub's TrainJob says nothing to the agent of a worker, nor to
// its Kueue.
func TestReservedNamesStayOnTheHub(t *testing.T) {
	for key, want := range map[string]bool{
		"team":                                  true,
		"kueue.x-k8s.io/queue-name":             true, // The worker's Kueue is asked by it.
		"kueue.x-k8s.io/priority-class":         true,
		"nottrainyard.dev/fenced":               true,
		v1alpha1.AnnotationFenced:               false,
		v1alpha1.AnnotationLaterAttempt:         false,
		v1alpha1.AnnotationChallenge:            false,
		v1alpha1.AnnotationTTL:                  false,
		v1alpha1.AnnotationClusters:             false,
		v1alpha1.AnnotationPriorityClass:        false,
		v1alpha1.LabelPropagatedBy:              false,
		"trainyard.dev/of-tomorrow":             false,
		"kueue.x-k8s.io/prebuilt-workload-name": false,
		"kueue.x-k8s.io/multikueue-origin":      false,
		"kueue.x-k8s.io/job-uid":                false,
		"kueue.x-k8s.io/admission-gated-by":     false,
	} {
		t.Run(key, func(t *testing.T) {
			job := testJob("origin", func(job *unstructured.Unstructured) {
				job.SetLabels(map[string]string{key: "of-the-user"})
				job.SetAnnotations(map[string]string{key: "of-the-user"})
			})
			copy := newCopy(job, testDispatch(), nil, "the-hub", nil)
			if _, got := copy.GetLabels()[key]; got != want {
				t.Errorf("the label is on the copy: %t, want %t", got, want)
			}
			if _, got := copy.GetAnnotations()[key]; got != want {
				t.Errorf("the annotation is on the copy: %t, want %t", got, want)
			}
		})
	}
}

// TestTrackingNamesStayOnTheHub: by these names a tool on the worker would take the copy for an object of its own that is
// in its sources no more, and delete it.
func TestTrackingNamesStayOnTheHub(t *testing.T) {
	for key, want := range map[string]bool{
		"app.kubernetes.io/instance":                       false, // Argo CD with label tracking
		"argocd.argoproj.io/instance":                      false,
		"argocd.argoproj.io/tracking-id":                   false,
		"applyset.kubernetes.io/part-of":                   false,
		"kubectl.kubernetes.io/last-applied-configuration": false,
		"kapp.k14s.io/app":                                 false,
		"kapp.k14s.io/association":                         false,
		"kapp.k14s.io/identity":                            false,
		"kustomize.toolkit.fluxcd.io/name":                 false,
		"kustomize.toolkit.fluxcd.io/namespace":            false,
		"helm.toolkit.fluxcd.io/name":                      false,
		"fluxcd.io/sync-gc-mark":                           false,
		"app.kubernetes.io/managed-by":                     false,
		"meta.helm.sh/release-name":                        false,
		"meta.helm.sh/release-namespace":                   false,
		"tanka.dev/environment":                            false,
		"objectset.rio.cattle.io/hash":                     false,
		"objectset.rio.cattle.io/applied":                  false,
		"configmanagement.gke.io/managed":                  false,
		"configsync.gke.io/resource-id":                    false,
		"config.k8s.io/owning-inventory":                   false,
		"kluctl.io/discriminator":                          false,
		"deploy.example.com/stack":                         false, // The flag of this test names it.
		"app.kubernetes.io/name":                           true,
		"app.kubernetes.io/part-of":                        true,
		"example.com/stack":                                true,
		"helm.sh/chart":                                    true,
		"notapplyset.kubernetes.io/part-of":                true,
		"trainer.kubeflow.org/framework":                   true,
	} {
		t.Run(key, func(t *testing.T) {
			patches := []any{map[string]any{"manager": "a.dev/b", "trainingRuntimeSpec": map[string]any{
				"template": map[string]any{"metadata": map[string]any{"labels": map[string]any{key: "of-the-pods"}}},
			}}}
			job := testJob("origin", func(job *unstructured.Unstructured) {
				job.SetLabels(map[string]string{key: "of-the-hub"})
				job.SetAnnotations(map[string]string{key: "of-the-hub"})
				job.Object["spec"] = map[string]any{"runtimePatches": patches}
			})
			copy := newCopy(job, testDispatch(), nil, "the-hub", func(key string) bool { return key == "deploy.example.com/stack" })
			if _, got := copy.GetLabels()[key]; got != want {
				t.Errorf("the label is on the copy: %t, want %t", got, want)
			}
			if _, got := copy.GetAnnotations()[key]; got != want {
				t.Errorf("the annotation is on the copy: %t, want %t", got, want)
			}
			check.Diff(t, any(patches), specOf(copy)["runtimePatches"],
				"the spec belongs to the user, whatever its labels are")
		})
	}
}

// TestMarksOfTheUserAreNotOurs: our own marks are on the copy whatever the user has written in their place.
func TestMarksOfTheUserAreNotOurs(t *testing.T) {
	job := testJob("origin", func(job *unstructured.Unstructured) {
		job.SetLabels(map[string]string{v1alpha1.LabelHub: "forged", v1alpha1.LabelOriginUID: "forged"})
		job.SetAnnotations(map[string]string{
			v1alpha1.AnnotationAttempt: "1000", v1alpha1.AnnotationFailover: "Immediate",
		})
	})
	copy := newCopy(job, testDispatch(), nil, "the-hub", nil)
	wantLabels := map[string]string{v1alpha1.LabelHub: "the-hub", v1alpha1.LabelOriginUID: "origin"}
	check.Diff(t, wantLabels, copy.GetLabels(), "labels of the copy")
	if diff := cmp.Diff(map[string]string{v1alpha1.AnnotationAttempt: "2", v1alpha1.AnnotationSource: "origin.0"}, copy.GetAnnotations()); diff != "" {
		t.Errorf("annotations of the copy (-want +got):\n%s", diff)
	}
}
