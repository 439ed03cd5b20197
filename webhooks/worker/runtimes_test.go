// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/kubeflow/trainer/v2/pkg/constants"
	upstream "github.com/kubeflow/trainer/v2/pkg/webhooks"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/test/check"
)

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

func TestRuntimes(t *testing.T) {
	good, bad := runtimeSpec("trainer", 1, "node"), runtimeSpec("trainer", 2, "main", "log")
	const path = "spec.template.spec.replicatedJobs[0]."
	replicas := path + `replicas: Invalid value: 2: always must be 1`
	containers := path + `template.spec.template.spec.containers: Invalid value: ["main","log"]: ` +
		`must contain the required container for the ancestor: trainer (a container named "node")`
	cases := map[string]struct {
		reason   string
		old      *trainer.TrainingRuntimeSpec // nil: the runtime is created
		new      trainer.TrainingRuntimeSpec
		deleting bool
		want     []string
	}{
		"New":    {reason: "A good runtime.", new: good},
		"NewBad": {reason: "All faults come at once, in words that help.", new: bad, want: []string{replicas, containers}},
		"Initializer": {
			reason: "The container of an initializer has the name of its step.",
			new:    runtimeSpec("dataset-initializer", 1, "main"),
			want: []string{path + `template.spec.template.spec.containers: Invalid value: ["main"]: ` +
				`must contain the required container for the ancestor: dataset-initializer (a container named "dataset-initializer")`},
		},
		"BecomesBad": {
			reason: "Upstream does not look at updates of TrainingRuntimes (#3686).",
			old:    &good, new: bad, want: []string{replicas, containers},
		},
		"BecomesGood": {reason: "A bad one can be repaired.", old: &bad, new: good},
		"WasBad":      {reason: "Metadata of a runtime that was made before there was a webhook can change.", old: &bad, new: bad},
		"Deleting":    {reason: "What is going needs to be able to go.", old: &good, new: bad, deleting: true},
	}
	cluster := clusterRuntimeValidator(&upstream.ClusterTrainingRuntimeValidator{})
	namespaced := runtimeValidator(&upstream.TrainingRuntimeValidator{})
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			meta := metav1.ObjectMeta{Name: "r"}
			if tc.deleting {
				meta.DeletionTimestamp = new(metav1.Now())
			}
			c, n := &trainer.ClusterTrainingRuntime{ObjectMeta: meta, Spec: tc.new}, &trainer.TrainingRuntime{ObjectMeta: meta, Spec: tc.new}
			var err [2]error
			if tc.old == nil {
				_, err[0] = cluster.ValidateCreate(t.Context(), c)
				_, err[1] = namespaced.ValidateCreate(t.Context(), n)
			} else {
				_, err[0] = cluster.ValidateUpdate(t.Context(), &trainer.ClusterTrainingRuntime{Spec: *tc.old}, c)
				_, err[1] = namespaced.ValidateUpdate(t.Context(), &trainer.TrainingRuntime{Spec: *tc.old}, n)
			}
			for i, kind := range []string{"ClusterTrainingRuntime", "TrainingRuntime"} {
				check.Diff(t, tc.want, causes(t, err[i]), fmt.Sprintf("%s\n%s", tc.reason, kind))
			}
		})
	}
}

func TestDeprecatedRuntimeWarns(t *testing.T) {
	w := clusterRuntimeValidator(&upstream.ClusterTrainingRuntimeValidator{})
	warnings, err := w.ValidateCreate(t.Context(), &trainer.ClusterTrainingRuntime{
		ObjectMeta: metav1.ObjectMeta{Name: "old", Labels: map[string]string{constants.LabelSupport: constants.SupportDeprecated}},
		Spec:       runtimeSpec("trainer", 1, "node"),
	})
	if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], `"old" is deprecated`) {
		t.Errorf("got warnings %q and error %v", warnings, err)
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
