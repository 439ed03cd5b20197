// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/capacity/devices"
)

// countClaims adds to pods the devices that they claim by template. Its error says that a template is missing: a pod
// without its template waits, and nothing in its status says why. Where templates cannot be read, no devices count.
func countClaims(ctx context.Context, live client.Reader, namespace string, pods []trainjobs.AdmittedPod) error {
	for i := range pods {
		if pods[i].Spec == nil {
			continue
		}
		for j := range pods[i].Spec.ResourceClaims {
			name := pods[i].Spec.ResourceClaims[j].ResourceClaimTemplateName
			if name == nil {
				continue
			}
			template := &resourceapi.ResourceClaimTemplate{}
			err := live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: *name}, template)
			if apierrors.IsNotFound(err) {
				return apierrors.NewBadRequest(fmt.Sprintf("spec.resourceClaims[%d].resourceClaimTemplateName of the pods of replicated "+
					"job %q: the ResourceClaimTemplate %q is not in namespace %q: create it there", j, pods[i].Name, *name, namespace))
			}
			if err != nil {
				continue
			}
			for class, count := range devices.Claimed(&template.Spec.Spec) {
				if pods[i].Devices == nil {
					pods[i].Devices = map[corev1.ResourceName]int64{}
				}
				pods[i].Devices[class] += count
			}
		}
	}
	return nil
}
