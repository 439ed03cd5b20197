// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/test/clusters"
)

// The tests in this file are named after faults of the Kubeflow Trainer. Tests that do not stop the controller are
// parallel.

// runThrough returns when the controller has seen a new job end. By then it has seen all earlier events of other jobs.
func (e *lifeEnvironment) runThrough(t *testing.T, namespace string) {
	t.Helper()
	name := fmt.Sprintf("through-%d", namespaces.Add(1))
	j := e.createJob(t, namespace, name, clusterRuntime(brittleRuntime), pods(clusters.RunForAnnotation, "50ms"))
	e.awaitEnd(t, j, trainer.TrainJobComplete)
}

// expectJobSets checks how many JobSets a TrainJob has had, after one more pass of the controller.
func (e *lifeEnvironment) expectJobSets(t *testing.T, h *history, j *trainer.TrainJob, want int) {
	t.Helper()
	e.runThrough(t, j.Namespace)
	h.catchUp(t, e, j.Namespace)
	if got := jobSetsOf(h, j.UID); got != want {
		t.Errorf("%s has had %d JobSets, want %d", j.Name, got, want)
	}
}

func TestHoleManagedByIgnored(t *testing.T) {
	t.Parallel()
	e := lifeEnv(t)
	ns := e.namespace(t)
	h := e.record(t, ns)
	j := e.createJob(t, ns, "dispatched", managedBy("kueue.x-k8s.io/multikueue"))
	before := e.get(t, j)
	e.expectJobSets(t, h, j, 0)
	if diff := cmp.Diff(before, e.get(t, j)); diff != "" {
		t.Errorf("somebody else's TrainJob was written (-before +after):\n%s", diff)
	}
	if got := e.events(t, j); len(got) > 0 {
		t.Errorf("Events: got %q, want none", got)
	}
}

// TestHoleJobSetRecreatedAfterTTL: JobSets are deleted a few milliseconds after they report their end.
func TestHoleJobSetRecreatedAfterTTL(t *testing.T) {
	t.Parallel()
	e := lifeEnv(t)
	ns := e.namespace(t)
	h := e.record(t, ns)
	var jobs []*trainer.TrainJob
	for i := range 10 {
		jobs = append(jobs, e.createJob(t, ns, fmt.Sprintf("short-%d", i), clusterRuntime(ttlRuntime), pods(clusters.RunForAnnotation, "50ms")))
	}
	for _, j := range jobs {
		e.awaitEnd(t, j, trainer.TrainJobComplete)
		eventually(t, "JobSet to go", func(g gomega.Gomega) { g.Expect(e.jobSetExists(t, j)).To(gomega.BeFalse()) })
		e.touch(t, j)
	}
	for _, j := range jobs {
		e.expectJobSets(t, h, j, 1)
	}
}

func TestHoleJobSetRecreatedAfterFailure(t *testing.T) {
	t.Parallel()
	e := lifeEnv(t)
	ns := e.namespace(t)
	h := e.record(t, ns)
	j := e.createJob(t, ns, "failed", clusterRuntime(brittleRuntime),
		pods(clusters.RunForAnnotation, "50ms", clusters.FailAnnotation, "out of luck"))
	ended := e.awaitEnd(t, j, trainer.TrainJobFailed)
	e.awaitNote(t, j, ReasonFailed, "out of luck", "exit code 1")
	js := e.awaitJobSet(t, j)
	if err := e.Delete(t.Context(), js); err != nil {
		t.Fatal(err)
	}
	e.awaitGone(t, js)
	e.touch(t, j)
	e.expectJobSets(t, h, j, 1)
	if diff := cmp.Diff(ended.Status, e.get(t, j).Status); diff != "" {
		t.Errorf("status (-before +after):\n%s", diff)
	}
}

