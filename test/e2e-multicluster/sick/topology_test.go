// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package sick

import (
	"fmt"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/yard"
)

// TestTopology: the pods of a job that requires one rack are in one, though the scheduler would spread them. A job that is
// too large for each rack waits.
func TestTopology(t *testing.T) {
	t.Parallel()
	const rack = "example.com/rack"
	for i, name := range []string{"a", "b"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(east, "-", i)}}
		patch := fmt.Sprintf(`{"metadata": {"labels": {%q: %q}}}`, rack, name)
		check.Must(t, y.Workers[east].Patch(t.Context(), node, client.RawPatch(types.MergePatchType, []byte(patch))))
	}
	submit := func(name string, pods int32) *trainer.TrainJob {
		is := sickness{at: east, job: yard.Job{Nodes: pods, RunFor: "1h"}, change: func(job *trainer.TrainJob) {
			metav1.SetMetaDataAnnotation(&job.ObjectMeta, v1alpha1.AnnotationTopology, "required="+rack)
			job.Spec.Trainer.ResourcesPerNode = &corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("30")},
			}
		}}
		return is.submit(t, name)
	}
	together := submit("together", 2)
	d := runs(t, together)
	y.Eventually(t, func(g gomega.Gomega) {
		var pods corev1.PodList
		ofJob := client.MatchingLabels{jobsetv1alpha2.JobSetNameKey: together.Name}
		g.Expect(y.Workers[east].List(t.Context(), &pods, client.InNamespace(team), ofJob)).To(gomega.Succeed())
		g.Expect(pods.Items).To(gomega.HaveLen(2))
		g.Expect(pods.Items[1].Spec.NodeName).To(gomega.Equal(pods.Items[0].Spec.NodeName))
	})
	check.Equal(t, true, d.Spec.Domain != nil && d.Spec.Domain.Label == rack, "the Dispatch names its domain: %v", d.Spec.Domain)
	expectWords(t, submit("apart", 4), "State: Waiting (NoFit)", "in the best domain "+rack+"=")
}
