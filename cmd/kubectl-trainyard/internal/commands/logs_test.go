// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package commands_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
)

const (
	logOf   = clusters.LogAnnotation
	runFor  = clusters.RunForAnnotation
	fail    = clusters.FailAnnotation
	forever = clusters.RunForever
)

func TestLogs(t *testing.T) {
	namespace := setUp(t)
	two := job{name: "two", namespace: namespace, runtime: "fails", nodes: 2, annotations: map[string]string{
		logOf: "one\ntwo", logOf + ".aside": "other container", runFor: forever,
	}}
	two.create(t)
	mpi := job{name: "mpi", namespace: namespace, runtime: "deepspeed-distributed", nodes: 2, replicatedJob: "launcher",
		annotations: map[string]string{logOf: "rank 0", runFor: forever}}
	mpi.create(t)
	retried := job{name: "retried", namespace: namespace, runtime: "retries", annotations: map[string]string{logOf: "try", fail: "OOM"}}
	retried.create(t)
	awaitPods(t, two, corev1.PodRunning, 2)
	awaitPods(t, mpi, corev1.PodRunning, 1)
	awaitEnd(t, retried, "Failed")
	tests := map[string]struct {
		reason  string
		args    string
		want    string
		wantErr string
	}{
		"Defaults":   {reason: "the trainer's first node", args: "two", want: "one\ntwo\n"},
		"Tail":       {reason: "the end of the log", args: "two --tail 1", want: "two\n"},
		"OtherNode":  {reason: "any node", args: "two --node 1", want: "one\ntwo\n"},
		"SDKsName":   {reason: "the replicated job's name is a name of the step", args: "two --step node", want: "one\ntwo\n"},
		"Container":  {reason: "another container", args: "two -c aside", want: "other container\n"},
		"AllNodes":   {reason: "nodes in their order", args: "two --all-nodes --tail 1", want: "[trainer-0] two\n[trainer-1] two\n"},
		"Launcher":   {reason: "what MPI prints comes from its launcher", args: "mpi", want: "rank 0\n"},
		"Empty":      {reason: "nothing is not left unsaid", args: "mpi --step trainer", wantErr: "(step trainer, node 0) has printed nothing"},
		"EndedEarly": {reason: "the log of a failed job", args: "retried", want: "try\n"},
		"Replaced":   {reason: "the pod before", args: "retried --previous", want: "try\n"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := start(t, append([]string{"logs", "-n", namespace}, strings.Fields(tc.args)...)...)
			code := c.wait(t)
			if diff := cmp.Diff(tc.want, c.out.String()); code != 0 || diff != "" {
				t.Errorf("%s: exit code %d, stderr %q (-want +got):\n%s", tc.reason, code, &c.err, diff)
			}
			if tc.wantErr == "" && c.err.String() != "" || !strings.Contains(c.err.String(), tc.wantErr) {
				t.Errorf("%s: want %q on stderr, got %q", tc.reason, tc.wantErr, &c.err)
			}
		})
	}
}

func TestTimestampsArePrintedWhenAskedFor(t *testing.T) {
	namespace := setUp(t)
	j := job{name: "stamped", namespace: namespace, runtime: "fails", annotations: map[string]string{logOf: "one"}}
	j.create(t)
	pod := awaitPods(t, j, corev1.PodSucceeded, 1)[0]
	started := pod.Status.ContainerStatuses[0].State.Terminated.StartedAt.UTC().Format("2006-01-02T15:04:05Z")
	for _, args := range [][]string{{"--timestamps"}, {"--timestamps", "-f"}} {
		c := start(t, append([]string{"logs", "-n", namespace, "stamped"}, args...)...)
		if code := c.wait(t); code != 0 || c.out.String() != started+" one\n" {
			t.Errorf("%v: exit code %d, stdout %q, stderr %q", args, code, &c.out, &c.err)
		}
	}
}

