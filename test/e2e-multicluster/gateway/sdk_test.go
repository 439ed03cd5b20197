// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/yard"
)

// permitRuntimes applies config/users-runtimes. Tests that run beside each other may all do that.
func permitRuntimes(t *testing.T) {
	t.Helper()
	check.Must(t, y.Yard.Hub.ApplyKustomization(t.Context(), "../../../config/users-runtimes"))
}

// newSDK returns the SDK of a new user who may edit a namespace, and create and delete TrainJobs there. That right is the
// admin's to give: the role edit does not have it.
func newSDK(t *testing.T, namespace, name string) sdk {
	t.Helper()
	permitRuntimes(t)
	u, err := y.NewUser(t.Context(), namespace, name, "edit")
	check.Must(t, err)
	create(t, y.Hub, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"trainer.kubeflow.org"}, Resources: []string{"trainjobs"}, Verbs: []string{"create", "delete"}}},
	})
	create(t, y.Hub, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-jobs"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
	})
	s := sdk{u, namespace}
	eventually(t, func() bool { // The API server's authorizer learns of the rights a little later.
		_, err := s.listRuntimes(t.Context())
		may := u.Kubectl(t.Context(), "auth", "can-i", "create", "trainjobs.trainer.kubeflow.org")
		return err == nil && may.Code == 0
	})
	return s
}

// TestSDKRuntimes: TrainerClient lists runtimes where config/users-runtimes is applied, and where it is not, the hub's 403
// is what the SDK raises.
func TestSDKRuntimes(t *testing.T) {
	s := sdk{editor, team}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "trainyard-runtimes-reader"}}
	check.Must(t, client.IgnoreNotFound(y.Hub.Delete(t.Context(), binding)))
	var refused *codeError
	eventually(t, func() bool { _, err := s.listRuntimes(t.Context()); return errors.As(err, &refused) })
	check.Equal(t, http.StatusForbidden, refused.code, "code: %s", refused.what)
	contains(t, refused.what, `clustertrainingruntimes.trainer.kubeflow.org is forbidden: User \"system:serviceaccount:vision:ada\" cannot list resource`)
	_, err := s.getRuntime(t.Context(), yard.RuntimeName)
	if !errors.As(err, &refused) || refused.code != http.StatusForbidden {
		t.Errorf("get_runtime: %v", err)
	}

	permitRuntimes(t)
	var found []sdkRuntime
	eventually(t, func() bool { found, err = s.listRuntimes(t.Context()); return err == nil })
	for _, want := range []string{yard.RuntimeName, yard.FailFastRuntimeName} {
		if !slices.ContainsFunc(found, func(r sdkRuntime) bool { return r.name == want }) {
			t.Errorf("list_runtimes has no %s: %v", want, found)
		}
	}
	one, err := s.getRuntime(t.Context(), yard.RuntimeName)
	check.Must(t, err)
	check.Equal(t, yard.RuntimeName, one.name, "get_runtime")
	if _, err := s.getRuntime(t.Context(), "none"); !isNotFound(err) {
		t.Errorf("get_runtime of one that is not there: %v", err)
	}

	// A runtime of the namespace comes before the cluster's of the same name.
	var ofCluster trainer.ClusterTrainingRuntime
	check.Must(t, y.Hub.Get(t.Context(), client.ObjectKey{Name: yard.RuntimeName}, &ofCluster))
	ours := &trainer.TrainingRuntime{
		ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: yard.RuntimeName, Labels: ofCluster.Labels}, Spec: *ofCluster.Spec.DeepCopy(),
	}
	nodes := int32(7)
	ours.Spec.MLPolicy.NumNodes = &nodes
	create(t, y.Hub, ours)
	one, err = s.getRuntime(t.Context(), yard.RuntimeName)
	check.Must(t, err)
	check.Equal(t, nodes, one.nodes, "nodes of the namespace's runtime")
}

// TestSDKInit: TrainerClient() reads the version of the control plane where the hub lets it, and else gets an answer at
// once that makes it warn.
func TestSDKInit(t *testing.T) {
	s := sdk{editor, team}
	var refused *codeError
	if _, err := s.verifyBackend(t.Context()); !errors.As(err, &refused) || refused.code != http.StatusForbidden {
		t.Errorf("without the right to: %v", err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kubeflow-system"}} // The agent's.
	check.Must(t, client.IgnoreAlreadyExists(y.Hub.Create(t.Context(), namespace)))
	meta := metav1.ObjectMeta{Namespace: namespace.Name, Name: "kubeflow-trainer-public"}
	// As Kubeflow Trainer's manifests have it.
	create(t, y.Hub, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{meta.Name}, Verbs: []string{"get"},
	}}})
	create(t, y.Hub, &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "system:authenticated"}},
	})
	eventually(t, func() bool { _, err := s.verifyBackend(t.Context()); return isNotFound(err) })
	create(t, y.Hub, &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"kubeflow_trainer_version": "v2.3.0"}})
	version, err := s.verifyBackend(t.Context())
	check.Must(t, err)
	check.Equal(t, "v2.3.0", version, "version")
}

