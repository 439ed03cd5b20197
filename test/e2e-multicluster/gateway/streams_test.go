// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/yard"
)

// TestExec: commands run in pods of workers, by WebSocket and by SPDY, with input, output and exit code.
func TestExec(t *testing.T) {
	t.Parallel()
	job := submit(t, yard.Job{Name: "executes"}, east, "")
	pod := runs(t, east, job)[0]
	for protocol, setting := range map[string]string{"WebSocket": "KUBECTL_REMOTE_COMMAND_WEBSOCKETS=true", "SPDY": "KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			command := editor.Command(t.Context(), "exec", "-i", pod, "--", "cat")
			command.Env = append(command.Env, setting)
			command.Stdin = strings.NewReader("in and out\n")
			r := yard.ResultOf(command)
			check.Equal(t, "in and out\n", r.Out, "output: %s", r)
			command = editor.Command(t.Context(), "exec", pod, "--", "sh", "-c", "exit 7")
			command.Env = append(command.Env, setting)
			if r := yard.ResultOf(command); r.Code != 7 {
				t.Errorf("exit code: %s", r)
			}
		})
	}
}

// TestPortForward: ports of pods on workers are reached.
func TestPortForward(t *testing.T) {
	t.Parallel()
	job := submit(t, yard.Job{Name: "forwards"}, west, "")
	pod := runs(t, west, job)[0]
	ctx, cancel := context.WithCancel(t.Context())
	command := editor.Command(ctx, "port-forward", pod, ":8080")
	var out lockedBuffer
	command.Stdout, command.Stderr = &out, &out
	check.Must(t, command.Start())
	defer func() {
		cancel()
		_ = command.Wait()
	}()
	local := regexp.MustCompile(`Forwarding from (127\.0\.0\.1:\d+)`)
	eventually(t, func() bool { return local.Match(out.bytes()) })
	address := string(local.FindSubmatch(out.bytes())[1])
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/metrics", nil)
	check.Must(t, err)
	res, err := http.DefaultClient.Do(r)
	check.Must(t, err)
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	check.Must(t, err)
	contains(t, string(body), "pod "+team+"/"+pod+" port 8080: GET /metrics")
}

// TestAttach: the output of a container is seen, and what is typed reaches it.
func TestAttach(t *testing.T) {
	t.Parallel()
	job := submit(t, yard.Job{Name: "attached"}, west, "")
	pod := runs(t, west, job)[0]
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	command := editor.Command(ctx, "attach", "-i", pod)
	reader, writer := io.Pipe()
	var out lockedBuffer
	command.Stdin, command.Stdout, command.Stderr = reader, &out, &out
	check.Must(t, command.Start())
	_, err := writer.Write([]byte("typed\n"))
	check.Must(t, err)
	eventually(t, func() bool { return bytes.Contains(out.bytes(), []byte("typed")) })
	check.Must(t, writer.Close())
	cancel()
	_ = command.Wait() // It was killed.
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
