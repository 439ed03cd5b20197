// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/kubeflow/trainer/v2/pkg/constants"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/test/check"
)

// patched returns a patch of the pods of one replicated job.
func patched(manager, step string, pod trainer.PodSpecPatch) trainer.RuntimePatch {
	return trainer.RuntimePatch{Manager: manager, TrainingRuntimeSpec: &trainer.TrainingRuntimeSpecPatch{
		Template: &trainer.JobSetTemplatePatch{Spec: &trainer.JobSetSpecPatch{ReplicatedJobs: []trainer.ReplicatedJobPatch{{
			Name:     step,
			Template: &trainer.JobTemplatePatch{Spec: &trainer.JobSpecPatch{Template: &trainer.PodTemplatePatch{Spec: &pod}}},
		}}}},
	}}
}

const inFirstStep = "trainingRuntimeSpec.template.spec.replicatedJobs[0]."

func patchedBy(patches ...trainer.RuntimePatch) func(*trainer.TrainJob) {
	return func(j *trainer.TrainJob) { j.Spec.RuntimePatches = patches }
}

// runtimeSpec returns a spec with one replicated job for a step.
func runtimeSpec(step string, replicas int32, containers ...string) trainer.TrainingRuntimeSpec {
	job := jobsetv1alpha2.ReplicatedJob{Name: "node", Replicas: replicas}
	job.Template.Labels = map[string]string{constants.LabelTrainJobAncestor: step}
	for _, name := range containers {
		spec := &job.Template.Spec.Template.Spec
		spec.Containers = append(spec.Containers, corev1.Container{Name: name, Image: "image"})
	}
	return trainer.TrainingRuntimeSpec{
		Template: trainer.JobSetTemplateSpec{Spec: jobsetv1alpha2.JobSetSpec{ReplicatedJobs: []jobsetv1alpha2.ReplicatedJob{job}}},
	}
}

// causes returns the field errors of an answer, one for each field.
func causes(t *testing.T, err error) (all []string) {
	t.Helper()
	if err == nil {
		return nil
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsInvalid(err) || status.Status().Details == nil {
		t.Fatalf("not an answer of a validation: %v", err)
	}
	for _, cause := range status.Status().Details.Causes {
		all = append(all, cause.Field+": "+cause.Message)
	}
	return all
}

// at returns a minute of the hour in which the tests write all statuses.
func at(minute int) metav1.Time {
	return metav1.NewTime(time.Date(2026, time.May, 4, 10, minute, 0, 0, time.UTC))
}

func condition(kind string, status metav1.ConditionStatus, minute int) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: kind + string(status), Message: "so it is", LastTransitionTime: at(minute)}
}

func conditions(all ...metav1.Condition) trainer.TrainJobStatus {
	return trainer.TrainJobStatus{Conditions: all}
}

func report(minute int) trainer.TrainJobStatus {
	return trainer.TrainJobStatus{TrainerStatus: &trainer.TrainerStatus{LastUpdatedTime: at(minute)}}
}

// handlers are the handlers of webhooks by path, as a webhook server has them.
type handlers struct {
	webhook.Server
	byPath map[string]http.Handler
}

// Register stores a handler.
func (h handlers) Register(path string, handler http.Handler) { h.byPath[path] = handler }

// refusals returns how many faults the metric counts for a webhook and a rule.
func refusals(t *testing.T, webhook, rule string) (count float64) {
	t.Helper()
	families, err := metrics.Registry.Gather()
	check.Must(t, err)
	for _, family := range families {
		if family.GetName() != "trainyard_admission_refusals_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			if labels := metric.GetLabel(); labels[0].GetValue() == rule && labels[1].GetValue() == webhook {
				count = metric.GetCounter().GetValue()
			}
		}
	}
	return count
}
