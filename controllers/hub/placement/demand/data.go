// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"fmt"
	"slices"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
)

// readsOf returns the URIs of the data that a job reads, as far as they count under its policy, which may be nil. The error
// is an Obstacle of the job's annotation.
func readsOf(job *trainer.TrainJob, policy *v1alpha1.DispatchPolicy) (reads dispatch.Reads, err error) {
	all, err := trainjobs.DataOf(job, policy != nil && policy.Spec.Checkpoint != nil)
	if err != nil {
		return reads, obstacle(v1alpha1.ReasonInvalidData, "annotation %s: %v", v1alpha1.AnnotationData, err)
	}
	scored := slices.ContainsFunc(policy.Rules().Scoring, ScoresData)
	for _, data := range all {
		if data.Required {
			reads.Required = append(reads.Required, data.URI)
		}
		if scored {
			reads.Scored = append(reads.Scored, data.URI)
		}
	}
	return reads, nil
}

// ScoresData says whether a score of a policy is for the data of jobs.
func ScoresData(score v1alpha1.Score) bool { return score.Name == v1alpha1.ScoreDataLocality }

// UnscoredData says why data that the annotation of a job prefers has no effect, empty if it has one or if there is none. The
// policy of the job may be nil.
func UnscoredData(annotation string, policy *dispatch.Policy) string {
	data, err := trainjobs.ParseData(annotation)
	prefers := slices.ContainsFunc(data, func(data trainjobs.DataURI) bool { return !data.Required })
	switch {
	case err != nil, !prefers, slices.ContainsFunc(policy.Rules().Scoring, ScoresData):
		return ""
	case policy == nil:
		return "what it prefers has no effect, because no DispatchPolicy with the score DataLocality applies to the job"
	}
	return fmt.Sprintf("what it prefers has no effect, because DispatchPolicy %s, which applies to the job, does not have the score "+
		"DataLocality in spec.scoring", policy.Name)
}
