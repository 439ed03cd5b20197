// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"testing"

	"github.com/trainyard/trainyard/test/check"
)

// A tool on the worker must not take a copied CRD for its own: with the CRD it would delete all copies.
func TestCopiedCRDIsNotTracked(t *testing.T) {
	source := newObject("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "trainjobs.trainer.kubeflow.org")
	source.SetLabels(map[string]string{
		"app.kubernetes.io/name": "trainer", "app.kubernetes.io/instance": "platform", "applyset.kubernetes.io/part-of": "id",
	})
	source.Object["spec"] = map[string]any{"scope": "Namespaced"}
	crd := newObject("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "trainjobs.trainer.kubeflow.org")
	fillCRD(crd, source)
	check.Diff(t, map[string]string{"app.kubernetes.io/name": "trainer"}, crd.GetLabels(), "labels of the worker's CRD")
	check.Diff(t, source.Object["spec"], crd.Object["spec"], "spec of the worker's CRD")
}
