// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
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

// kubectlCommand is kubectl with the admin's kubeconfig. It is killed if it hangs.
func kubectlCommand(t *testing.T, c *Cluster, args ...string) *exec.Cmd {
	t.Helper()
	path, err := kubectl(c.options.BinDir)
	check.Must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.KubeconfigPath, "HOME="+t.TempDir())
	return cmd
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

// engineWith is a container engine whose command answers kind as Docker does that has the nodes of one cluster, or
// none. The file that it returns gets a line for each call that changes something.
func engineWith(t *testing.T, clusterName string) (changes string) {
	t.Helper()
	bin := t.TempDir()
	changes = filepath.Join(bin, "changes")
	script := `#!/bin/sh
case "$1" in
-v) echo "Docker version 28.0.0, build 0000000" ;;
info) ;;
ps) case "$*" in
  *"label=io.x-k8s.kind.cluster="*) [ -z "$NODES_OF" ] || echo "$NODES_OF-control-plane" ;;
  *) [ -z "$NODES_OF" ] || echo "$NODES_OF" ;;
  esac ;;
*) echo "$*" >>"$CHANGES" ;;
esac
`
	check.Must(t, os.WriteFile(filepath.Join(bin, "docker"), []byte(script), 0o700))
	t.Setenv("TRAINYARD_CLUSTERS", "kind")
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("NODES_OF", clusterName)
	t.Setenv("CHANGES", changes)
	return changes
}

// Clusters of kind that end at the same time leave the user's kubeconfig alone. Here somebody else has its lock, and it
// has an entry of the name that kind gives to one of the clusters.
func TestKindLeavesTheUsersKubeconfig(t *testing.T) {
	engineWith(t, "")
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("KUBECONFIG", "")
	const entry = "apiVersion: v1\nkind: Config\ncontexts: [{name: kind-trainyard-hub, context: {cluster: mine, user: mine}}]\n"
	mine := filepath.Join(home, ".kube", "config")
	for path, text := range map[string]string{mine: entry, mine + ".lock": ""} {
		check.Must(t, writeFile(path, []byte(text)))
	}
	var all []*Cluster
	for _, name := range []string{"hub", "a10", "h100"} {
		dir := t.TempDir()
		k, err := newKindCluster(Options{Name: name, Dir: dir})
		check.Must(t, err)
		// The engine has no nodes, so kind cannot start any. What it has written stays.
		if err := k.startControlPlane(t.Context(), filepath.Join(dir, "kubeconfig")); err == nil {
			t.Fatal("a cluster of kind has started without an engine")
		}
		all = append(all, &Cluster{Name: name, Dir: dir, backend: k})
	}
	check.Must(t, StopAll(all...))
	if got, err := os.ReadFile(mine); err != nil || string(got) != entry {
		t.Errorf("the user's kubeconfig is now %q (%v), want %q", got, err, entry)
	}
}

// A cluster of kind that is there already belongs to somebody: the start says so, and does not delete it.
func TestKindClusterIsThereAlready(t *testing.T) {
	changes := engineWith(t, "trainyard-hub")
	t.Setenv("HOME", t.TempDir())
	_, err := Start(t.Context(), Options{Name: "hub", Dir: t.TempDir()})
	const want = `kind cluster "trainyard-hub" is there already`
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("start of a second cluster: %v, want %q", err, want)
	}
	if got, err := os.ReadFile(changes); err == nil {
		t.Errorf("the start has called the engine:\n%s", got)
	}
}
