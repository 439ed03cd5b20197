// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"bufio"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/trainyard/trainyard/test/check"
)

// numberedLine is a line that LogSizeAnnotation makes.
func numberedLine(number int) string {
	prefix := fmt.Sprintf("line %09d ", number)
	return prefix + strings.Repeat(".", logLineLength-len(prefix)-1) + "\n"
}

// annotate sets annotations of a pod.
func annotate(t *testing.T, c *Cluster, pod *corev1.Pod, annotations map[string]string) {
	t.Helper()
	var fields []string
	for key, value := range annotations {
		fields = append(fields, fmt.Sprintf("%q:%q", key, value))
	}
	patchPod(t, c, pod, "", `{"metadata":{"annotations":{`+strings.Join(fields, ",")+`}}}`)
}

func TestLogSize(t *testing.T) {
	c := sharedCluster(t)
	pod := runningPod(t, c)
	annotate(t, c, pod, map[string]string{
		LogSizeAnnotation: "300", LogSizeAnnotation + ".sidecar": "2Gi",
	})
	whole := numberedLine(1) + numberedLine(2) + numberedLine(3)[:43] + "\n" + "one\ntwo\n"
	started := pod.Status.ContainerStatuses[0].State.Running.StartedAt.UTC()
	tests := map[string]struct {
		reason  string
		options corev1.PodLogOptions
		want    string
		wantErr string
	}{
		"Whole": {reason: "the bytes of the size come first", options: corev1.PodLogOptions{Container: "main"}, want: whole},
		"Tail": {
			reason: "the end counts both kinds of lines", want: numberedLine(2) + whole[2*logLineLength:],
			options: corev1.PodLogOptions{Container: "main", TailLines: ptr.To[int64](4)},
		},
		"Limit": {
			reason: "the limit cuts a line", want: whole[:200],
			options: corev1.PodLogOptions{Container: "main", LimitBytes: ptr.To[int64](200)},
		},
		"LimitOfTail": {
			reason: "the limit counts from the first line that is shown", want: "one\nt",
			options: corev1.PodLogOptions{Container: "main", TailLines: ptr.To[int64](2), LimitBytes: ptr.To[int64](5)},
		},
		"LimitOfTimestamps": {
			reason: "the limit counts times, too", want: started.Format("2006-01-02T15:04:05Z") + " line",
			options: corev1.PodLogOptions{Container: "main", Timestamps: true, LimitBytes: ptr.To[int64](25)},
		},
		"LimitOfFollow": {
			reason: "a log that is followed ends with the limit", want: whole[:200],
			options: corev1.PodLogOptions{Container: "main", Follow: true, LimitBytes: ptr.To[int64](200)},
		},
		"TooLarge": {
			reason: "the size has a limit", options: corev1.PodLogOptions{Container: "sidecar"},
			wantErr: `annotation trainyard.dev/log-size of pod "pod" is "2Gi": want a number of bytes up to 1Gi`,
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

// kubectl reads a log of 100 MB to its end. The log says how fast that was.
func TestLogsOf100MB(t *testing.T) {
	c := sharedCluster(t)
	pod := runningPod(t, c)
	annotate(t, c, pod, map[string]string{LogSizeAnnotation: "100M"})
	want := sha256.New()
	check.Must(t, runLog{size: 100e6, lines: []string{"one", "two"}}.writeTo(want))
	got := sha256.New()
	cmd := kubectlCommand(t, c, "logs", "-n", pod.Namespace, pod.Name, "-c", "main")
	cmd.Stdout = got
	started := time.Now()
	check.Must(t, cmd.Run())
	t.Logf("kubectl logs: %.0f MB/s", 100/time.Since(started).Seconds())
	check.Equal(t, fmt.Sprintf("%x", want.Sum(nil)), fmt.Sprintf("%x", got.Sum(nil)), "the log is another one")
}

// A log that is cut in the middle does not look like a whole one, to an API server.
func TestCutLogIsBrokenOff(t *testing.T) {
	c := sharedCluster(t)
	pod := runningPod(t, c)
	for name, http2 := range map[string]bool{"HTTP1": false, "HTTP2": true} {
		t.Run(name, func(t *testing.T) {
			transport := &http.Transport{
				TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
				ForceAttemptHTTP2: http2,
			}
			defer transport.CloseIdleConnections()
			path := fmt.Sprintf("/containerLogs/%s/%s/main?follow=true", pod.Namespace, pod.Name)
			resp, err := (&http.Client{Transport: transport}).Get("https://" + c.kubelet.listener.Addr().String() + path)
			check.Must(t, err)
			defer func() { _ = resp.Body.Close() }()
			lines := bufio.NewReader(resp.Body)
			line, err := lines.ReadString('\n')
			check.Must(t, err)
			check.Equal(t, "one\n", line, "the first line")
			c.CutStreams()
			if _, err := io.ReadAll(lines); err == nil || errors.Is(err, io.EOF) {
				t.Errorf("the log ends with %v, want an error that says that it was cut", err)
			}
		})
	}
}

func TestCutStreamsEndsFollowedLogs(t *testing.T) {
	c := sharedCluster(t)
	pod := runningPod(t, c)
	options := &corev1.PodLogOptions{Container: "main", Follow: true}
	stream, err := c.kubernetes.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, options).Stream(t.Context())
	check.Must(t, err)
	defer func() { _ = stream.Close() }()
	lines := bufio.NewScanner(stream)
	if first := lines.Scan(); !first || !lines.Scan() {
		t.Fatalf("the log is not there: %v", lines.Err())
	}
	c.CutStreams()
	if lines.Scan() {
		t.Errorf("the log goes on with %q", lines.Text())
	}
	now, err := c.kubernetes.CoreV1().Pods(pod.Namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
	check.Must(t, err)
	check.Equal(t, corev1.PodRunning, now.Status.Phase, "the pod must run on")
	options.Follow = false
	again, err := c.kubernetes.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, options).DoRaw(t.Context())
	check.Must(t, err)
	check.Equal(t, "one\ntwo\n", string(again), "the log after the cut")
}