func TestWhyThereIsNoLog(t *testing.T) {
	namespace := setUp(t)
	create := func(j job) func(*testing.T) {
		return func(t *testing.T) { j.namespace = namespace; j.create(t) }
	}
	tests := map[string]struct {
		reason  string
		prepare func(*testing.T)
		args    string
		want    []string
	}{
		"NoJob": {
			reason: "a mistyped name", prepare: create(job{name: "llama", runtime: "fails"}), args: "lama",
			want: []string{`there is no TrainJob "lama"`, namespace, `did you mean "llama"?`, `context "plugin"`},
		},
		"Suspended": {
			reason: "no pods before it is resumed", prepare: create(job{name: "suspended", runtime: "fails", spec: "suspend: true"}),
			args: "suspended", want: []string{"is suspended", "kubectl patch trainjob suspended"},
		},
		"SomebodyElses": {
			reason: "a job that is not run here", args: "foreign", want: []string{"kueue.x-k8s.io/multikueue", "no Dispatch says"},
			prepare: create(job{name: "foreign", runtime: "fails", spec: "managedBy: kueue.x-k8s.io/multikueue"}),
		},
		"Waiting": {
			reason: "a dispatched job without a worker", args: "undecided", want: []string{"it waits for a worker", "NoFit: all are full"},
			prepare: func(t *testing.T) { dispatched(t, namespace, "undecided", "") },
		},
		"OnWorker": {
			reason: "a dispatched job, and a hub without a gateway", args: "dispatched",
			want: []string{
				`it is on worker "h100"`, "--gateway-bind-address", "config/gateway",
				"kubectl trainyard logs dispatched --namespace " + namespace + " --context",
			},
			prepare: func(t *testing.T) { dispatched(t, namespace, "dispatched", "h100") },
		},
		"NoRuntime": {
			reason: "the JobSet cannot be built", prepare: create(job{name: "unbuilt", runtime: "missing"}), args: "unbuilt",
			want: []string{`TrainJob "unbuilt" has no JobSet yet`},
		},
		"EarlierStep": {
			reason: "the trainer waits", args: "early", want: []string{"it waits for dataset-initializer", "dataset-initializer  Running", "trainer              Waiting"},
			prepare: func(t *testing.T) {
				j := job{name: "early", namespace: namespace, runtime: "steps", replicatedJob: "dataset-initializer", annotations: map[string]string{runFor: forever}}
				j.create(t)
				awaitPods(t, j, corev1.PodRunning, 1)
				awaitStatus(t, j, "ready:1")
			},
		},
		"UnknownStep": {
			reason: "a mistyped step", args: "early --step data-initializer",
			want: []string{`has no step "data-initializer"`, `did you mean "dataset-initializer"?`, "dataset-initializer, trainer"},
		},
		"UnknownNode": {
			reason: "nodes are counted", args: "early --node 3", want: []string{"step trainer has no node 3: it has one node, 0"},
		},
		"UnknownContainer": {
			reason: "a mistyped container", args: "early --step dataset-initializer -c dataset-initialiser",
			want: []string{`did you mean "dataset-initializer"?`},
		},
		"NeverRestarted": {
			reason: "there is nothing before", args: "early --step dataset-initializer --previous", want: []string{"has nothing before pod"},
		},
		"Unschedulable": {
			reason: "no node for the pod", args: "huge", want: []string{"it cannot be scheduled", "Insufficient cpu"},
			prepare: func(t *testing.T) {
				j := job{name: "huge", namespace: namespace, runtime: "huge"}
				j.create(t)
				eventually(t, "the scheduler to say no", func(g gomega.Gomega) {
					pods := awaitPods(t, j, corev1.PodPending, 1)
					g.Expect(pods[0].Status.Conditions).NotTo(gomega.BeEmpty())
				})
			},
		},
		"ImagePull": {
			reason: "an image that is not there", args: "image", want: []string{"ImagePullBackOff: no such image"},
			prepare: func(t *testing.T) {
				j := job{name: "image", namespace: namespace, runtime: "fails", annotations: map[string]string{runFor: forever}}
				j.create(t)
				pod := awaitPods(t, j, corev1.PodRunning, 1)[0]
				patchPod(t, &pod, `{"status":{"containerStatuses":[{"name":"node","image":"","imageID":"","ready":false,"restartCount":0,
					"state":{"waiting":{"reason":"ImagePullBackOff","message":"no such image"}}}]}}`, "status")
			},
		},
		"Gone": {
			reason: "a finished job whose JobSet was deleted", args: "old", want: []string{`TrainJob "old" is Complete`, "is gone", "its JobSet was deleted"},
			prepare: func(t *testing.T) {
				j := job{name: "old", namespace: namespace, runtime: "fails"}
				j.create(t)
				awaitEnd(t, j, "Complete")
				check.Must(t, world.dynamic.Resource(jobSets).Namespace(namespace).Delete(t.Context(), "old", metav1.DeleteOptions{}))
				awaitPods(t, j, corev1.PodSucceeded, 0)
			},
		},
	}
	for _, name := range []string{
		"NoJob", "Suspended", "SomebodyElses", "Waiting", "OnWorker", "NoRuntime", "EarlierStep", "UnknownStep", "UnknownNode",
		"UnknownContainer", "NeverRestarted", "Unschedulable", "ImagePull", "Gone",
	} {
		tc := tests[name]
		t.Run(name, func(t *testing.T) {
			if tc.prepare != nil {
				tc.prepare(t)
			}
			c := start(t, append([]string{"logs", "-n", namespace}, strings.Fields(tc.args)...)...)
			if code := c.wait(t); code != 1 || c.out.String() != "" || strings.Count(c.err.String(), "error: ") != 1 {
				t.Errorf("%s: exit code %d, stdout %q, stderr %q", tc.reason, code, &c.out, &c.err)
			}
			for _, want := range tc.want {
				if !strings.Contains(c.err.String(), want) {
					t.Errorf("%s: want %q in: %s", tc.reason, want, &c.err)
				}
			}
		})
	}
}

