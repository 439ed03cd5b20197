// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/test/check"
)

func TestTopologyOf(t *testing.T) {
	requires := func(job, label string) PodTopology { return PodTopology{ReplicatedJob: job, Required: &label} }
	prefers := func(job, label string) PodTopology { return PodTopology{ReplicatedJob: job, Preferred: &label} }
	both := requires("node", "rack")
	both.Preferred = both.Required
	const where = `pod template of replicated job "node", in the runtime or spec.runtimePatches: `
	for name, test := range map[string]struct {
		reason     string
		annotation *string
		ofPods     []PodTopology
		want       *dispatch.Topology
		err        string
	}{
		"None":       {reason: "most jobs have none"},
		"Annotation": {reason: "it covers all pods", annotation: new("required=rack"), want: &dispatch.Topology{Label: "rack", Required: true}},
		"AnnotationFirst": {
			reason: "it is for the hub", annotation: new("preferred=rack"), ofPods: []PodTopology{requires("node", "block")},
			want: &dispatch.Topology{Label: "rack"},
		},
		"BadAnnotation": {
			reason: "the job would run anywhere", annotation: new("rack"),
			err: "annotation trainyard.dev/topology: must be required=LABEL or preferred=LABEL with one label of nodes, " +
				`such as required=nvidia.com/gpu.clique; it is "rack"`,
		},
		"Required": {
			reason: "as the Kueue of a worker would do it", ofPods: []PodTopology{requires("node", "rack")},
			want: &dispatch.Topology{Label: "rack", Required: true, PodSets: []string{"node"}},
		},
		"RequiredTogether": {
			reason: "the pods of both are together", ofPods: []PodTopology{requires("node", "rack"), requires("launcher", "rack")},
			want: &dispatch.Topology{Label: "rack", Required: true, PodSets: []string{"launcher", "node"}},
		},
		"RequiredFirst": {
			reason: "a preference may be missed", ofPods: []PodTopology{prefers("launcher", "block"), requires("node", "rack")},
			want: &dispatch.Topology{Label: "rack", Required: true, PodSets: []string{"node"}},
		},
		"TwoRequired": {
			reason: "one label is counted", ofPods: []PodTopology{requires("launcher", "block"), requires("node", "rack")},
			err: `replicated jobs "launcher" and "node", in the runtime or spec.runtimePatches: annotation ` +
				`kueue.x-k8s.io/podset-required-topology names two labels, block and rack; give both the same`,
		},
		"Preferred": {
			reason: "as the Kueue of a worker would do it", ofPods: []PodTopology{prefers("node", "rack")},
			want: &dispatch.Topology{Label: "rack", PodSets: []string{"node"}},
		},
		"TwoPreferred": {reason: "preferences do not make a job wait", ofPods: []PodTopology{prefers("launcher", "block"), prefers("node", "rack")}},
		"PreferredHost": {
			reason: "many jobs have it for the Kueue of their worker", ofPods: []PodTopology{prefers("node", "kubernetes.io/hostname")},
		},
		"RequiredHost": {
			reason: "nodes are not counted one by one", ofPods: []PodTopology{requires("node", "kubernetes.io/hostname")},
			err: where + "annotation kueue.x-k8s.io/podset-required-topology: label kubernetes.io/hostname names single nodes, " +
				"which are not counted one by one; name a label that several nodes share",
		},
		"Both": {
			reason: "nobody knows which counts", ofPods: []PodTopology{both},
			err: where + "annotations kueue.x-k8s.io/podset-required-topology and kueue.x-k8s.io/podset-preferred-topology " +
				"exclude each other; remove one of them",
		},
	} {
		t.Run(name, func(t *testing.T) {
			annotations := map[string]string{}
			if test.annotation != nil {
				annotations[v1alpha1.AnnotationTopology] = *test.annotation
			}
			got, err := topologyOf(annotations, test.ofPods)
			message := ""
			if err != nil {
				message = err.Error()
				check.Equal(t, v1alpha1.ReasonInvalidTopology, Decision(err).Reason, "%s: reason", test.reason)
			}
			check.Equal(t, test.err, message, "%s: error", test.reason)
			check.Diff(t, test.want, got, test.reason)
		})
	}
}

// TestTopologyOfPods: users annotate pod templates of the runtime, or patch them in the TrainJob.
func TestTopologyOfPods(t *testing.T) {
	const annotated = `
mlPolicy: {numNodes: 2}
template:
  spec:
    replicatedJobs:
    - name: node
      template:
        metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
        spec: {template: {
          metadata: {annotations: {kueue.x-k8s.io/podset-preferred-topology: rack}},
          spec: {containers: [{name: node, image: i}]}}}
    - name: evaluator
      template: {spec: {template: {spec: {containers: [{name: c, image: i}]}}}}
`
	const patch = `
- manager: user.dev/topology
  trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: evaluator, template: {spec: {template: {
    metadata: {annotations: {kueue.x-k8s.io/podset-required-topology: block}}}}}}]}}}
`
	spec, job := &trainer.TrainingRuntimeSpec{}, &trainer.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job"}}
	check.Must(t, yaml.UnmarshalStrict([]byte(annotated), spec))
	check.Must(t, yaml.UnmarshalStrict([]byte(patch), &job.Spec.RuntimePatches))
	job.Spec.RuntimeRef = trainer.RuntimeRef{
		Name: "r", APIGroup: new(trainer.GroupVersion.Group), Kind: new(trainer.ClusterTrainingRuntimeKind),
	}
	got, err := newTestDeriver(t).derive(job, spec)
	check.Must(t, err)
	rack, block := "rack", "block"
	check.Diff(t, []PodTopology{{ReplicatedJob: "node", Preferred: &rack}, {ReplicatedJob: "evaluator", Required: &block}}, got.Topologies,
		"what the pod templates say")
}
