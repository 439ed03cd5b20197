// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"bufio"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/trainyard/trainyard/test/check"
)

// runningPod returns a pod that runs until it is deleted and has printed two lines.
func runningPod(t *testing.T, c *Cluster) *corev1.Pod {
	t.Helper()
	ns := namespace(t, c)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod", Annotations: map[string]string{
			RunForAnnotation: RunForever, LogAnnotation: "one\ntwo\n", LogAnnotation + ".sidecar": "aside",
		}},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "main", Image: "main"}, {Name: "sidecar", Image: "sidecar"}},
		},
	}
	g := gomega.NewWithT(t)
	g.Eventually(func() error { // The namespace's service account takes a moment.
		_, err := c.kubernetes.CoreV1().Pods(ns).Create(t.Context(), pod, metav1.CreateOptions{})
		return err
	}, deadline, tick).Should(gomega.Succeed())
	g.Eventually(func(g gomega.Gomega) {
		var err error
		pod, err = c.kubernetes.CoreV1().Pods(ns).Get(t.Context(), "pod", metav1.GetOptions{})
		g.Expect(err).NotTo(gomega.HaveOccurred())
		g.Expect(pod.Status.Phase).To(gomega.Equal(corev1.PodRunning))
	}, deadline, tick).Should(gomega.Succeed())
	return pod
}

func patchPod(t *testing.T, c *Cluster, pod *corev1.Pod, subresource, patch string) {
	t.Helper()
	var subresources []string
	if subresource != "" {
		subresources = []string{subresource}
	}
	_, err := c.kubernetes.CoreV1().Pods(pod.Namespace).Patch(t.Context(), pod.Name, types.StrategicMergePatchType, []byte(patch),
		metav1.PatchOptions{}, subresources...)
	check.Must(t, err)
}

func TestLogs(t *testing.T) {
	c := sharedCluster(t)
	pod := runningPod(t, c)
	// It was started two hours ago for the first time, and now for the second.
	first, second := time.Now().Add(-2*time.Hour).UTC().Format(time.RFC3339), time.Now().UTC().Format(time.RFC3339)
	patchPod(t, c, pod, "status", `{"status":{"containerStatuses":[{"name":"main","restartCount":1,`+
		`"state":{"running":{"startedAt":"`+second+`"}},`+
		`"lastState":{"terminated":{"exitCode":1,"startedAt":"`+first+`"}}},`+
		`{"name":"sidecar","state":{"running":{"startedAt":"`+second+`"}}}]}}`)
	patchPod(t, c, pod, "", `{"metadata":{"annotations":{"`+LogAnnotation+`-1":"again"}}}`)
	tests := map[string]struct {
		reason  string
		options corev1.PodLogOptions
		want    string
		wantErr string
	}{
		"Container": {reason: "a container may have a log of its own", options: corev1.PodLogOptions{Container: "sidecar"}, want: "aside\n"},
		"Run":       {reason: "each run has its log", options: corev1.PodLogOptions{Container: "main"}, want: "again\n"},
		"Previous":  {reason: "the run before", options: corev1.PodLogOptions{Container: "main", Previous: true}, want: "one\ntwo\n"},
		"Tail": {
			reason: "the end only", want: "two\n",
			options: corev1.PodLogOptions{Container: "main", Previous: true, TailLines: ptr.To[int64](1)},
		},
		"Since": {
			reason:  "lines have the time of their run",
			options: corev1.PodLogOptions{Container: "main", Previous: true, SinceSeconds: ptr.To[int64](3600)},
		},
		"Timestamps": {
			reason: "lines show their time", want: second + " again\n",
			options: corev1.PodLogOptions{Container: "main", Timestamps: true},
		},
		"NoPrevious": {
			reason: "a container that was never restarted has no earlier run", wantErr: "previous terminated container",
			options: corev1.PodLogOptions{Container: "sidecar", Previous: true},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			stream, err := c.kubernetes.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &tc.options).Stream(t.Context())
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Errorf("%s: want an error with %q, got: %v", tc.reason, tc.wantErr, err)
				}
				return
			}
			check.Must(t, err)
			defer func() { _ = stream.Close() }()
			got, err := io.ReadAll(stream)
			check.Must(t, err)
			check.Diff(t, tc.want, string(got), tc.reason)
		})
	}
}

func TestLogsAreFollowedToTheEndOfTheContainer(t *testing.T) {
	c := sharedCluster(t)
	pod := runningPod(t, c)
	options := &corev1.PodLogOptions{Container: "main", Follow: true}
	stream, err := c.kubernetes.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, options).Stream(t.Context())
	check.Must(t, err)
	defer func() { _ = stream.Close() }()
	lines := bufio.NewScanner(stream)
	for _, want := range []string{"one", "two", "three"} {
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("want %q, got %q: %v", want, lines.Text(), lines.Err())
		}
		if want == "two" {
			patchPod(t, c, pod, "", `{"metadata":{"annotations":{"`+LogAnnotation+`":"one\ntwo\nthree"}}}`)
		}
	}
	check.Must(t, c.kubernetes.CoreV1().Pods(pod.Namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}))
	if lines.Scan() || lines.Err() != nil {
		t.Errorf("want the end of the log, got %q, %v", lines.Text(), lines.Err())
	}
}