// dispatched makes a job with a Dispatch, as the manager would.
func dispatched(t *testing.T, namespace, name, worker string) {
	t.Helper()
	j := job{name: name, namespace: namespace, runtime: "fails", spec: "managedBy: kueue.x-k8s.io/multikueue"}
	j.create(t)
	u, err := world.dynamic.Resource(trainJobs).Namespace(namespace).Get(t.Context(), name, metav1.GetOptions{})
	check.Must(t, err)
	err = world.cluster.Apply(t.Context(), fmt.Sprintf(`{apiVersion: trainyard.dev/v1alpha1, kind: Dispatch, metadata: {name: %s, namespace: %s},
		spec: {trainJob: {name: %s, uid: %s}, attempt: 0}}`, name, namespace, name, u.GetUID()))
	check.Must(t, err)
	t.Cleanup(func() { // Other tests list all Dispatches.
		check.Must(t, world.dynamic.Resource(dispatches).Namespace(namespace).Delete(context.Background(), name, metav1.DeleteOptions{}))
	})
	if worker != "" {
		patch(t, dispatches, namespace, name, fmt.Sprintf(`{"spec":{"cluster":%q,"attempt":1}}`, worker))
		return
	}
	patch(t, dispatches, namespace, name, `{"status":{"conditions":[{"type":"Placed","status":"False","reason":"NoFit","message":"all are full",
		"lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`, "status")
}

func TestCompletion(t *testing.T) {
	namespace := setUp(t)
	j := job{name: "alpha", namespace: namespace, runtime: "steps"}
	j.create(t)
	job{name: "beta", namespace: namespace, runtime: "fails"}.create(t)
	awaitEnd(t, j, "Complete")
	tests := map[string]struct {
		reason string
		args   []string
		want   []string
	}{
		"Jobs":       {reason: "names of TrainJobs", args: []string{"logs", ""}, want: []string{"alpha", "beta"}},
		"Begun":      {reason: "names that begin so", args: []string{"logs", "al"}, want: []string{"alpha"}},
		"OneJob":     {reason: "one job is enough", args: []string{"logs", "alpha", ""}},
		"Steps":      {reason: "steps of the job", args: []string{"logs", "alpha", "--step", ""}, want: []string{"dataset-initializer", "trainer"}},
		"Containers": {reason: "containers of the job", args: []string{"logs", "alpha", "-c", ""}, want: []string{"dataset-initializer", "node"}},
		"Contexts":   {reason: "contexts of the kubeconfig", args: []string{"logs", "--context", ""}, want: []string{"plugin"}},
		"Namespaces": {reason: "namespaces of the cluster", args: []string{"logs", "--namespace", namespace}, want: []string{namespace}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := start(t, append([]string{"__complete", "-n", namespace}, tc.args...)...)
			if code := c.wait(t); code != 0 {
				t.Fatalf("exit code %d: %s", code, &c.err)
			}
			want := strings.Join(append(tc.want, ":4"), "\n") + "\n" // 4: no file names.
			check.Diff(t, want, c.out.String(), tc.reason)
		})
	}
}

