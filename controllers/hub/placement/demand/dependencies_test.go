// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"fmt"
	"slices"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

const named = `
template:
  spec:
    replicatedJobs:
    - name: dataset-initializer
      template:
        metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: dataset-initializer}}
        spec: {template: {spec: {containers: [{name: dataset-initializer, image: i}]}}}
    - name: node
      template:
        metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
        spec:
          template:
            spec:
              serviceAccountName: default
              imagePullSecrets: [{name: pull}]
              containers:
              - name: node
                image: i
                env: [{name: TOKEN, valueFrom: {secretKeyRef: {name: of-the-runtime, key: token}}}]
                envFrom: [{configMapRef: {name: settings, optional: true}}]
              volumes:
              - {name: unused, secret: {secretName: unused}}
`

// The names are those of the pods that the worker will make: of the runtime, as the TrainJob changes it, and of the
// initializers' credentials. What nothing reads is not among them, nor the account that each namespace has.
func TestDependencies(t *testing.T) {
	d := newTestDeriver(t)
	fromSecret := func(name string) []corev1.EnvVar {
		return []corev1.EnvVar{{Name: "TOKEN", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: "token",
		}}}}
	}
	all := []v1alpha1.DependencyKind{v1alpha1.DependSecrets, v1alpha1.DependConfigMaps, v1alpha1.DependServiceAccounts}
	many := &trainer.Trainer{}
	for i := range v1alpha1.MaxDependencies + 1 {
		env := fromSecret(fmt.Sprintf("secret-%d", i))[0]
		env.Name = fmt.Sprintf("TOKEN_%d", i)
		many.Env = append(many.Env, env)
	}
	for name, test := range map[string]struct {
		trainer     *trainer.Trainer
		initializer *trainer.Initializer
		kinds       []v1alpha1.DependencyKind
		want        string
		fails       bool
	}{
		"Runtime": {kinds: all, want: "Secret/pull,Secret/of-the-runtime,ConfigMap/settings"},
		"Job": {
			kinds: all, trainer: &trainer.Trainer{Env: fromSecret("of-the-job")},
			want: "Secret/pull,Secret/of-the-job,ConfigMap/settings",
		},
		"Initializer": {
			kinds: []v1alpha1.DependencyKind{v1alpha1.DependSecrets},
			initializer: &trainer.Initializer{Dataset: &trainer.DatasetInitializer{
				SecretRef: &corev1.LocalObjectReference{Name: "of-the-data"},
			}},
			want: "Secret/of-the-data,Secret/pull,Secret/of-the-runtime",
		},
		"OneKind": {kinds: []v1alpha1.DependencyKind{v1alpha1.DependConfigMaps}, want: "ConfigMap/settings"},
		"TooMany": {kinds: all, trainer: many, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			spec := &trainer.TrainingRuntimeSpec{}
			check.Must(t, yaml.Unmarshal([]byte(named), spec))
			job := &trainer.TrainJob{Spec: trainer.TrainJobSpec{
				RuntimeRef: trainer.RuntimeRef{Name: "r", Kind: new("ClusterTrainingRuntime"), APIGroup: new("trainer.kubeflow.org")},
				Trainer:    test.trainer, Initializer: test.initializer,
			}}
			demand, err := d.derive(job, spec)
			check.Must(t, err)
			found, needed, err := demand.dependencies(test.kinds)
			check.Equal(t, test.fails, Decision(err) != nil, "it is an obstacle: %v", err)
			check.Equal(t, test.want, v1alpha1.DependencyNames(found), "the names")
			optional := func(one v1alpha1.Dependency) bool { return one.Name == "settings" }
			check.Equal(t, v1alpha1.DependencyNames(slices.DeleteFunc(found, optional)), v1alpha1.DependencyNames(needed), "what pods do not run without")
		})
	}
}
