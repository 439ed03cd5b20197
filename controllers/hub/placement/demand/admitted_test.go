// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

func TestAdmitted(t *testing.T) {
	gpus := func(n string) corev1.ResourceList {
		return corev1.ResourceList{"nvidia.com/gpu": resource.MustParse(n)}
	}
	requesting := func(list corev1.ResourceList, changes ...func(*corev1.PodSpec)) *corev1.PodSpec {
		spec := &corev1.PodSpec{Containers: []corev1.Container{{Name: "node", Resources: corev1.ResourceRequirements{Requests: list}}}}
		for _, change := range changes {
			change(spec)
		}
		return spec
	}
	assumed := []v1alpha1.PodSet{
		{Name: "dataset-initializer", Role: v1alpha1.RoleDatasetInitializer, Count: 1},
		{Name: "node", Role: v1alpha1.RoleTrainer, Count: 4, Requests: gpus("8"), UnmergedRequests: gpus("0")},
	}
	tolerated := corev1.Toleration{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
	many := corev1.ResourceList{}
	for i := range MaxResources + 1 {
		many[corev1.ResourceName(fmt.Sprintf("example.com/r%d", i))] = resource.MustParse("1")
	}
	for name, tc := range map[string]struct {
		reason string
		pods   []trainjobs.AdmittedPod
		want   func(*v1alpha1.PodSet) // What changes of "node". Nil: nothing.
	}{
		"Same": {
			reason: "defaults that every pod gets make no difference to where it can run",
			pods: []trainjobs.AdmittedPod{{Name: "node", Spec: requesting(gpus("8"), func(s *corev1.PodSpec) {
				s.TerminationGracePeriodSeconds = new(int64(30))
				for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
					s.Tolerations = append(s.Tolerations, corev1.Toleration{
						Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(300)),
					})
				}
			})}},
		},
		"Toleration": {
			reason: "the admission plugin ExtendedResourceToleration adds it",
			pods: []trainjobs.AdmittedPod{{Name: "node", Spec: requesting(gpus("8"), func(s *corev1.PodSpec) {
				s.Tolerations = []corev1.Toleration{tolerated}
			})}},
			want: func(set *v1alpha1.PodSet) { set.Tolerations = []corev1.Toleration{tolerated} },
		},
		"PodLevel": {
			reason: "requests of the pod take the place of those of its containers, and overhead comes on top",
			pods: []trainjobs.AdmittedPod{{Name: "node", Spec: requesting(gpus("8"), func(s *corev1.PodSpec) {
				s.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("2")}}
				s.Overhead = corev1.ResourceList{"cpu": resource.MustParse("500m")}
			})}},
			want: func(set *v1alpha1.PodSet) { set.Requests["cpu"] = resource.MustParse("2500m") },
		},
		"Devices": {
			reason: "devices that a pod claims by template are requests too, and no other name counts as such",
			pods: []trainjobs.AdmittedPod{{Name: "node", Spec: requesting(gpus("8")), Devices: map[corev1.ResourceName]int64{
				v1alpha1.ClaimedDevices + "tpu": 2, v1alpha1.ClaimedDevices + "nic": 0, "nvidia.com/gpu": 1,
			}}},
			want: func(set *v1alpha1.PodSet) { set.Requests[v1alpha1.ClaimedDevices+"tpu"] = resource.MustParse("2") },
		},
		"NotKnown": {
			reason: "a pod that a full quota refuses now, and pods of nobody, say nothing",
			pods:   []trainjobs.AdmittedPod{{Name: "node", Later: "exceeded quota"}, {Name: "other", Spec: requesting(gpus("1"))}},
		},
		"TooMany": {reason: "a worker cannot make a demand that is too large to decide about", pods: []trainjobs.AdmittedPod{{Name: "node", Spec: requesting(many)}}},
		"TooLarge": {
			reason: "nor one that no Dispatch could hold",
			pods: []trainjobs.AdmittedPod{{Name: "node", Spec: requesting(gpus("8"), func(s *corev1.PodSpec) {
				s.NodeSelector = map[string]string{"a": strings.Repeat("x", MaxBytes)}
			})}},
		},
		"Invalid": {
			reason: "nor one that the CRD refuses",
			pods: []trainjobs.AdmittedPod{{Name: "node", Spec: requesting(gpus("8"), func(s *corev1.PodSpec) {
				s.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{}}}
			})}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			want := (&v1alpha1.DispatchSpec{PodSets: assumed}).DeepCopy().PodSets
			if tc.want != nil {
				tc.want(&want[1])
			}
			got, changed := Admitted(assumed, tc.pods)
			if diff := cmp.Diff(want, got); diff != "" || changed != (tc.want != nil) {
				t.Errorf("%s\nchanged = %t (-want +got):\n%s", tc.reason, changed, diff)
			}
		})
	}
}