func TestPreviousRunOfContainer(t *testing.T) {
	namespace := setUp(t)
	j := job{name: "crashed", namespace: namespace, runtime: "patient", annotations: map[string]string{
		logOf: "before", logOf + "-1": "after", runFor: forever,
	}}
	j.create(t)
	pod := awaitPods(t, j, corev1.PodRunning, 1)[0]
	restartContainer(t, &pod)
	for args, want := range map[string]string{"": "after\n", "--previous": "before\n"} {
		c := start(t, append([]string{"logs", "-n", namespace, "crashed"}, strings.Fields(args)...)...)
		if code := c.wait(t); code != 0 || c.out.String() != want {
			t.Errorf("%q: exit code %d, stdout %q, stderr %q", args, code, &c.out, &c.err)
		}
	}
}

// restartContainer acts as a kubelet when a container has failed.
func restartContainer(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	statuses := pod.Status.ContainerStatuses[0]
	started := statuses.State.Running.StartedAt.UTC().Format("2006-01-02T15:04:05Z")
	patchPod(t, pod, fmt.Sprintf(`{"status":{"containerStatuses":[{"name":"node","image":"","imageID":"","ready":true,"restartCount":1,
		"state":{"running":{"startedAt":%q}},"lastState":{"terminated":{"exitCode":137,"reason":"OOMKilled","startedAt":%q}}}]}}`,
		metav1.Now().UTC().Add(1e9).Format("2006-01-02T15:04:05Z"), started), "status")
}

func TestForbidden(t *testing.T) {
	namespace := setUp(t)
	job{name: "secret", namespace: namespace, runtime: "fails"}.create(t)
	for _, args := range [][]string{{}, {"-f"}} {
		c := start(t, append([]string{"logs", "-n", namespace, "secret", "--as", "nobody"}, args...)...)
		if code := c.wait(t); code != 1 || !strings.Contains(c.err.String(), `User "nobody" cannot get resource "trainjobs"`) {
			t.Errorf("%v: exit code %d, stderr %q", args, code, &c.err)
		}
	}
}

// TestRightsThatAreNeeded checks that the rights in the help are enough. They include no right on JobSets.
func TestRightsThatAreNeeded(t *testing.T) {
	namespace := setUp(t)
	err := world.cluster.Apply(context.Background(), strings.ReplaceAll(`
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: user, namespace: NS}
rules:
- {apiGroups: [trainer.kubeflow.org], resources: [trainjobs], verbs: [get, list, watch]}
- {apiGroups: [""], resources: [pods], verbs: [get, list, watch]}
- {apiGroups: [""], resources: [pods/log], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: user, namespace: NS}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: user}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: user}]
`, "NS", namespace))
	check.Must(t, err)
	j := job{name: "allowed", namespace: namespace, runtime: "fails", nodes: 2, annotations: map[string]string{logOf: "one"}}
	j.create(t)
	awaitEnd(t, j, "Complete")
	for _, args := range [][]string{{}, {"-f"}} {
		c := start(t, append([]string{"logs", "-n", namespace, "allowed", "--as", "user", "--node", "1"}, args...)...)
		if code := c.wait(t); code != 0 || c.out.String() != "one\n" {
			t.Errorf("%v: exit code %d, stdout %q, stderr %q", args, code, &c.out, &c.err)
		}
	}
}

// printMore makes a pod print the part of text that it has not printed yet.
func printMore(t *testing.T, pod *corev1.Pod, annotation, text string) {
	t.Helper()
	patchPod(t, pod, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, annotation, text))
}

