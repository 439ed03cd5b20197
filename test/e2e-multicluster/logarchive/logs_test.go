// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package logarchive

import (
	"strings"
	"syscall"
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/yard"
)

// TestEnded: the logs of a job are there when its copy is gone, and when the job is gone, for who may read them.
func TestEnded(t *testing.T) {
	t.Parallel()
	job := submit(t, yard.Job{Name: "ended", Nodes: 2, RunFor: "2s"}, east, map[string]string{clusters.LogAnnotation: "one\ntwo\nthree"})
	pods := runs(t, east, job)
	pod := pods[0].Name
	gone(t, east, job)
	read := func() {
		t.Helper()
		for name, tc := range map[string]struct {
			args []string
			want string
		}{
			"Whole":     {args: []string{"logs", pod}, want: "one\ntwo\nthree\n"},
			"Second":    {args: []string{"logs", pods[1].Name}, want: "one\ntwo\nthree\n"},
			"Tail":      {args: []string{"logs", pod, "--tail=1"}, want: "three\n"},
			"Limit":     {args: []string{"logs", pod, "--limit-bytes=5"}, want: "one\nt"},
			"Container": {args: []string{"logs", pod, "-c", "node"}, want: "one\ntwo\nthree\n"},
			"Follow":    {args: []string{"logs", "-f", pod}, want: "one\ntwo\nthree\n"},
		} {
			r := viewer.Kubectl(t.Context(), tc.args...)
			check.Equal(t, tc.want, r.Out, "%s: %s", name, r)
			contains(t, r.Err, `from the log archive: attempt 1 of TrainJob ended on worker "east", Complete`, "the whole log")
		}
	}
	read()
	for name, tc := range map[string]struct {
		by   *yard.User
		args []string
		want string
	}{
		"Stranger":  {stranger, []string{"logs", pod, "-n", team}, "forbidden"},
		"Elsewhere": {stranger, []string{"logs", pod}, "not found"},
		"Get":       {viewer, []string{"get", "pod", pod}, "not found"},
		"Unknown":   {viewer, []string{"logs", pod, "-c", "nobody"}, "nobody"},
		"Previous":  {viewer, []string{"logs", pod, "-p"}, "not in the log archive"},
		"NoSuchPod": {viewer, []string{"logs", "ended-node-0-0-nobody"}, "the logs of these pods are kept: "},
		"ByJob":     {viewer, []string{"logs", "ended"}, pod},
	} {
		r := tc.by.Kubectl(t.Context(), tc.args...)
		check.Equal(t, true, r.Code != 0, "%s: %s", name, r)
		contains(t, r.Err, tc.want)
	}
	check.Must(t, y.Hub.Delete(t.Context(), job))
	y.Eventually(t, func(g gomega.Gomega) {
		err := y.Hub.Get(t.Context(), client.ObjectKeyFromObject(job), job.DeepCopy())
		g.Expect(apierrors.IsNotFound(err)).To(gomega.BeTrue())
	})
	read()
}

// TestEndedByThePlugin: the plugin and kubectl find the pods whose logs are kept by the job's name.
func TestEndedByThePlugin(t *testing.T) {
	t.Parallel()
	plugin := func(args ...string) yard.Result {
		return yard.ResultOf(y.PluginCommand(t.Context(), append([]string{"--kubeconfig", viewer.Kubeconfig}, args...)...))
	}
	job := submit(t, yard.Job{Name: "kept", Nodes: 2, RunFor: "2s"}, east, map[string]string{clusters.LogAnnotation: "one\ntwo"})
	pods := runs(t, east, job)
	gone(t, east, job)
	var first yard.Result
	y.Eventually(t, func(g gomega.Gomega) { // The hub's status comes after the pods have gone.
		first = plugin("logs", "kept")
		g.Expect(first.Code).To(gomega.Equal(0), "%s", first)
	})
	check.Equal(t, "one\ntwo\n", first.Out, "the first node: %s", first)
	contains(t, first.Err, `from the log archive: attempt 1 of TrainJob kept on worker "east", Complete`)
	for name, tc := range map[string]struct {
		args []string
		want yard.Result
	}{
		"AllNodes": {args: []string{"logs", "kept", "--all-nodes", "--tail", "1"}, want: yard.Result{Out: "[trainer-0] two\n[trainer-1] two\n", Err: "from the log archive"}},
		"Follow":   {args: []string{"logs", "kept", "-f"}, want: yard.Result{Out: "one\ntwo\n"}},
		"Previous": {args: []string{"logs", "kept", "-p"}, want: yard.Result{Code: 1, Err: "not in the log archive"}},
		"Node":     {args: []string{"logs", "kept", "--node", "2"}, want: yard.Result{Code: 1, Err: "the pod of step trainer, node 2, is gone"}},
		"Pods":     {args: []string{"pods", "kept"}, want: yard.Result{Err: `TrainJob "kept" is Complete, and its pods are gone; the log archive has their logs: kubectl trainyard logs kept`}},
		"Exec":     {args: []string{"exec", "kept", "--", "ls"}, want: yard.Result{Code: 1, Err: "its pods are gone"}},
	} {
		r := plugin(tc.args...)
		check.Equal(t, tc.want.Code, r.Code, "%s: %s", name, r)
		check.Equal(t, tc.want.Out, r.Out, "%s: %s", name, r)
		contains(t, r.Err, tc.want.Err)
	}
	const selector = "jobset.sigs.k8s.io/jobset-name=kept,trainyard.dev/log-archived"
	contains(t, viewer.Kubectl(t.Context(), "get", "pods", "-l", selector).Out, pods[0].Name, pods[1].Name)
	check.Equal(t, "", viewer.Kubectl(t.Context(), "get", "pods", "-l", "jobset.sigs.k8s.io/jobset-name=kept").Out, "pods that are there")
}

