// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror_test

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/stage"
)

const enforce = "pod-security.kubernetes.io/enforce"

// labelNamespace sets labels of the job's namespace on a cluster.
func (s *scene) labelNamespace(t *testing.T, c client.Client, labels map[string]string) {
	t.Helper()
	var namespace corev1.Namespace
	must(t, c.Get(t.Context(), types.NamespacedName{Name: s.key.Namespace}, &namespace))
	if namespace.Labels == nil {
		namespace.Labels = map[string]string{}
	}
	maps.Copy(namespace.Labels, labels)
	must(t, c.Update(t.Context(), &namespace))
}

// intruder is a pod that gets root on its node. By runtimePatches a user can make a job have such a pod.
func (s *scene) intruder() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.key.Namespace, Name: "intruder"},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: "node", Image: "none", SecurityContext: &corev1.SecurityContext{Privileged: ptr.To(true)},
				VolumeMounts: []corev1.VolumeMount{{Name: "host", MountPath: "/host"}},
			}},
			Volumes: []corev1.Volume{{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}},
		},
	}
}

// A namespace that is made on a worker lets pods do what they may on the hub. Without that, somebody who may only
// create TrainJobs gets root on the worker's nodes.
func TestNamespaceKeepsPodSecurity(t *testing.T) {
	s := newScene(t, setting{hubOnly: true})
	s.options.NamespaceLabel = func(key string) bool { return key == "team" }
	s.restart()
	labels := map[string]string{
		enforce: "restricted", enforce + "-version": "v1.30", "pod-security.kubernetes.io/warn": "restricted", "team": "a", "other": "b",
	}
	s.labelNamespace(t, s.Hub.Admin, labels)
	if err := s.Hub.Admin.Create(t.Context(), s.intruder()); !apierrors.IsForbidden(err) {
		t.Fatalf("the hub lets the pod run: %v", err)
	}
	s.reconcile(t)
	if s.copy(t) == nil {
		t.Fatal("there is no copy")
	}
	var made corev1.Namespace
	must(t, s.worker.Admin.Get(t.Context(), types.NamespacedName{Name: s.key.Namespace}, &made))
	for key, value := range labels {
		if got, ok := made.Labels[key]; ok != (key != "other") || ok && got != value {
			t.Errorf("label %s of the namespace on the worker is %q", key, got)
		}
	}
	check.Equal(t, stage.HubID, made.Labels[v1alpha1.LabelPropagatedBy], "the namespace does not say who made it")
	if err := s.worker.Admin.Create(t.Context(), s.intruder()); !apierrors.IsForbidden(err) {
		t.Errorf("the worker lets the pod run: %v", err)
	}
}

// A worker whose namespace is laxer than the hub's is refused, in words that say what would be right, unless the job's
// policy allows it. The namespace is left as it is.
func TestLaxerNamespace(t *testing.T) {
	ignore := &v1alpha1.DispatchPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "trusting"},
		Spec:       v1alpha1.DispatchPolicySpec{Propagate: &v1alpha1.Propagation{PodSecurity: v1alpha1.PodSecurityIgnore}},
	}
	for name, tc := range map[string]struct {
		reason  string
		worker  map[string]string
		policy  *v1alpha1.DispatchPolicy
		refused []string
	}{
		"Equal": {reason: "nothing is laxer", worker: map[string]string{enforce: "restricted"}},
		"Laxer": {
			reason: "the pods of a copy could do more", worker: map[string]string{enforce: "baseline"},
			refused: []string{enforce, `"baseline"`, `"restricted"`, `worker "worker"`, "spec.propagate.podSecurity: Ignore"},
		},
		"Missing": {reason: "nobody knows the default", refused: []string{enforce, "has no label", `"restricted"`}},
		"Ignored": {reason: "an admin has agreed", policy: ignore},
		"PolicySilent": {
			reason: "it is so by default", policy: &v1alpha1.DispatchPolicy{ObjectMeta: metav1.ObjectMeta{Name: "silent"}},
			refused: []string{`DispatchPolicy "silent"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, setting{})
			s.options.Policy = func(context.Context, *unstructured.Unstructured) (*v1alpha1.DispatchPolicy, error) {
				return tc.policy, nil
			}
			s.labelNamespace(t, s.Hub.Admin, map[string]string{enforce: "restricted"})
			s.labelNamespace(t, s.worker.Admin, tc.worker)
			s.restart()
			s.Clock.Step(time.Minute) // The hub's caches are believed.
			before := s.namespaceOnWorker(t)
			s.reconcile(t)
			check.Equal(t, before.ResourceVersion, s.namespaceOnWorker(t).ResourceVersion,
				"the namespace of the worker was written")
			if tc.refused == nil {
				if s.copy(t) == nil {
					t.Errorf("there is no copy, but %s: %+v", tc.reason, s.dispatch(t).Status)
				}
				return
			}
			s.expectEnd(t, v1alpha1.OutcomeRejected, append(tc.refused, s.key.Namespace)...)
			check.Equal(t, nil, s.copy(t), "there is a copy: %s", tc.reason)
		})
	}
}

// namespaceOnWorker is the job's namespace there, once the connection's cache shows it.
func (s *scene) namespaceOnWorker(t *testing.T) *corev1.Namespace {
	t.Helper()
	found := &corev1.Namespace{}
	key := types.NamespacedName{Name: s.key.Namespace}
	eventually(t, "namespace in the worker's cache", func(g gomega.Gomega) {
		g.Expect(s.worker.Admin.Get(t.Context(), key, found)).To(gomega.Succeed())
		seen := &metav1.PartialObjectMetadata{}
		seen.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
		g.Expect(s.worker.Connection.Cache().Get(t.Context(), key, seen)).To(gomega.Succeed())
		g.Expect(seen.ResourceVersion).To(gomega.Equal(found.ResourceVersion))
	})
	return found
}

// A Dispatch of a protected namespace, whoever made it, gets no copy.
func TestProtectedNamespaceGetsNoCopy(t *testing.T) {
	s := newScene(t, setting{hubOnly: true})
	s.options.Protected = func(namespace string) bool { return namespace == s.key.Namespace }
	s.restart()
	s.Clock.Step(time.Minute) // The hub's caches are believed.
	s.reconcile(t)
	s.expectEnd(t, v1alpha1.OutcomeRejected, s.key.Namespace, "not dispatched")
	if err := s.worker.Admin.Get(t.Context(), types.NamespacedName{Name: s.key.Namespace}, &corev1.Namespace{}); !apierrors.IsNotFound(err) {
		t.Errorf("the namespace was made on the worker: %v", err)
	}
}
