// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// stayOnHub are labels and annotations about the hub's object, which would be wrong about the copy.
var stayOnHub = []string{
	"kubectl.kubernetes.io/last-applied-configuration",
	"argocd.argoproj.io/tracking-id",
	// With these the hub's Kueue keeps its books on the hub's object. The Kueue of the worker would look for the
	// Workload that they name, or wait for whoever gates the admission on the hub.
	"kueue.x-k8s.io/prebuilt-workload-name",
	"kueue.x-k8s.io/multikueue-origin",
	"kueue.x-k8s.io/job-uid",
	"kueue.x-k8s.io/admission-gated-by",
}

// carried returns the labels or annotations of a hub TrainJob that its copy gets. No name under trainyard.dev/ is among
// them: the user writes these names, and the worker's agent obeys them. The worker needs none of those that mean
// something on the hub. A TTL would be wrong there: a copy that goes before the hub has seen its end would be taken for
// lost.
func carried(all map[string]string) map[string]string {
	kept := map[string]string{}
	for key, value := range all {
		if !strings.HasPrefix(key, v1alpha1.KeyPrefix) && !slices.Contains(stayOnHub, key) {
			kept[key] = value
		}
	}
	return kept
}

// reservedKeys are the names under trainyard.dev/ that the user of a hub TrainJob has written and that mean nothing on
// it, sorted.
func reservedKeys(job *unstructured.Unstructured) []string {
	var names []string
	for key := range job.GetLabels() {
		if strings.HasPrefix(key, v1alpha1.KeyPrefix) {
			names = append(names, "label "+key)
		}
	}
	for key := range job.GetAnnotations() {
		if strings.HasPrefix(key, v1alpha1.KeyPrefix) && !slices.Contains(v1alpha1.UserAnnotations(), key) {
			names = append(names, "annotation "+key)
		}
	}
	slices.Sort(names)
	return names
}