// TestSDKTrain: a job that the SDK creates through the gateway is on the hub as the SDK has sent it. Where nobody has asked
// Trainyard to dispatch such jobs, the hub runs it, and the SDK sees the hub's own pods.
func TestSDKTrain(t *testing.T) {
	t.Parallel()
	s := newSDK(t, team, "tina")
	const name = "trained-on-the-hub"
	annotations := map[string]string{clusters.RunForAnnotation: clusters.RunForever, clusters.LogAnnotation: "on the hub"}
	answered, err := s.train(t.Context(), name, yard.RuntimeName, 1, annotations)
	check.Must(t, err)
	job := &trainer.TrainJob{}
	check.Must(t, y.Hub.Get(t.Context(), client.ObjectKey{Namespace: team, Name: name}, job))
	t.Cleanup(func() { check.Must(t, client.IgnoreNotFound(y.Hub.Delete(context.Background(), job))) })
	check.Equal(t, job.UID, answered.UID, "UID of the answer")
	check.Equal(t, "trainer.kubeflow.org/trainjob-controller", *job.Spec.ManagedBy, "managedBy, by the default of the CRD")
	check.Equal(t, yard.RuntimeName, job.Spec.RuntimeRef.Name, "runtime")
	check.Equal(t, "ClusterTrainingRuntime", *job.Spec.RuntimeRef.Kind, "kind of the runtime, by the default of the CRD")
	check.Equal(t, "trainer.kubeflow.org/kubeflow-sdk", job.Spec.RuntimePatches[0].Manager, "manager of the patch")
	check.Equal(t, 0, len(job.Annotations), "annotations that the SDK has not sent")
	y.Eventually(t, func(g gomega.Gomega) {
		var lines []string
		g.Expect(s.getJobLogs(t.Context(), name, "node-0", false, func(line string) { lines = append(lines, line) })).To(gomega.Succeed())
		g.Expect(lines).To(gomega.Equal([]string{"on the hub"}))
	})
	var d v1alpha1.Dispatch
	if err := y.Hub.Get(t.Context(), client.ObjectKeyFromObject(job), &d); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("the job has a Dispatch: %v, %v", d.Spec, err)
	}
}

// TestSDK is a notebook: TrainerClient trains in a namespace whose jobs Trainyard dispatches, and sees its job run, print
// and end on a worker.
func TestSDK(t *testing.T) {
	t.Parallel()
	const namespace, name = "notebooks", "by-the-sdk"
	check.Must(t, y.Hub.Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{v1alpha1.LabelDispatch: "true"}},
	}))
	s := newSDK(t, namespace, "nora")
	_, err := s.train(t.Context(), name, yard.RuntimeName, 2, map[string]string{
		clusters.RunForAnnotation: clusters.RunForever, clusters.LogAnnotation: "step 1",
	})
	check.Must(t, err)
	job := &trainer.TrainJob{}
	check.Must(t, y.Hub.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, job))
	t.Cleanup(func() { check.Must(t, client.IgnoreNotFound(y.Hub.Delete(context.Background(), job))) })
	at := placeOf(t, job)
	pods := runs(t, at, job)

	// wait_for_job_status polls get_job, which never fails meanwhile.
	await := func(status string) (read sdkJob) {
		t.Helper()
		eventually(t, func() bool {
			var err error
			read, err = s.getJob(t.Context(), name)
			check.Must(t, err)
			return read.status == status
		})
		return read
	}
	read := await("Running")
	check.Equal(t, int32(2), read.nodes, "nodes of the job")
	names := map[string]string{}
	for _, step := range read.steps {
		names[step.name] = step.pod
		check.Equal(t, corev1.PodRunning, step.phase, "phase of %s", step.name)
		if !slices.Contains(pods, step.pod) || !strings.HasPrefix(step.pod, name+"-node-0-"+strings.TrimPrefix(step.name, "node-")+"-") {
			t.Errorf("step %s is pod %s, of the worker's pods %v", step.name, step.pod, pods)
		}
	}
	if len(read.steps) != 2 || names["node-0"] == "" || names["node-1"] == "" {
		t.Errorf("the steps are %v", read.steps)
	}
	all, err := s.listJobs(t.Context())
	check.Must(t, err)
	if len(all) != 1 || all[0].name != name || len(all[0].steps) != 2 {
		t.Errorf("list_jobs: %v", all)
	}

	// get_job_logs, as it is and followed to the end.
	lines := make(chan string, 100)
	check.Must(t, s.getJobLogs(t.Context(), name, "node-1", false, func(line string) { lines <- line }))
	check.Equal(t, "step 1", <-lines, "get_job_logs")
	check.Must(t, s.getJobLogs(t.Context(), name, "node-7", false, func(line string) { t.Errorf("a step that is not there prints %s", line) }))
	ended := make(chan error, 1)
	go func() { ended <- s.getJobLogs(t.Context(), name, "node-0", true, func(line string) { lines <- line }) }()
	check.Equal(t, "step 1", next(t, lines), "first line that is followed")
	prints(t, y.Workers[at], namespace, names["node-0"], "step 1\nstep 2")
	check.Equal(t, "step 2", next(t, lines), "line that is printed later")

	y.Eventually(t, func(g gomega.Gomega) {
		events, err := s.getJobEvents(t.Context(), name)
		g.Expect(err).NotTo(gomega.HaveOccurred())
		// Ours and the scheduler's have no first time of their own.
		g.Expect(events).To(gomega.ContainElements(
			sdkEvent{"TrainJob", name, "Placed"}, sdkEvent{"Pod", names["node-0"], "Scheduled"}, sdkEvent{"Pod", names["node-1"], "Scheduled"},
		))
	})

	for _, pod := range pods {
		ends(t, y.Workers[at], namespace, pod)
	}
	select {
	case err := <-ended:
		check.Must(t, err)
	case <-time.After(y.Timeout):
		t.Fatal("the followed log does not end with its container")
	}
	for _, step := range await("Complete").steps {
		check.Equal(t, corev1.PodSucceeded, step.phase, "phase of %s", step.name)
	}
	check.Must(t, s.deleteJob(t.Context(), name))
	eventually(t, func() bool { _, err := s.getJob(t.Context(), name); return isNotFound(err) })
}