// endPod acts as a kubelet when the container of a pod has succeeded.
func endPod(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	var statuses []string
	for i := range pod.Status.ContainerStatuses {
		status := pod.Status.ContainerStatuses[i]
		statuses = append(statuses, fmt.Sprintf(`{"name":%q,"image":"","imageID":"","ready":false,"restartCount":0,
			"state":{"terminated":{"exitCode":0,"reason":"Completed","startedAt":%q}}}`, status.Name,
			status.State.Running.StartedAt.UTC().Format("2006-01-02T15:04:05Z")))
	}
	patchPod(t, pod, `{"status":{"phase":"Succeeded","containerStatuses":[`+strings.Join(statuses, ",")+`]}}`, "status")
}

func wantEnd(t *testing.T, c *call, out string, notes ...string) {
	t.Helper()
	check.Equal(t, 0, c.wait(t), "exit code")
	check.Diff(t, out, c.out.String(), "standard output")
	for _, note := range notes {
		if !strings.Contains(c.err.String(), note) {
			t.Errorf("want %q on stderr, got:\n%s", note, &c.err)
		}
	}
	if t.Failed() {
		t.Logf("stderr:\n%s", &c.err)
	}
}

func TestFollowFromSuspensionToTheEnd(t *testing.T) {
	namespace := setUp(t)
	j := job{name: "gate", namespace: namespace, runtime: "fails", annotations: map[string]string{logOf: "one", runFor: forever}, spec: "suspend: true"}
	j.create(t)
	c := start(t, "logs", "-n", namespace, "gate", "-f")
	c.awaitErr(t, `waiting: TrainJob "gate" is suspended`)
	patch(t, trainJobs, namespace, "gate", `{"spec":{"suspend":false}}`)
	c.awaitOut(t, "one\n")
	pod := awaitPods(t, j, corev1.PodRunning, 1)[0]
	printMore(t, &pod, logOf, "one\ntwo")
	c.awaitOut(t, "one\ntwo\n")
	printMore(t, &pod, logOf, "one\ntwo\nthe end")
	endPod(t, &pod)
	wantEnd(t, c, "one\ntwo\nthe end\n", `TrainJob "gate" is Complete`)
}

func TestFollowAcrossFailures(t *testing.T) {
	namespace := setUp(t)
	tests := map[string]struct {
		reason  string
		runtime string
		want    string
		notes   []string
	}{
		"Fails":    {reason: "a job that fails at once", runtime: "fails", want: "try\n", notes: []string{"has failed: "}},
		"Retries":  {reason: "the Job replaces the pod", runtime: "retries", want: "try\ntry\n", notes: []string{"was replaced by pod", "exit code 1: OOM", "has failed: "}},
		"Restarts": {reason: "the JobSet replaces all", runtime: "restarts", want: "try\ntry\n", notes: []string{"has restarted (restart 1)", "has failed: "}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			j := job{name: tc.runtime, namespace: namespace, runtime: tc.runtime, annotations: map[string]string{logOf: "try", fail: "OOM", runFor: "1s"}}
			j.create(t)
			c := start(t, "logs", "-n", namespace, j.name, "--follow")
			wantEnd(t, c, tc.want, tc.notes...)
			if strings.Contains(c.err.String(), "error:") {
				t.Errorf("%s: the failure of a job is not one of the plugin: %s", tc.reason, &c.err)
			}
		})
	}
}

func TestFollowAcrossRestartOfContainer(t *testing.T) {
	namespace := setUp(t)
	j := job{name: "crashes", namespace: namespace, runtime: "patient", annotations: map[string]string{logOf: "before", logOf + "-1": "after", runFor: forever}}
	j.create(t)
	c := start(t, "logs", "-n", namespace, "crashes", "-f")
	c.awaitOut(t, "before\n")
	pod := awaitPods(t, j, corev1.PodRunning, 1)[0]
	restartContainer(t, &pod)
	c.awaitOut(t, "before\nafter\n")
	c.awaitErr(t, `container "node" of pod "`+pod.Name+`" has restarted (it had ended with exit code 137: OOMKilled)`)
	check.Must(t, world.dynamic.Resource(trainJobs).Namespace(namespace).Delete(t.Context(), "crashes", metav1.DeleteOptions{}))
	wantEnd(t, c, "before\nafter\n", `TrainJob "crashes" was deleted`)
}

