// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package explanation

import (
	"fmt"
	"slices"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/placement/demand"
	"github.com/trainyard/trainyard/dispatch"
)

// Data says which data a job requires and prefers, and what of the job names it. It leaves out what does not count under
// the policy of the job, which may be nil. A value of the annotation that means nothing is told elsewhere.
func Data(job *trainer.TrainJob, policy *dispatch.Policy) string {
	all, err := trainjobs.DataOf(job, policy != nil && policy.Spec.Checkpoint != nil)
	if err != nil {
		return ""
	}
	var required, preferred []string
	for _, data := range all {
		text := data.URI
		if !strings.HasSuffix(data.From, v1alpha1.AnnotationData) {
			text += fmt.Sprintf(" (%s)", data.From)
		}
		if data.Required {
			required = append(required, text)
		} else {
			preferred = append(preferred, text)
		}
	}
	var parts []string
	if len(required) > 0 {
		parts = append(parts, "requires "+strings.Join(required, ", "))
	}
	if scores := slices.ContainsFunc(policy.Rules().Scoring, demand.ScoresData); scores && len(preferred) > 0 {
		parts = append(parts, "prefers "+strings.Join(preferred, ", "))
	}
	if text, annotated := job.Annotations[v1alpha1.AnnotationData]; annotated {
		if warning := demand.UnscoredData(text, policy); warning != "" {
			parts = append(parts, warning)
		}
	}
	return strings.Join(parts, "; ")
}
