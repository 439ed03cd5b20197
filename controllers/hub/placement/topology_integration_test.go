// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// rack is the label of the tests. The nodes of a worker with racks are in racks r0 and r1.
const rack = "example.com/rack"

// withRacks puts each node of a worker in a rack of its own, for the time of the test.
func (s *scene) withRacks(t *testing.T, worker v1alpha1.ClusterName) {
	t.Helper()
	server := s.Worker(worker)
	label := func(ctx context.Context, i int, value any) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", i)}}
		patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, rack, value)
		check.Must(t, server.Admin.Patch(ctx, node, client.RawPatch("application/merge-patch+json", []byte(patch))))
	}
	racks := func() (racks int) {
		for _, node := range server.Connection.Inventory().Snapshot().Nodes {
			if node.Labels[rack] != "" {
				racks++
			}
		}
		return racks
	}
	for i := range 2 {
		label(t.Context(), i, fmt.Sprintf(`"r%d"`, i))
		t.Cleanup(func() { label(context.WithoutCancel(t.Context()), i, "null") })
	}
	gomega.NewWithT(t).Eventually(racks, check.Patience, 10*time.Millisecond).Should(gomega.Equal(2), "racks that the hub knows")
}

// with annotates a job, and gives it pods with a number of GPUs each.
func with(topology, gpus string) func(*trainer.TrainJob) {
	return func(job *trainer.TrainJob) {
		job.Annotations = map[string]string{v1alpha1.AnnotationTopology: topology}
		job.Spec.Trainer.ResourcesPerNode.Requests = list(string(gpu), gpus)
	}
}

// inRack checks that a job is placed, and that what is recorded of its demand selects the rack.
func (s *scene) inRack(t *testing.T, d *v1alpha1.Dispatch, worker v1alpha1.ClusterName, value string) {
	t.Helper()
	check.Equal(t, worker, d.Spec.Cluster, "the worker of %s: %+v", d.Name, d.Status.Conditions)
	check.Diff(t, &v1alpha1.Domain{Label: rack, Value: value}, d.Spec.Domain, "the domain of "+d.Name)
	check.Equal(t, value, d.Spec.PodSets[0].NodeSelector[rack], "the rack that the pods of %s select", d.Name)
	s.tell(d)
}

// The gang runs in one rack or waits. What the Dispatches record is enough for the next process to count the jobs in
// their racks, although they have no pods yet.
func TestRequiredTopology(t *testing.T) {
	s := newScene(t)
	s.withRacks(t, east)
	s.Submit(t, "wide", with("required="+rack, "8"))
	d := s.expect(t, "wide", v1alpha1.ReasonNoFit)
	for i, want := range []struct{ reason, message string }{
		{v1alpha1.ReasonInsufficientResources, "in the best domain example.com/rack=r0: lacks 8 nvidia.com/gpu on nodes with at least 8 free"},
		{v1alpha1.ReasonNoDomain, "no node has the label example.com/rack of the job's topology"},
	} {
		if line := d.Status.Explanation[i]; line.Reason != want.reason || !strings.HasPrefix(line.Message, want.message) {
			t.Errorf("the explanation has %+v, want %+v", line, want)
		}
	}

	s.Submit(t, "first", with("required="+rack, "4"))
	d, _ = s.reconcile(t, "first")
	s.inRack(t, d, east, "r0")
	s.restart(t)
	s.Submit(t, "second", with("required="+rack, "4"))
	d, _ = s.reconcile(t, "second")
	s.inRack(t, d, east, "r1")
	s.restart(t)
	s.Submit(t, "third", with("required="+rack, "4"))
	s.expect(t, "third", v1alpha1.ReasonNoFit)
	s.Submit(t, "anywhere", with("preferred="+rack, "4"))
	if d, _ = s.reconcile(t, "anywhere"); d.Spec.Cluster != west || d.Spec.Domain != nil {
		t.Errorf("a job that prefers a rack is on %q in %v, want it on west, which has room", d.Spec.Cluster, d.Spec.Domain)
	}
}

// A domain that does not let the job run in time is left alone for a while. The job may go to another domain of the same
// worker at once, and returns to the first one later.
func TestDomainTimesOut(t *testing.T) {
	s := newScene(t)
	s.withRacks(t, east)
	s.Submit(t, "job", with("required="+rack, "4"))
	d, _ := s.reconcile(t, "job")
	s.inRack(t, d, east, "r0")

	for range 2 { // The answer stays.
		check.Equal(t, "worker east has room for the job in domain example.com/rack=r1", s.elsewhere(t, d).Message, "where the job can go")
	}
	s.report(t, d, v1alpha1.DispatchMirrored, metav1.ConditionFalse, v1alpha1.OutcomeAdmissionTimeout)
	d, _ = s.reconcile(t, "job")
	s.inRack(t, d, east, "r1")
	check.Equal(t, int32(2), d.Spec.Attempt, "attempt")
}

// The room in another domain of the worker is kept for a job until it comes, although some of its pods run in the domain
// that it leaves.
func TestRoomInAnotherDomainIsKept(t *testing.T) {
	s := newScene(t)
	s.withRacks(t, east)
	s.Submit(t, "job", with("required="+rack, "2"))
	d, _ := s.reconcile(t, "job")
	s.inRack(t, d, east, "r0")
	check.Equal(t, v1alpha1.ReasonFits, s.elsewhere(t, d).Reason, "in r1 there is room for both pods")
	s.bind(t, d) // One pod on each node: somebody has edited the copy.
	s.awaitUsed(t, 4)
	s.Submit(t, "first", with("required="+rack, "3"))
	first, _ := s.reconcile(t, "first")
	s.inRack(t, first, east, "r0")
	s.Submit(t, "second", with("required="+rack, "3"))
	s.expect(t, "second", v1alpha1.ReasonNoFit)
	s.reconciler.Release(d.Spec.TrainJob.UID)
	second, _ := s.reconcile(t, "second")
	s.inRack(t, second, east, "r1")
}

// A topology that means nothing is a fault of the job, in words, and no worker gets the job.
func TestInvalidTopology(t *testing.T) {
	s := newScene(t)
	s.Submit(t, "job", with("wanted="+rack, "4"))
	d := s.expect(t, "job", v1alpha1.ReasonInvalidTopology)
	if message := d.Status.Conditions[0].Message; !strings.HasPrefix(message, "annotation trainyard.dev/topology: must be required=LABEL") {
		t.Errorf("the message is %q", message)
	}
}