// TestLongLog: of a long log the end is kept, in whole lines, and a warning says that the start is not.
func TestLongLog(t *testing.T) {
	t.Parallel()
	job := submit(t, yard.Job{Name: "long", RunFor: "2s"}, east, map[string]string{
		clusters.LogSizeAnnotation: "3Mi", clusters.LogAnnotation: "the end",
	})
	pod := runs(t, east, job)[0].Name
	gone(t, east, job)
	r := viewer.Kubectl(t.Context(), "logs", pod)
	contains(t, r.Err, "what the container printed before is cut")
	if !strings.HasSuffix(r.Out, "\nthe end\n") || len(r.Out) > size || len(r.Out) < size*9/10 {
		t.Errorf("there are %d bytes, which end so: %q", len(r.Out), r.Out[max(0, len(r.Out)-100):])
	}
	for line := range strings.Lines(r.Out) {
		if len(line) != 128 && line != "the end\n" {
			t.Errorf("a line is cut: %q", line)
		}
	}
}

// TestFails: the log of a job that fails is there, with what it printed last.
func TestFails(t *testing.T) {
	t.Parallel()
	job := submit(t, yard.Job{Name: "fails", RunFor: "2s", Fail: "out of memory"}, east, map[string]string{clusters.LogAnnotation: "step 1\nkilled"})
	pod := runs(t, east, job)[0].Name
	gone(t, east, job)
	r := viewer.Kubectl(t.Context(), "logs", pod)
	check.Equal(t, "step 1\nkilled\n", r.Out, "log: %s", r)
	contains(t, r.Err, "Failed")
}

// TestEvicted: a job that is stopped leaves the logs of its attempt, with what it printed while it was stopped.
func TestEvicted(t *testing.T) {
	t.Parallel()
	job := submit(t, yard.Job{Name: "evicted"}, east, map[string]string{
		clusters.LogAnnotation: "begun", clusters.TerminateForAnnotation: "6s",
	})
	pod := runs(t, east, job)[0]
	y.Eventually(t, func(g gomega.Gomega) {
		key := client.ObjectKeyFromObject(job)
		g.Expect(y.Hub.Get(t.Context(), key, job)).To(gomega.Succeed())
		job.Spec.Suspend = ptr.To(true)
		g.Expect(y.Hub.Update(t.Context(), job)).To(gomega.Succeed())
	})
	y.Eventually(t, func(g gomega.Gomega) {
		now := &corev1.Pod{}
		g.Expect(y.Workers[east].Get(t.Context(), client.ObjectKeyFromObject(&pod), now)).To(gomega.Succeed())
		g.Expect(now.DeletionTimestamp).NotTo(gomega.BeNil())
		now.Annotations[clusters.LogAnnotation] = "begun\nsaved a checkpoint"
		g.Expect(y.Workers[east].Update(t.Context(), now)).To(gomega.Succeed())
	})
	gone(t, east, job)
	var r yard.Result
	y.Eventually(t, func(g gomega.Gomega) {
		r = viewer.Kubectl(t.Context(), "logs", pod.Name)
		g.Expect(r.Code != 0).To(gomega.BeFalse())
	})
	check.Equal(t, "begun\nsaved a checkpoint\n", r.Out, "log: %s", r)
	contains(t, r.Err, "attempt 1 of TrainJob evicted", "Suspended")
}

// TestFaultWorkerLost: logs that were lost with their worker are said to be lost, and the job's next attempt is kept.
func TestFaultWorkerLost(t *testing.T) {
	job := submit(t, yard.Job{Name: "lost"}, "", map[string]string{clusters.LogAnnotation: "begun"})
	kept := submit(t, yard.Job{Name: "kept", RunFor: "2s"}, west, map[string]string{clusters.LogAnnotation: "ended in time"})
	at := placeOf(t, job)
	pod, before := runs(t, at, job)[0].Name, runs(t, west, kept)[0].Name
	gone(t, west, kept)
	server := y.Yard.Workers[at].Process("kube-apiserver")
	check.Must(t, server.Signal(syscall.SIGSTOP))
	defer func() { check.Must(t, server.Signal(syscall.SIGCONT)) }()

	y.Eventually(t, func(g gomega.Gomega) { g.Expect(y.DispatchOf(g, job).Spec.Attempt).To(gomega.Equal(int32(2))) })
	check.Equal(t, v1alpha1.OutcomeWorkerLost, y.DispatchOf(gomega.NewWithT(t), job).Status.History[0].Outcome, "outcome")
	r := viewer.Kubectl(t.Context(), "logs", pod)
	check.Equal(t, true, r.Code != 0, "the log of the lost pod: %s", r)
	contains(t, r.Err, "attempt 1 of TrainJob "+team+"/lost", `"`+at+`"`, "lost")
	t.Logf("%s", r)
	r = viewer.Kubectl(t.Context(), "logs", before) // Its worker may be away.
	check.Equal(t, "ended in time\n", r.Out, "the log that was kept: %s", r)
}
