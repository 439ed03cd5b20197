// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/test/check"
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

// TestHolePodsOfTwoJobSets: background deletion removes the JobSet before its pods, which take some time to end.
func TestHolePodsOfTwoJobSets(t *testing.T) {
	t.Parallel()
	e := lifeEnv(t)
	ns := e.namespace(t)
	h := e.record(t, ns)
	j := e.createJob(t, ns, "rebuilt", pods(clusters.RunForAnnotation, clusters.RunForever, clusters.TerminateForAnnotation, "1s"))
	e.awaitRunning(t, j, 2)
	js := e.awaitJobSet(t, j)
	check.Must(t, e.Delete(t.Context(), js, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	e.awaitGone(t, js)
	e.awaitJobSet(t, j)
	e.awaitRunning(t, j, 2)
	h.check(t, e, ns)
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
	check.Must(t, e.cluster.Apply(t.Context(), strings.ReplaceAll(noDeletion, "NAME", ns)))
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
	check.Equal(t, over.ResourceVersion, e.get(t, j).ResourceVersion,
		"the TrainJob was written after its end (-before +after)")
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
	check.Diff(t, trainer.TrainJobStatus{}, e.get(t, j).Status, "status")
}

// TestHoleNoTTL: the TTL is over while the controller is down. Nothing but its start wakes the TrainJob.
func TestHoleNoTTL(t *testing.T) {
	e := lifeEnv(t)
	ns := e.namespace(t)
	h := e.record(t, ns)
	j := e.createJob(t, ns, "short", ttl("3"), clusterRuntime(brittleRuntime), pods(clusters.RunForAnnotation, "50ms"))
	ended := e.awaitEnd(t, j, trainer.TrainJobComplete)
	start := e.stopControllerFor(t)
	check.Must(t, e.Delete(t.Context(), e.awaitJobSet(t, j))) // Its events would wake the TrainJob.
	due, _ := expiryOf(ended)
	eventually(t, "TTL to be over", func(g gomega.Gomega) { g.Expect(time.Now()).To(gomega.BeTemporally(">", due)) })
	e.get(t, j)
	start()
	e.awaitGone(t, j)
	e.expectJobSets(t, h, j, 1)
}

// TestHoleRestartsNotShown: a JobSet restarts, and fails when it may not restart any more.
func TestHoleRestartsNotShown(t *testing.T) {
	t.Parallel()
	e := lifeEnv(t)
	ns := e.namespace(t)
	j := e.createJob(t, ns, "unlucky", clusterRuntime(restartsRuntime),
		pods(clusters.RunForAnnotation, "200ms", clusters.FailAnnotation, "out of luck"))
	end := endOf(&e.awaitEnd(t, j, trainer.TrainJobFailed).Status)
	check.Equal(t, "ReachedMaxRestarts", end.Reason, "it has failed with: %s", end.Message)
	check.Equal(t, 2, restartsOf(e.awaitJobSet(t, j)), "how often the JobSet has restarted")
	e.awaitNote(t, j, ReasonRestarted, "restart ")
	e.awaitNote(t, j, ReasonFailed, end.Message, "out of luck", "exit code 1")
}

// The tests in this file are about one fault of the Kubeflow Trainer: it accepts patches that never take effect.

// placed returns a change that patches the spec of the pods. The pods run for ever.
func placed(spec trainer.PodSpecPatch) func(*trainer.TrainJob) {
	return patchRuntime(&trainer.PodTemplatePatch{Metadata: annotated(clusters.RunForAnnotation, clusters.RunForever), Spec: &spec})
}

// suspendAndAwait suspends a running job and waits until it is suspended.
func (e *lifeEnvironment) suspendAndAwait(t *testing.T, j *trainer.TrainJob) {
	t.Helper()
	update(t, e.environment, j, suspend)
	eventually(t, "Jobs to be suspended", func(g gomega.Gomega) {
		var jobs batchv1.JobList
		g.Expect(e.List(t.Context(), &jobs, client.InNamespace(j.Namespace), client.MatchingLabels{jobsetv1alpha2.JobSetNameKey: j.Name})).
			To(gomega.Succeed())
		for _, job := range jobs.Items {
			g.Expect(ptr.Deref(job.Spec.Suspend, false)).To(gomega.BeTrue())
		}
		g.Expect(e.podsOf(t, j)).To(gomega.BeEmpty())
	})
}

func resume(j *trainer.TrainJob) { j.Spec.Suspend = new(false) }

// expectPool checks in which pool the two pods of a job run.
func (e *lifeEnvironment) expectPool(t *testing.T, j *trainer.TrainJob, pool string) {
	t.Helper()
	for _, pod := range e.awaitRunning(t, j, 2) {
		var node corev1.Node
		check.Must(t, e.Get(t.Context(), client.ObjectKey{Name: pod.Spec.NodeName}, &node))
		check.Equal(t, pool, node.Labels[poolLabel], "%s runs in pool", pod.Name)
	}
}

func TestHolePatchStuckBeforeStart(t *testing.T) {
	t.Parallel()
	e := lifeEnv(t)
	ns := e.namespace(t)
	j := e.createJob(t, ns, "patched", suspend, placed(trainer.PodSpecPatch{Affinity: poolAffinity("a")}))
	first := e.awaitJobSet(t, j)
	update(t, e.environment, j, placed(trainer.PodSpecPatch{Affinity: poolAffinity("b")}))
	e.awaitNote(t, j, ReasonJobSetRebuilt, "had not started yet")
	e.awaitGone(t, first)
	second := e.awaitJobSet(t, j)
	// One request patches and resumes.
	update(t, e.environment, j, func(j *trainer.TrainJob) {
		placed(trainer.PodSpecPatch{Affinity: poolAffinity("a")})(j)
		resume(j)
	})
	e.awaitGone(t, second)
	e.expectPool(t, j, "a")
}

func TestHolePatchStuckAfterStart(t *testing.T) {
	t.Parallel()
	e := lifeEnv(t)
	ns := e.namespace(t)
	j := e.createJob(t, ns, "patched", placed(trainer.PodSpecPatch{NodeSelector: map[string]string{poolLabel: "a"}}))
	e.expectPool(t, j, "a")
	js := e.awaitJobSet(t, j)
	e.suspendAndAwait(t, j)
	update(t, e.environment, j, placed(trainer.PodSpecPatch{Affinity: poolAffinity("b")}))
	e.awaitNote(t, j, ReasonApplyFailed, "the JobSet has run already", "take back the change", "spec.replicatedJobs")
	update(t, e.environment, j, func(j *trainer.TrainJob) {
		placed(trainer.PodSpecPatch{NodeSelector: map[string]string{poolLabel: "b"}})(j)
		resume(j)
	})
	e.expectPool(t, j, "b")
	check.Equal(t, js.UID, e.awaitJobSet(t, j).UID, "a JobSet that had run was made anew")
}

// TestHolePatchNotTakenBack: when a JobSet is resumed, its controller only adds node selectors, labels, annotations,
// tolerations and scheduling gates to existing Jobs. So what a removed patch had added would stay on the pods, and a
// scheduling gate would keep them waiting for ever.
func TestHolePatchNotTakenBack(t *testing.T) {
	cases := map[string]struct {
		reason string
		patch  trainer.PodSpecPatch
	}{
		"NodeSelector":    {reason: "No node has this label.", patch: trainer.PodSpecPatch{NodeSelector: map[string]string{poolLabel: "none"}}},
		"SchedulingGates": {reason: "This is what gates are for.", patch: trainer.PodSpecPatch{SchedulingGates: []corev1.PodSchedulingGate{{Name: "example.com/wait"}}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := lifeEnv(t)
			ns := e.namespace(t)
			j := e.createJob(t, ns, "gated", suspend, placed(tc.patch))
			eventually(t, "Jobs", func(g gomega.Gomega) {
				var jobs batchv1.JobList
				g.Expect(e.List(t.Context(), &jobs, client.InNamespace(ns))).To(gomega.Succeed())
				g.Expect(jobs.Items).NotTo(gomega.BeEmpty())
			})
			update(t, e.environment, j, func(j *trainer.TrainJob) {
				placed(trainer.PodSpecPatch{})(j)
				resume(j)
			})
			e.awaitRunning(t, j, 2)
		})
	}
}
