// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package explanation_test

import (
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/views/explanation"
)

// What counts of a job's data is printed with its source, and nothing else.
func TestData(t *testing.T) {
	policy := func(spec v1alpha1.DispatchPolicySpec) *dispatch.Policy {
		return &dispatch.Policy{DispatchPolicy: &v1alpha1.DispatchPolicy{ObjectMeta: metav1.ObjectMeta{Name: "gold"}, Spec: spec}}
	}
	scoring := []v1alpha1.Score{{Name: v1alpha1.ScoreMostAllocated}, {Name: v1alpha1.ScoreDataLocality}}
	const all = "required=s3://a,preferred=s3://b"
	for name, test := range map[string]struct {
		annotation string
		policy     *dispatch.Policy
		want       string
	}{
		"Scored": {
			annotation: all, policy: policy(v1alpha1.DispatchPolicySpec{Scoring: scoring}),
			want: "requires s3://a; prefers s3://b, hf://org/set (spec.initializer.dataset.storageUri)",
		},
		"Checkpoints": {
			annotation: all, policy: policy(v1alpha1.DispatchPolicySpec{Scoring: scoring, Checkpoint: &v1alpha1.Checkpointing{}}),
			want: "requires s3://a; prefers s3://b, hf://org/set (spec.initializer.dataset.storageUri), " +
				"s3://ckpt/team (annotation trainyard.dev/checkpoint)",
		},
		"NotScored": {
			annotation: all, policy: policy(v1alpha1.DispatchPolicySpec{}),
			want: "requires s3://a; what it prefers has no effect, because DispatchPolicy gold, which applies to the job, does not have the " +
				"score DataLocality in spec.scoring",
		},
		"NoPolicy":      {annotation: "required=s3://a", want: "requires s3://a"},
		"NothingScored": {policy: policy(v1alpha1.DispatchPolicySpec{})},
		"Invalid":       {annotation: "s3://a", policy: policy(v1alpha1.DispatchPolicySpec{Scoring: scoring})},
	} {
		t.Run(name, func(t *testing.T) {
			job := &trainer.TrainJob{
				ObjectMeta: metav1.ObjectMeta{Namespace: "team", Annotations: map[string]string{v1alpha1.AnnotationCheckpoint: "s3://ckpt/$(NAMESPACE)"}},
				Spec: trainer.TrainJobSpec{Initializer: &trainer.Initializer{
					Dataset: &trainer.DatasetInitializer{StorageUri: new("hf://org/set")},
				}},
			}
			if test.annotation != "" {
				job.Annotations[v1alpha1.AnnotationData] = test.annotation
			}
			check.Equal(t, test.want, explanation.Data(job, test.policy), "what is said")
		})
	}
}
