// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/yard"
)

// protocols are the settings of kubectl for each protocol of connections.
var protocols = map[string][]string{
	"WebSocket": {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=true", "KUBECTL_PORT_FORWARD_WEBSOCKETS=true"},
	"SPDY":      {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false", "KUBECTL_PORT_FORWARD_WEBSOCKETS=false"},
}

// speaking returns a command of kubectl that says when it speaks another protocol than the settings name: kubectl tries
// SPDY after any refusal of a WebSocket, and prints nothing about that otherwise.
func speaking(ctx context.Context, settings []string, args ...string) *exec.Cmd {
	command := editor.Command(ctx, append([]string{"-v=4"}, args...)...)
	command.Env = append(command.Env, settings...)
	return command
}

// spoken fails if a command of speaking says so.
func spoken(t *testing.T, log string) {
	t.Helper()
	if strings.Contains(strings.ToLower(log), "fallback") {
		t.Errorf("kubectl has fallen back to another protocol:\n%s", log)
	}
}

// atHubAndWorker runs a test by each protocol, with a pod on a worker and with one that the hub runs itself. The gateway
// passes connections on differently for each.
func atHubAndWorker(t *testing.T, name string, test func(t *testing.T, pod string, settings []string)) {
	t.Helper()
	job := submit(t, yard.Job{Name: name}, west, "one\ntwo")
	pods := map[string]string{"Worker": runs(t, west, job)[0], "Hub": runOnHub(t, name+"-on-the-hub", "one\ntwo")}
	for where, pod := range pods {
		for protocol, settings := range protocols {
			t.Run(where+protocol, func(t *testing.T) {
				t.Parallel()
				test(t, pod, settings)
			})
		}
	}
}

// runOnHub creates a pod that the hub runs itself, waits until it does, and returns its name.
func runOnHub(t *testing.T, name, log string) string {
	t.Helper()
	pod := idle(name, nil)
	pod.Spec.SchedulerName = ""
	pod.Annotations = map[string]string{clusters.RunForAnnotation: clusters.RunForever, clusters.LogAnnotation: log}
	create(t, y.Hub, pod)
	y.Eventually(t, func(g gomega.Gomega) {
		g.Expect(y.Hub.Get(t.Context(), client.ObjectKeyFromObject(pod), pod)).To(gomega.Succeed())
		g.Expect(pod.Status.Phase).To(gomega.Equal(corev1.PodRunning))
	})
	return name
}

// TestExec: commands run in pods, with input, output and exit code.
func TestExec(t *testing.T) {
	t.Parallel()
	atHubAndWorker(t, "executes", func(t *testing.T, pod string, settings []string) {
		command := speaking(t.Context(), settings, "exec", "-i", pod, "--", "cat")
		command.Stdin = strings.NewReader("in and out\n")
		r := yard.ResultOf(command)
		check.Equal(t, "in and out\n", r.Out, "output: %s", r)
		spoken(t, r.Err)
		r = yard.ResultOf(speaking(t.Context(), settings, "exec", pod, "--", "sh", "-c", "exit 7"))
		check.Equal(t, 7, r.Code, "exit code: %s", r)
		r = yard.ResultOf(speaking(t.Context(), settings, "exec", pod, "--", "env"))
		contains(t, r.Out, "HOSTNAME="+pod+"\n")
	})
}

// TestCopy: files come from pods and go to pods. The pods of these clusters have their log in the place of any file, and
// print what they are given.
func TestCopy(t *testing.T) {
	t.Parallel()
	atHubAndWorker(t, "copies", func(t *testing.T, pod string, settings []string) {
		local := filepath.Join(t.TempDir(), "model.pt")
		r := yard.ResultOf(speaking(t.Context(), settings, "cp", pod+":/workspace/model.pt", local))
		check.Equal(t, 0, r.Code, "code: %s", r)
		spoken(t, r.Err)
		got, err := os.ReadFile(local)
		check.Must(t, err)
		check.Equal(t, "one\ntwo\n", string(got), "file from the pod")
		large := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
		check.Must(t, os.WriteFile(local, large, 0o600))
		r = yard.ResultOf(speaking(t.Context(), settings, "cp", local, pod+":/workspace/model.pt"))
		check.Equal(t, 0, r.Code, "code: %s", r)
		contains(t, r.Out+r.Err, fmt.Sprintf("model.pt %d %x", len(large), sha256.Sum256(large)))
	})
}

// TestPortForward: ports of pods are reached.
func TestPortForward(t *testing.T) {
	t.Parallel()
	local := regexp.MustCompile(`Forwarding from (127\.0\.0\.1:\d+)`)
	atHubAndWorker(t, "forwards", func(t *testing.T, pod string, settings []string) {
		ctx, cancel := context.WithCancel(t.Context())
		command := speaking(ctx, settings, "port-forward", pod, ":8080")
		var out lockedBuffer
		command.Stdout, command.Stderr = &out, &out
		check.Must(t, command.Start())
		defer func() {
			cancel()
			_ = command.Wait()
		}()
		eventually(t, func() bool { return local.Match(out.bytes()) })
		address := string(local.FindSubmatch(out.bytes())[1])
		for range 2 { // Each connection has streams of its own.
			check.Equal(t, "pod "+team+"/"+pod+" port 8080: GET /metrics\n", getHTTP(t, "http://"+address+"/metrics"), "answer of the pod")
		}
		spoken(t, out.String())
	})
}

func getHTTP(t *testing.T, url string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	check.Must(t, err)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(r)
	check.Must(t, err)
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	check.Must(t, err)
	return string(body)
}

// TestAttach: the output of a container is seen, and what is typed reaches it.
func TestAttach(t *testing.T) {
	t.Parallel()
	atHubAndWorker(t, "attached", func(t *testing.T, pod string, settings []string) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		command := speaking(ctx, settings, "attach", "-i", pod)
		reader, writer := io.Pipe()
		var out, errs lockedBuffer
		command.Stdin, command.Stdout, command.Stderr = reader, &out, &errs
		check.Must(t, command.Start())
		_, err := writer.Write([]byte("typed\n"))
		check.Must(t, err)
		eventually(t, func() bool { return bytes.Contains(out.bytes(), []byte("typed\n")) })
		spoken(t, errs.String())
		check.Must(t, writer.Close())
		cancel()
		_ = command.Wait() // It was killed.
	})
}

// TestLogsOfTheHubsPods: logs of pods of the hub itself come through the gateway, followed to their end.
func TestLogsOfTheHubsPods(t *testing.T) {
	t.Parallel()
	pod := runOnHub(t, "prints-on-the-hub", "begun")
	check.Equal(t, "begun\n", viewer.Kubectl(t.Context(), "logs", pod).Out, "log")
	out, ended := follow(t, viewer, pod)
	prints(t, y.Hub, team, pod, "begun\nlater")
	eventually(t, func() bool { return out.String() == "begun\nlater\n" })
	ends(t, y.Hub, team, pod)
	check.Equal(t, 0, codeOf(t, ended), "exit code: %s", out)
}

// TestExecNeedsAWilledNamespace: in a namespace of a worker that Trainyard has not made, commands run only if an admin of
// the worker has said so.
func TestExecNeedsAWilledNamespace(t *testing.T) {
	t.Parallel()
	const made = "made-by-an-admin"
	for _, c := range []client.Client{y.Hub, y.Workers[east]} {
		check.Must(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: made}}))
	}
	u, err := y.NewUser(t.Context(), made, "eve", "edit")
	check.Must(t, err)
	job := submit(t, yard.Job{Namespace: made, Name: "willed"}, east, "")
	pod := runs(t, east, job)[0]
	r := u.Kubectl(t.Context(), "exec", pod, "--", "echo", "hello")
	check.Equal(t, 1, r.Code, "code: %s", r)
	contains(t, r.Err, `trainyard.dev/exec=true`)
	t.Logf("kubectl exec: %s", r)
	namespace := &corev1.Namespace{}
	check.Must(t, y.Workers[east].Get(t.Context(), client.ObjectKey{Name: made}, namespace))
	before := namespace.DeepCopy()
	metav1.SetMetaDataLabel(&namespace.ObjectMeta, "trainyard.dev/exec", "true")
	check.Must(t, y.Workers[east].Patch(t.Context(), namespace, client.MergeFrom(before)))
	eventually(t, func() bool { return u.Kubectl(t.Context(), "exec", pod, "--", "echo", "hello").Out == "hello\n" })
}
