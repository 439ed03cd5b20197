// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package commands_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/test/check"
)

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
	if code := c.wait(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
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
	if n := strings.Count(c.err.String(), "has restarted (restart 1)"); n != 1 {
		t.Errorf("want the restart to be told once, got: %s", &c.err)
	}
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
