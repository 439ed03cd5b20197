// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
)

// noteLimit is what an Event's note takes.
const noteLimit = 1024

func (r *Reconciler) recordPlaced(job *unstructured.Unstructured, d *v1alpha1.Dispatch, decision dispatch.Decision) {
	r.Recorder.Eventf(job, d, corev1.EventTypeNormal, "Placed", "Place",
		"Placed on worker %q (attempt %d)", decision.Cluster, d.Spec.Attempt)
}

// recordWaiting says why a job waits: for each worker where workers have been asked, as many as a note takes.
func (r *Reconciler) recordWaiting(job *unstructured.Unstructured, d *v1alpha1.Dispatch, decision dispatch.Decision) {
	note := decision.Reason + ": " + decision.Message
	if len(d.Status.Explanation) > 0 {
		lines := make([]string, len(d.Status.Explanation))
		for i, line := range d.Status.Explanation {
			lines[i] = fmt.Sprintf("%s: %s: %s", line.Cluster, line.Reason, line.Message)
		}
		note = decision.Reason + ": " + strings.Join(lines, "; ") // One line, which is what kubectl get events shows.
	}
	if len(note) > noteLimit {
		note = strings.ToValidUTF8(note[:noteLimit-3], "") + "..."
	}
	r.Recorder.Eventf(job, d, corev1.EventTypeNormal, "Waiting", "Place", "%s", note)
}
