// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package sick

import (
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/yard"
)

// TestTaintedDevices: a job whose pods tolerate a taint only because the worker's admission makes them do so runs there.
func TestTaintedDevices(t *testing.T) {
	t.Parallel()
	runs := func(job *trainer.TrainJob) *v1alpha1.Dispatch {
		d := &v1alpha1.Dispatch{}
		y.Eventually(t, func(g gomega.Gomega) {
			g.Expect(y.Hub.Get(t.Context(), client.ObjectKeyFromObject(job), d)).To(gomega.Succeed())
			g.Expect(d.Status.Phase).To(gomega.Equal(v1alpha1.PhaseRunning), "%v", d.Status.Explanation)
		})
		return d
	}
	// It brings namespace and runtime to the worker, without which nobody there can say what pods become.
	first := &sickness{at: east, job: yard.Job{RunFor: "1h"}}
	runs(first.submit(t, "without-devices"))

	second := &sickness{at: east, job: yard.Job{RunFor: "1h"}, change: func(job *trainer.TrainJob) {
		devices := corev1.ResourceList{fpga: resource.MustParse("2")}
		job.Spec.Trainer.ResourcesPerNode = &corev1.ResourceRequirements{Requests: devices, Limits: devices}
	}}
	job := second.submit(t, "with-devices")
	d := runs(job)
	for _, set := range d.Spec.PodSets {
		if len(set.Tolerations) != 1 || set.Tolerations[0].Key != string(fpga) {
			t.Errorf("the Dispatch counts the tolerations %v, want what admission adds", set.Tolerations)
		}
	}
	var pods corev1.PodList
	check.Must(t, y.Workers[east].List(t.Context(), &pods, client.InNamespace(team), client.MatchingLabels{"jobset.sigs.k8s.io/jobset-name": job.Name}))
	for i := range pods.Items {
		check.Diff(t, "east-fpga-0", pods.Items[i].Spec.NodeName, "node of pod "+pods.Items[i].Name)
	}
}