// next returns the next line that comes.
func next(t *testing.T, lines <-chan string) string {
	t.Helper()
	select {
	case line := <-lines:
		return line
	case <-time.After(y.Timeout):
		t.Fatal("no line comes")
		return ""
	}
}

// prints lets a pod of a cluster have printed something.
func prints(t *testing.T, at client.Client, namespace, name, log string) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, clusters.LogAnnotation, log)
	check.Must(t, at.Patch(t.Context(), pod, client.RawPatch("application/merge-patch+json", []byte(patch))))
}

// ends lets a pod of a cluster succeed now, see test/clusters/stages.
func ends(t *testing.T, at client.Client, namespace, name string) {
	t.Helper()
	y.Eventually(t, func(g gomega.Gomega) {
		var pod corev1.Pod
		g.Expect(at.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &pod)).To(gomega.Succeed())
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type: "trainyard.dev/Ends", Status: corev1.ConditionFalse, Message: time.Now().Format(time.RFC3339),
		})
		g.Expect(at.Status().Update(t.Context(), &pod)).To(gomega.Succeed())
	})
}

// TestSDKJobMoves: a client that polls while a job moves never fails, and never has pods of two attempts: the SDK would
// show each step twice.
func TestSDKJobMoves(t *testing.T) {
	t.Parallel()
	s := newSDK(t, team, "mona")
	job := submit(t, yard.Job{Name: "moves-polled", Nodes: 2}, "", "")
	first := runs(t, placeOf(t, job), job)
	d := y.DispatchOf(gomega.NewWithT(t), job)
	poll := func() (now sdkJob) {
		t.Helper()
		now, err := s.getJob(t.Context(), job.Name)
		check.Must(t, err)
		seen, old := map[string]bool{}, 0
		for _, step := range now.steps {
			if seen[step.name] {
				t.Errorf("step %s is there twice: %v", step.name, now.steps)
			}
			if seen[step.name] = true; slices.Contains(first, step.pod) {
				old++
			}
		}
		if old > 0 && old < len(now.steps) {
			t.Errorf("the steps are of two attempts: %v", now.steps)
		}
		return now
	}
	check.Equal(t, 2, len(poll().steps), "steps before")
	check.Must(t, y.Hub.Delete(t.Context(), d)) // This evicts the job.
	eventually(t, func() bool {
		now := poll()
		return len(now.steps) == 2 && !slices.ContainsFunc(now.steps, func(step sdkStep) bool {
			return slices.Contains(first, step.pod) || step.phase != corev1.PodRunning
		})
	})
	if now := y.DispatchOf(gomega.NewWithT(t), job); now.UID == d.UID {
		t.Error("the job has not moved")
	}
}