func TestHoleJobSetCreatedWhileDeleting(t *testing.T) {
	cases := map[string]struct {
		reason     string
		finalizers []string
		policy     metav1.DeletionPropagation
	}{
		"Foreground": {
			reason: "The TrainJob stays until its pods, which take their time, are gone.",
			policy: metav1.DeletePropagationForeground,
		},
		"Finalizer": {
			reason:     "The TrainJob stays, and somebody deletes its JobSet.",
			finalizers: []string{finalizer},
			policy:     metav1.DeletePropagationBackground,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := lifeEnv(t)
			ns := e.namespace(t)
			h := e.record(t, ns)
			j := e.createJob(t, ns, "deleted", pods(clusters.RunForAnnotation, clusters.RunForever, clusters.TerminateForAnnotation, "1s"),
				func(j *trainer.TrainJob) { j.Finalizers = tc.finalizers })
			e.awaitRunning(t, j, 2)
			js := e.awaitJobSet(t, j)
			if err := e.Delete(t.Context(), j, client.PropagationPolicy(tc.policy)); err != nil {
				t.Fatal(err)
			}
			for _, suspend := range []bool{true, false} { // Each value brings one more pass.
				err := e.Patch(t.Context(), j, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"suspend":%t}}`, suspend)))
				if client.IgnoreNotFound(err) != nil {
					t.Fatal(err)
				}
			}
			if err := e.Delete(t.Context(), js, client.PropagationPolicy(tc.policy)); client.IgnoreNotFound(err) != nil {
				t.Fatal(err)
			}
			e.awaitGone(t, js)
			if tc.finalizers != nil {
				eventually(t, "pods to go", func(g gomega.Gomega) { g.Expect(e.podsOf(t, j)).To(gomega.BeEmpty()) })
				e.touch(t, j)
				e.runThrough(t, ns)
				update(t, e.environment, j, func(j *trainer.TrainJob) { j.Finalizers = nil })
			}
			e.awaitGone(t, j)
			e.expectJobSets(t, h, j, 1)
		})
	}
}

// TestHolePodsOfTwoJobSets: background deletion removes the JobSet before its pods, which take some time to end.
func TestHolePodsOfTwoJobSets(t *testing.T) {
	t.Parallel()
	e := lifeEnv(t)
	ns := e.namespace(t)
	h := e.record(t, ns)
	j := e.createJob(t, ns, "rebuilt", pods(clusters.RunForAnnotation, clusters.RunForever, clusters.TerminateForAnnotation, "1s"))
	e.awaitRunning(t, j, 2)
	js := e.awaitJobSet(t, j)
	if err := e.Delete(t.Context(), js, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	e.awaitGone(t, js)
	e.awaitJobSet(t, j)
	e.awaitRunning(t, j, 2)
	h.check(t, e, ns)
}

func TestHolePanicOnUnknownKind(t *testing.T) {
	t.Parallel()
	e := lifeEnv(t)
	ns := e.namespace(t)
	h := e.record(t, ns)
	j := e.createJob(t, ns, "unknown", func(j *trainer.TrainJob) {
		j.Spec.RuntimeRef = trainer.RuntimeRef{Name: "llm", APIGroup: new("serving.example.com"), Kind: new("ServingRuntime")}
	})
	end := endOf(&e.awaitEnd(t, j, trainer.TrainJobFailed).Status)
	if end.Reason != trainer.TrainJobRuntimeNotSupportedReason || !strings.Contains(end.Message, `"ServingRuntime.serving.example.com"`) {
		t.Errorf("it has failed with %s: %s", end.Reason, end.Message)
	}
	e.expectJobSets(t, h, j, 0)
}

const noDeletion = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: NAME}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAME}}
    resourceRules:
    - {apiGroups: [jobset.x-k8s.io], apiVersions: ["*"], operations: [DELETE], resources: [jobsets]}
  validations:
  - {expression: "false", message: "JobSets stay for now"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: NAME}
spec: {policyName: NAME, validationActions: [Deny]}
`

// TestHoleDeadlineDeletionNotRetried: the JobSet cannot be deleted at the deadline. Later it can, without an event.
func TestHoleDeadlineDeletionNotRetried(t *testing.T) {
	t.Parallel()
	e := lifeEnv(t)
	ns := e.namespace(t)
	probe := &jobsetv1alpha2.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "probe"}}
	probe.Spec.Suspend = new(true)
	e.create(t, probe)
	if err := e.cluster.Apply(t.Context(), strings.ReplaceAll(noDeletion, "NAME", ns)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "policy", func(g gomega.Gomega) {
		g.Expect(e.Delete(t.Context(), probe, client.DryRunAll)).To(gomega.MatchError(gomega.ContainSubstring("stay for now")))
	})
	// This is long enough for the JobSet to be created before the deadline on a busy machine.
	j := e.createJob(t, ns, "late", deadline(10*time.Second), pods(clusters.RunForAnnotation, clusters.RunForever))
	js := e.awaitJobSet(t, j)
	if end := endOf(&e.awaitEnd(t, j, trainer.TrainJobFailed).Status); end.Reason != trainer.TrainJobDeadlineExceededReason {
		t.Fatalf("it has failed with %s: %s", end.Reason, end.Message)
	}
	eventually(t, "refused deletion", func(g gomega.Gomega) {
		requests, _ := e.requests.of(ns)
		refused := 0
		for _, r := range requests {
			if r.method == http.MethodDelete && r.resource == "jobsets" && r.code >= http.StatusBadRequest {
				refused++
			}
		}
		g.Expect(refused).To(gomega.BeNumerically(">", 0))
	})
	over := e.get(t, j)
	if _, err := e.cluster.Kubectl(t.Context(), "delete", "validatingadmissionpolicybinding", ns); err != nil {
		t.Fatal(err)
	}
	e.awaitGone(t, js)
	if got := e.get(t, j); got.ResourceVersion != over.ResourceVersion {
		t.Errorf("the TrainJob was written after its end (-before +after):\n%s", cmp.Diff(over, got))
	}
}

// TestHoleNamesOf63Characters: the CRD allows names of 63 characters, JobSet does not.
func TestHoleNamesOf63Characters(t *testing.T) {
	t.Parallel()
	e := lifeEnv(t)
	ns := e.namespace(t)
	h := e.record(t, ns)
	j := e.createJob(t, ns, "long"+strings.Repeat("g", 59))
	e.awaitNote(t, j, ReasonApplyFailed, "apply JobSet of TrainJob", "JobSet name is too long", "will exceed 63 characters")
	e.expectJobSets(t, h, j, 0)
	if diff := cmp.Diff(trainer.TrainJobStatus{}, e.get(t, j).Status); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

// TestHoleNoTTL: a TrainJob stays for ever, unless its annotation has a TTL.
func TestHoleNoTTL(t *testing.T) {
	e := lifeEnv(t)
	t.Run("Due", func(t *testing.T) {
		ns := e.namespace(t)
		h := e.record(t, ns)
		j := e.createJob(t, ns, "short", ttl("1"), clusterRuntime(brittleRuntime), pods(clusters.RunForAnnotation, "50ms"))
		e.awaitEnd(t, j, trainer.TrainJobComplete)
		js := e.awaitJobSet(t, j)
		e.awaitGone(t, js)
		e.awaitGone(t, j)
		e.expectJobSets(t, h, j, 1)
	})
	t.Run("DueWhileControllerIsDown", func(t *testing.T) {
		ns := e.namespace(t)
		h := e.record(t, ns)
		j := e.createJob(t, ns, "short", ttl("3"), clusterRuntime(brittleRuntime), pods(clusters.RunForAnnotation, "50ms"))
		ended := e.awaitEnd(t, j, trainer.TrainJobComplete)
		start := e.stopControllerFor(t)
		if err := e.Delete(t.Context(), e.awaitJobSet(t, j)); err != nil { // Its events would wake the TrainJob.
			t.Fatal(err)
		}
		due, _ := expiryOf(ended)
		eventually(t, "TTL to be over", func(g gomega.Gomega) { g.Expect(time.Now()).To(gomega.BeTemporally(">", due)) })
		e.get(t, j)
		start()
		e.awaitGone(t, j)
		e.expectJobSets(t, h, j, 1)
	})
}

// TestHoleRestartsNotShown: a JobSet restarts, and fails when it may not restart any more.
func TestHoleRestartsNotShown(t *testing.T) {
	t.Parallel()
	e := lifeEnv(t)
	ns := e.namespace(t)
	j := e.createJob(t, ns, "unlucky", clusterRuntime(restartsRuntime),
		pods(clusters.RunForAnnotation, "200ms", clusters.FailAnnotation, "out of luck"))
	end := endOf(&e.awaitEnd(t, j, trainer.TrainJobFailed).Status)
	if end.Reason != "ReachedMaxRestarts" {
		t.Errorf("it has failed with %s: %s", end.Reason, end.Message)
	}
	if js := e.awaitJobSet(t, j); restartsOf(js) != 2 {
		t.Errorf("the JobSet has restarted %d times, want 2", restartsOf(js))
	}
	e.awaitNote(t, j, ReasonRestarted, "restart ")
	e.awaitNote(t, j, ReasonFailed, end.Message, "out of luck", "exit code 1")
}

// frailty returns a change that lets pods run on frail nodes only.
func frailty(j *trainer.TrainJob) {
	patchRuntime(&trainer.PodTemplatePatch{
		Metadata: annotated(clusters.RunForAnnotation, clusters.RunForever),
		Spec: &trainer.PodSpecPatch{
			NodeSelector: map[string]string{poolLabel: "frail"},
			Tolerations:  []corev1.Toleration{{Key: poolLabel, Operator: corev1.TolerationOpExists}},
		},
	})(j)
}

func (e *lifeEnvironment) addFrailNode(t *testing.T) {
	t.Helper()
	err := e.cluster.AddNodes(t.Context(), clusters.NodeShape{
		Count: 1, NamePrefix: "frail", Labels: map[string]string{poolLabel: "frail"},
		Taints: []corev1.Taint{{Key: poolLabel, Value: "frail", Effect: corev1.TaintEffectNoSchedule}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestHoleNodeFailure: two jobs lose their pods with the node. A job that may restart completes on another node. The
// other job fails, and says why. The pod garbage collector waits up to a minute before it treats a node as gone.
func TestHoleNodeFailure(t *testing.T) {
	t.Parallel()
	e := lifeEnv(t)
	ns := e.namespace(t)
	e.addFrailNode(t)
	one := func(j *trainer.TrainJob) { j.Spec.Trainer.NumNodes = new(int32(1)) }
	restarts := e.createJob(t, ns, "restarts", clusterRuntime(restartsRuntime), frailty, one)
	fails := e.createJob(t, ns, "fails", clusterRuntime(brittleRuntime), frailty, one)
	lost := e.awaitRunning(t, restarts, 1)[0]
	e.awaitRunning(t, fails, 1)
	e.addFrailNode(t)
	if err := e.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: lost.Spec.NodeName}}); err != nil {
		t.Fatal(err)
	}
	gomega.NewWithT(t).Eventually(func() bool { return hasEnded(&e.get(t, fails).Status) }, 2*waitLimit, time.Second).Should(gomega.BeTrue())
	e.awaitEnd(t, fails, trainer.TrainJobFailed)
	e.awaitNote(t, fails, ReasonFailed, "the node does not exist any more", lost.Spec.NodeName)

	e.awaitNote(t, restarts, ReasonRestarted, "restart 1")
	var again corev1.Pod
	eventually(t, "another pod", func(g gomega.Gomega) {
		again = e.awaitRunning(t, restarts, 1)[0]
		g.Expect(again.UID).NotTo(gomega.Equal(lost.UID))
	})
	if again.Spec.NodeName == lost.Spec.NodeName {
		t.Errorf("the new pod runs on the lost node %s", again.Spec.NodeName)
	}
	again.Status.Phase = corev1.PodSucceeded // A pod that is to run for ever does not succeed by itself.
	if err := e.Status().Update(t.Context(), &again); err != nil {
		t.Fatal(err)
	}
	e.awaitEnd(t, restarts, trainer.TrainJobComplete)
}
