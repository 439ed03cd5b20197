// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
)

// A copy's status changes a hundred times a second. The hub's TrainJob is written about once a second, and other jobs
// do not notice.
func TestFaultStatusStorm(t *testing.T) {
	s, worker := with(t)
	job := s.submit(clusters.RunForever, on(worker))
	s.settles(job)
	before := s.batch()
	versions := w.Recorder.JobVersions(job.UID)
	stop, stopped := make(chan struct{}), make(chan int)
	go func() { stopped <- storm(worker, job, stop) }()
	began := time.Now()
	during := s.batch()
	close(stop)
	changes := <-stopped
	seconds := time.Since(began).Seconds()
	written := w.Recorder.JobVersions(job.UID) - versions
	t.Logf("%d changes in %.1f s, %d writes on the hub; a batch took %v before and %v during the storm", changes, seconds, written, before, during)
	if limit := int(seconds) + 3; written > limit {
		t.Errorf("%d writes on the hub in %.1f s, want at most %d", written, seconds, limit)
	}
	if written == 0 {
		t.Error("nothing of the storm has reached the hub")
	}
	if during > 2*before+3*time.Second {
		t.Errorf("jobs of another worker took %v during the storm, and %v before", during, before)
	}
}

// storm changes a copy's status until stop is closed, and returns how often.
func storm(worker string, job client.Object, stop <-chan struct{}) (changes int) {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for i := 0; ; i++ {
		select {
		case <-stop:
			return changes
		case <-ticker.C:
		}
		conditions := []metav1.Condition{{
			Type: "Storm", Status: metav1.ConditionTrue, Reason: "Storm", Message: fmt.Sprint(i), LastTransitionTime: metav1.Now(),
		}}
		data, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": conditions}})
		if err != nil {
			return changes
		}
		copied := &trainer.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: job.GetNamespace(), Name: job.GetName()}}
		if w.Workers[worker].Status().Patch(context.Background(), copied, client.RawPatch(types.MergePatchType, data)) == nil {
			changes++
		}
	}
}

// A job is almost as large as an object can be.
func TestFaultLargeJob(t *testing.T) {
	s, worker := with(t)
	job := s.submit("2s", on(worker), func(job *trainer.TrainJob) {
		for i := range 10 { // The API server takes 3 MB in a request, etcd 1.5 MB; here three objects hold it.
			job.Spec.Trainer.Env = append(job.Spec.Trainer.Env, corev1.EnvVar{Name: fmt.Sprintf("LARGE_%d", i), Value: strings.Repeat("x", 60_000)})
		}
	})
	s.ends(job, s.submit("1s", on(worker)))
	s.Attempt(job, 1)
}

// A Kubeflow Trainer holds the lease of the worker's TrainJob controllers and runs the jobs. Our agents answer the hub.
func TestFaultUpstreamTrainerLeads(t *testing.T) {
	s, worker := with(t)
	key := client.ObjectKey{Namespace: "kubeflow-system", Name: "trainer.kubeflow.org"}
	hold := func() error {
		lease := &coordinationv1.Lease{}
		if err := w.Workers[worker].Get(context.Background(), key, lease); err != nil {
			return err
		}
		lease.Spec.HolderIdentity = ptr.To("upstream")
		lease.Spec.RenewTime = ptr.To(metav1.NowMicro())
		return w.Workers[worker].Update(context.Background(), lease)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			_ = hold() // A conflict with an agent: again.
			select {
			case <-stop:
				return
			case <-time.After(300 * time.Millisecond):
			}
		}
	}()
	released := false
	release := func() {
		if !released {
			released = true
			close(stop)
			<-stopped
		}
	}
	t.Cleanup(release)
	for _, agent := range w.Agents[worker] { // Who has lost the lease ends, and is started again.
		check.Must(t, agent.Process().Kill())
	}
	job := s.submit("1s", on(worker))
	s.Eventually(func(g gomega.Gomega) { copyOf(g, worker, job) })
	answered := s.leaseOf(worker).Spec.Answer
	s.ends(s.submit("2s", on(south)))
	s.Eventually(func(g gomega.Gomega) { g.Expect(s.leaseOf(worker).Spec.Answer).NotTo(gomega.Equal(answered)) })
	if pods := w.PodsOf(gomega.NewWithT(t), worker, job); len(pods) > 0 {
		t.Errorf("an agent runs a job beside the Kubeflow Trainer: %d pods", len(pods))
	}
	release()
	s.ends(job)
	s.Attempt(job, 1)
}

// leaseOf is the hub's ExecutionLease on a worker.
func (s *scenario) leaseOf(worker string) *v1alpha1.ExecutionLease {
	s.Helper()
	lease := &v1alpha1.ExecutionLease{}
	s.Eventually(func(g gomega.Gomega) {
		name := string(clusterID(s.T, w.Hub))
		g.Expect(w.Workers[worker].Get(context.Background(), client.ObjectKey{Name: name}, lease)).To(gomega.Succeed())
	})
	return lease
}

// Both workers that a job may use refuse it by their own policies. The explanation quotes both workers. The job runs as
// soon as one worker accepts it and has said so.
func TestFaultRefusedByAll(t *testing.T) {
	s, worker := with(t)
	const words = "no jobs for this cost centre"
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "refused-by-all"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{"trainer.kubeflow.org"}, APIVersions: []string{"*"}, Resources: []string{"trainjobs"}},
				},
			}}},
			Validations: []admissionregistrationv1.Validation{{Expression: "!object.metadata.name.startsWith('refusedbyall')", Message: words}},
		},
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: policy.Name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: policy.Name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}
	for _, name := range []string{worker, south} {
		for _, object := range []client.Object{policy, binding} {
			object = object.DeepCopyObject().(client.Object)
			t.Cleanup(func() { _ = w.Workers[name].Delete(context.Background(), object) })
			check.Must(t, w.Workers[name].Create(t.Context(), object))
		}
		s.Eventually(func(g gomega.Gomega) { // Policies count a little later.
			probe := &trainer.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "refusedbyall-probe"}}
			probe.Spec.RuntimeRef.Name = "none"
			g.Expect(w.Workers[name].Create(t.Context(), probe, client.DryRunAll)).To(gomega.MatchError(gomega.ContainSubstring(words)))
		})
	}
	job := s.submit("1s", on(worker, south))
	s.dispatchSays(job, v1alpha1.DispatchPlaced, v1alpha1.ReasonRejected)
	s.Eventually(func(g gomega.Gomega) {
		lines := map[v1alpha1.ClusterName]string{}
		for _, line := range w.DispatchOf(g, job).Status.Explanation {
			lines[line.Cluster] = line.Message
		}
		for _, name := range []v1alpha1.ClusterName{v1alpha1.ClusterName(worker), south} {
			g.Expect(lines[name]).To(gomega.ContainSubstring(words), string(name))
		}
	})
	for _, object := range []client.Object{binding, policy} {
		check.Must(t, w.Workers[worker].Delete(t.Context(), object.DeepCopyObject().(client.Object)))
	}
	s.Eventually(func(g gomega.Gomega) {
		probe := &trainer.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "refusedbyall-probe"}}
		probe.Spec.RuntimeRef.Name = "none"
		g.Expect(w.Workers[worker].Create(t.Context(), probe, client.DryRunAll)).NotTo(gomega.MatchError(gomega.ContainSubstring(words)))
	})
	// The admin of the worker tells the hub by touching the WorkerCluster.
	s.editSpec(worker, func(spec *v1alpha1.WorkerClusterSpec) { spec.Price = v1alpha1.Prices{} })
	s.ends(job)
}
