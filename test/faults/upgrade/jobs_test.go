// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/faults/world"
)

var on, failover = world.On, world.Failover

func suspended(job *trainer.TrainJob) {
	suspend := true
	job.Spec.Suspend = &suspend
}

// runs waits until a job has as many running pods as nodes on a worker, and returns its attempt. A worker on a busy
// machine may have refused earlier attempts, whose copies were never created.
func runs(t *testing.T, job *trainer.TrainJob, worker string) (attempt int32) {
	t.Helper()
	w.Eventually(t, func(g gomega.Gomega) {
		d := w.DispatchOf(g, job)
		g.Expect(d.Spec.Cluster).To(gomega.BeEquivalentTo(worker))
		attempt = d.Spec.Attempt
		g.Expect(d.Status.Phase).To(gomega.Equal(v1alpha1.PhaseRunning))
		running := gomega.HaveField("Status.Phase", corev1.PodRunning)
		g.Expect(w.PodsOf(g, worker, job)).To(gomega.And(gomega.HaveLen(int(*job.Spec.Trainer.NumNodes)), gomega.HaveEach(running)))
	})
	return attempt
}

// settles waits until a job's Dispatch says that the job has ended, so that nothing is left to write.
func settles(t *testing.T, job *trainer.TrainJob) {
	t.Helper()
	w.Eventually(t, func(g gomega.Gomega) {
		g.Expect(w.DispatchOf(g, job).Status.Phase).To(gomega.Equal(v1alpha1.PhaseFinished))
	})
}

// waits waits until a job's Dispatch says why the job has no worker.
func waits(t *testing.T, job *trainer.TrainJob) {
	t.Helper()
	w.Eventually(t, func(g gomega.Gomega) {
		d := w.DispatchOf(g, job)
		g.Expect(d.Spec.Cluster).To(gomega.BeEmpty())
		g.Expect(meta.IsStatusConditionFalse(d.Status.Conditions, v1alpha1.DispatchPlaced)).To(gomega.BeTrue(), "%v", d.Status.Conditions)
	})
}

// objectsOf are the UIDs of what a running job has on a worker: copy, JobSet and pods. None of them survives a restart
// of the job.
func objectsOf(t *testing.T, job *trainer.TrainJob, worker string) map[string]types.UID {
	t.Helper()
	g := gomega.NewWithT(t)
	uids := map[string]types.UID{}
	for kind, object := range map[string]client.Object{"copy": &trainer.TrainJob{}, "JobSet": &jobsetv1alpha2.JobSet{}} {
		g.Expect(w.Workers[worker].Get(t.Context(), client.ObjectKeyFromObject(job), object)).To(gomega.Succeed())
		uids[kind] = object.GetUID()
	}
	for _, pod := range w.PodsOf(g, worker, job) {
		uids["Pod "+pod.Name] = pod.UID
	}
	return uids
}

// versionsOf are the versions of everything that a job that has ended has: nothing writes it any more.
func versionsOf(t *testing.T, job *trainer.TrainJob) map[string]string {
	t.Helper()
	g := gomega.NewWithT(t)
	d := w.DispatchOf(g, job)
	versions := map[string]string{"Dispatch": string(d.UID) + " " + d.ResourceVersion}
	key := client.ObjectKeyFromObject(job)
	for name, c := range map[string]client.Reader{"TrainJob": w.Hub, "copy": w.Workers[string(d.Spec.Cluster)]} {
		object := &trainer.TrainJob{}
		g.Expect(c.Get(t.Context(), key, object)).To(gomega.Succeed())
		versions[name] = string(object.UID) + " " + object.ResourceVersion
	}
	return versions
}
