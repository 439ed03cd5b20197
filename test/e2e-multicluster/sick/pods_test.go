// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package sick

import (
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/yard"
)

// TestTaintedDevices: a job whose pods tolerate a taint only because the worker's admission makes them do so runs there.
// It does not run beside other tests: on a busy machine the worker does not say in time what its pods become.
func TestTaintedDevices(t *testing.T) {
	// It brings namespace and runtime to the worker, without which nobody there can say what pods become.
	first := &sickness{at: east, job: yard.Job{RunFor: "1h"}}
	runs(t, first.submit(t, "without-devices"))

	second := &sickness{at: east, job: yard.Job{RunFor: "1h"}, change: func(job *trainer.TrainJob) {
		devices := corev1.ResourceList{fpga: resource.MustParse("2")}
		job.Spec.Trainer.ResourcesPerNode = &corev1.ResourceRequirements{Requests: devices, Limits: devices}
	}}
	job := second.submit(t, "with-devices")
	d := runs(t, job)
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
