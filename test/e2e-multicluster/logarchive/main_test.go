// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package logarchive tests with whole processes what is left of the logs of jobs when their pods are gone: a hub with an
// archive of logs in a directory, and workers of which one is lost.
package logarchive

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/yard"
)

const (
	east, west = "east", "west"
	team       = "vision"
	other      = "audio"
	// size is what is kept of a log.
	size = 4 << 10
)

var (
	y = yard.Suite{
		Options: yard.Options{Workers: []yard.Worker{worker(east), worker(west)}, Progress: yard.Print, Gateway: true},
		Timeout: 100 * time.Second,
		Poll:    100 * time.Millisecond,
	}
	// viewer may view the team's namespace, and stranger another one.
	viewer, stranger *yard.User
)

func worker(name string) yard.Worker {
	return yard.Worker{
		Name: name, Labels: map[string]string{"region": name},
		Nodes:    []clusters.NodeShape{yard.GPUNodes(name, 2, 8, "NVIDIA-H100")},
		Failover: v1alpha1.WorkerFailover{GracePeriod: &metav1.Duration{Duration: 5 * time.Second}},
	}
}

func TestMain(m *testing.M) { yard.Main(m, start) }

func start(ctx context.Context) (stop func() error, err error) {
	dir, err := os.MkdirTemp("", "log-archive-")
	if err != nil {
		return nil, err
	}
	y.Options.ManagerArgs = []string{"--log-archive-dir=" + dir, "--log-archive-size=" + fmt.Sprint(size)}
	end, err := y.Start(ctx)
	stop = func() error {
		if end != nil {
			err = end()
		}
		return errors.Join(err, os.RemoveAll(dir))
	}
	if err != nil {
		return stop, err
	}
	policy := &v1alpha1.DispatchPolicy{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: v1alpha1.DispatchPolicySpec{
		Retention: &metav1.Duration{Duration: 3 * time.Second}, Failover: v1alpha1.FailoverImmediate,
	}}
	for _, object := range []client.Object{
		policy, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other}},
	} {
		if err := y.Hub.Create(ctx, object); err != nil {
			return stop, err
		}
	}
	if err := y.Yard.Hub.ApplyKustomization(ctx, "../../../config/users"); err != nil {
		return stop, err
	}
	if viewer, err = y.NewUser(ctx, team, "vic", "view"); err != nil {
		return stop, err
	}
	stranger, err = y.NewUser(ctx, other, "sam", "view")
	return stop, err
}

// submit creates a job on the hub whose pods have these annotations. at pins it to a worker, unless it is empty.
func submit(t *testing.T, job yard.Job, at string, annotations map[string]string) *trainer.TrainJob {
	t.Helper()
	job.Namespace = team
	if job.RunFor == "" {
		job.RunFor = clusters.RunForever
	}
	object := job.TrainJob()
	if at != "" {
		metav1.SetMetaDataAnnotation(&object.ObjectMeta, v1alpha1.AnnotationClusters, "region="+at)
	}
	patch := object.Spec.RuntimePatches[0].TrainingRuntimeSpec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template
	for key, value := range annotations {
		patch.Metadata.Annotations[key] = value
	}
	check.Must(t, y.Hub.Create(t.Context(), object))
	t.Cleanup(func() { check.Must(t, client.IgnoreNotFound(y.Hub.Delete(context.Background(), object.DeepCopy()))) })
	return object
}

// placeOf waits until a job has a worker.
func placeOf(t *testing.T, job *trainer.TrainJob) (at string) {
	t.Helper()
	y.Eventually(t, func(g gomega.Gomega) {
		at = string(y.DispatchOf(g, job).Spec.Cluster)
		g.Expect(at).NotTo(gomega.BeEmpty())
	})
	return at
}

// runs waits until the pods of a job have begun on a worker, and returns them.
func runs(t *testing.T, at string, job *trainer.TrainJob) (pods []corev1.Pod) {
	t.Helper()
	y.Eventually(t, func(g gomega.Gomega) {
		pods = y.PodsOf(g, at, job)
		g.Expect(pods).To(gomega.HaveLen(int(ptr.Deref(job.Spec.Trainer.NumNodes, 1))))
		for i := range pods {
			g.Expect(pods[i].Status.Phase).NotTo(gomega.Equal(corev1.PodPending))
		}
	})
	return pods
}

// gone waits until a worker has no pods of a job.
func gone(t *testing.T, at string, job *trainer.TrainJob) {
	t.Helper()
	y.Eventually(t, func(g gomega.Gomega) { g.Expect(y.PodsOf(g, at, job)).To(gomega.BeEmpty()) })
}

func contains(t *testing.T, text string, all ...string) {
	t.Helper()
	for _, one := range all {
		if !strings.Contains(text, one) {
			t.Errorf("there is no %q in\n%s", one, text)
		}
	}
}