func TestFollowAllNodes(t *testing.T) {
	namespace := setUp(t)
	j := job{name: "gang", namespace: namespace, runtime: "restarts", nodes: 3, annotations: map[string]string{logOf: "a\nb", runFor: forever}}
	j.create(t)
	c := start(t, "logs", "-n", namespace, "gang", "-f", "--all-nodes")
	pods := awaitPods(t, j, corev1.PodRunning, 3)
	sorted := func() []string { return slices.Sorted(strings.Lines(c.out.String())) }
	want := []string{"[trainer-0] a\n", "[trainer-0] b\n", "[trainer-1] a\n", "[trainer-1] b\n", "[trainer-2] a\n", "[trainer-2] b\n"}
	eventually(t, "all nodes to print", func(g gomega.Gomega) { g.Expect(sorted()).To(gomega.Equal(want)) })
	patchPod(t, &pods[0], `{"status":{"phase":"Failed"}}`, "status")
	want = slices.Sorted(slices.Values(slices.Concat(want, want)))
	eventually(t, "all nodes to print again", func(g gomega.Gomega) { g.Expect(sorted()).To(gomega.Equal(want)) })
	check.Equal(t, 1, strings.Count(c.err.String(), "has restarted (restart 1)"),
		"how often the restart is told: %s", &c.err)
	again := awaitPods(t, j, corev1.PodRunning, 3)
	for i := range again {
		endPod(t, &again[i])
	}
	if code := c.wait(t); code != 0 || !strings.HasSuffix(c.err.String(), "TrainJob \"gang\" is Complete\n") {
		t.Errorf("exit code %d, stderr:\n%s", code, &c.err)
	}
}

func TestFollowEndsWithAnEarlyStep(t *testing.T) {
	namespace := setUp(t)
	j := job{name: "init", namespace: namespace, runtime: "steps", annotations: map[string]string{logOf: "training", runFor: forever}}
	j.create(t)
	c := start(t, "logs", "-n", namespace, "init", "-f", "--step", "dataset-initializer")
	wantEnd(t, c, "", "has printed nothing", `step dataset-initializer of TrainJob "init" has succeeded; the job goes on`)
}

func TestFollowFinishedJob(t *testing.T) {
	namespace := setUp(t)
	j := job{name: "done", namespace: namespace, runtime: "fails", annotations: map[string]string{logOf: "one\ntwo"}}
	j.create(t)
	awaitEnd(t, j, "Complete")
	c := start(t, "logs", "-n", namespace, "done", "-f", "--tail", "1")
	wantEnd(t, c, "two\n", `TrainJob "done" is Complete`)
}

// TestFollowOutlivesTheAPIServer checks that no line is lost or repeated when the stream is cut off.
func TestFollowOutlivesTheAPIServer(t *testing.T) {
	namespace := setUp(t)
	j := job{name: "outage", namespace: namespace, runtime: "fails", annotations: map[string]string{logOf: "one\ntwo", runFor: forever}}
	j.create(t)
	c := start(t, "logs", "-n", namespace, "outage", "-f", "--tail", "1")
	c.awaitOut(t, "two\n")
	pod := awaitPods(t, j, corev1.PodRunning, 1)[0]
	check.Must(t, world.cluster.KillAPIServer())
	c.awaitErr(t, "was cut off and is asked for again")
	check.Must(t, world.cluster.StartAPIServer(t.Context()))
	printMore(t, &pod, logOf, "one\ntwo\nthree")
	c.awaitOut(t, "two\nthree\n")
	endPod(t, &pod)
	wantEnd(t, c, "two\nthree\n", `TrainJob "outage" is Complete`)
}

func TestInterrupt(t *testing.T) {
	namespace := setUp(t)
	j := job{name: "long", namespace: namespace, runtime: "fails", annotations: map[string]string{logOf: "one", runFor: forever}}
	j.create(t)
	c := start(t, "logs", "-n", namespace, "long", "-f")
	c.awaitOut(t, "one\n")
	c.interrupt()
	if code := c.wait(t); code != 130 || strings.Contains(c.err.String(), "error") || strings.Contains(c.err.String(), "cut off") {
		t.Errorf("exit code %d, stderr: %s", code, &c.err)
	}
}
