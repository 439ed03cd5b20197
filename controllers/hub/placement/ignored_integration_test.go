// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// virtual makes a job request memory of GPUs, which no node lists.
func virtual(job *trainer.TrainJob) {
	requests := corev1.ResourceList{gpu: resource.MustParse("8"), "nvidia.com/gpumem": resource.MustParse("8000")}
	job.Spec.Trainer.ResourcesPerNode = &corev1.ResourceRequirements{Requests: requests, Limits: requests}
}

// A job that requests a resource of a scheduler extender waits, is told what to do, and runs where an admin has done it.
// Its pods take the room that they need of other resources.
func TestIgnoredResources(t *testing.T) {
	const advice = "NoMatchingNode: no node has the resource nvidia.com/gpumem; if the worker can add nodes that have it, " +
		"describe them in spec.expandable of the WorkerCluster; if a scheduler extender manages it there, add it to spec.ignoredResources"
	s := newScene(t)
	s.Submit(t, "first", virtual)
	d := s.expect(t, "first", v1alpha1.ReasonNoFit)
	check.Diff(t, map[v1alpha1.ClusterName]string{east: advice, west: advice}, reasonsOf(d), "explanation")

	s.worker(t, east, func(worker *v1alpha1.WorkerCluster) {
		worker.Spec.IgnoredResources = []v1alpha1.ExtendedResourceName{"nvidia.com/gpumem"}
	})
	d, _ = s.reconcile(t, "first")
	check.Equal(t, east, d.Spec.Cluster, "the worker of the first job")

	s.Submit(t, "second", virtual)
	full := func() {
		t.Helper()
		reasons := reasonsOf(s.expect(t, "second", v1alpha1.ReasonNoFit))
		check.Equal(t, advice, reasons[west], "why not west")
		if !strings.HasPrefix(reasons[east], "InsufficientResources: lacks 16 nvidia.com/gpu on nodes with at least 8 free") {
			t.Errorf("the second job is not on east because %s", reasons[east])
		}
	}
	full()
	s.restart(t)
	full()
}

// The API server refuses names that can never be an extender's.
func TestIgnoredResourcesOfTheAPI(t *testing.T) {
	s := newScene(t)
	many := make([]v1alpha1.ExtendedResourceName, 33)
	for i := range many {
		many[i] = v1alpha1.ExtendedResourceName(fmt.Sprint("example.com/r", i))
	}
	const extended = "must be the name of an extended resource, such as nvidia.com/gpumem"
	for name, test := range map[string]struct {
		names []v1alpha1.ExtendedResourceName
		want  string
	}{
		"Extended":  {names: []v1alpha1.ExtendedResourceName{"nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "tencent.com/vcuda-core", "a.b/C_d.e"}},
		"Most":      {names: many[:32]},
		"TooMany":   {names: many, want: "must have at most 32 items"},
		"Twice":     {names: []v1alpha1.ExtendedResourceName{"nvidia.com/gpumem", "nvidia.com/gpumem"}, want: "Duplicate value"},
		"CPU":       {names: []v1alpha1.ExtendedResourceName{"cpu"}, want: extended},
		"Hugepages": {names: []v1alpha1.ExtendedResourceName{"hugepages-1Gi"}, want: extended},
		"Native":    {names: []v1alpha1.ExtendedResourceName{"kubernetes.io/x"}, want: extended},
		"Class":     {names: []v1alpha1.ExtendedResourceName{"deviceclass.resource.kubernetes.io/gpu"}, want: extended},
		"Pattern":   {names: []v1alpha1.ExtendedResourceName{"nvidia.com/*"}, want: extended},
		"Empty":     {names: []v1alpha1.ExtendedResourceName{""}, want: extended},
		"Long":      {names: []v1alpha1.ExtendedResourceName{v1alpha1.ExtendedResourceName("a/" + strings.Repeat("b", 316))}, want: "may not be more than 317"},
	} {
		t.Run(name, func(t *testing.T) {
			worker := &v1alpha1.WorkerCluster{Spec: v1alpha1.WorkerClusterSpec{
				Connection: v1alpha1.Connection{KubeconfigPath: "/none"}, IgnoredResources: test.names,
			}}
			worker.GenerateName = "ignoring-"
			err := s.Hub.Admin.Create(t.Context(), worker, client.DryRunAll)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("the API server says %v, want %q", err, test.want)
			}
		})
	}
}
