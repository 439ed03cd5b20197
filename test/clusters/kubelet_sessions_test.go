// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/trainyard/trainyard/test/check"
)

// result is what a command has printed, and its exit code.
type result struct {
	out, err string
	code     int
}

// run runs a command to its end.
func run(t *testing.T, cmd *exec.Cmd) result {
	t.Helper()
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	err := cmd.Run()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return result{out: out.String(), err: stderr.String(), code: cmd.ProcessState.ExitCode()}
}

// protocols are what kubectl can speak for exec, attach and port-forward, and the environment variables that select it.
var protocols = map[string][]string{
	"WebSocket": nil,
	"SPDY":      {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false", "KUBECTL_PORT_FORWARD_WEBSOCKETS=false"},
}

func TestExec(t *testing.T) {
	c := sharedCluster(t)
	pod := runningPod(t, c)
	large := make([]byte, 1<<20)
	_, _ = rand.Read(large)
	tests := map[string]struct {
		reason string
		args   []string
		stdin  string
		want   result
	}{
		"Output": {reason: "what a command prints", args: []string{"--", "echo", "a", "b"}, want: result{out: "a b\n"}},
		"Stdin": {
			reason: "every byte arrives, in both directions, and the command ends with its stdin", stdin: string(large),
			args: []string{"-i", "--", "cat"}, want: result{out: string(large)},
		},
		"ExitCode": {
			reason: "both streams, and the exit code", args: []string{"--", "sh", "-c", "echo out; echo err >&2; exit 3"},
			want: result{out: "out\n", err: "err\ncommand terminated with exit code 3\n", code: 3},
		},
		"Unknown": {
			reason: "no program of this machine runs", args: []string{"--", "/bin/ls", "/"},
			want: result{err: "/bin/ls: command not found\ncommand terminated with exit code 127\n", code: 127},
		},
		"Container": {
			reason: "pod and container", args: []string{"-c", "sidecar", "--", "env"},
			want: result{out: "HOSTNAME=pod\nNAMESPACE=" + pod.Namespace + "\nCONTAINER=sidecar\n"},
		},
		"Shell": {
			reason: "a shell reads commands, and a command what comes behind", args: []string{"-i", "--", "sh"},
			stdin: "echo one\n\ncat\ntwo\nexit 4\n", want: result{out: "one\ntwo\nexit 4\n"},
		},
	}
	for protocol, env := range protocols {
		for name, tc := range tests {
			t.Run(protocol+name, func(t *testing.T) {
				cmd := kubectlCommand(t, c, append([]string{"exec", "-q", "-n", pod.Namespace, pod.Name}, tc.args...)...)
				cmd.Env = append(cmd.Env, env...)
				cmd.Stdin = strings.NewReader(tc.stdin)
				got := run(t, cmd)
				got.err = withoutDefault(got.err)
				if got != tc.want {
					t.Errorf("%s\ngot  %.300q\nwant %.300q", tc.reason, fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", tc.want))
				}
			})
		}
	}
}

// withoutDefault removes what kubectl says of the container that it has chosen.
func withoutDefault(stderr string) string {
	if rest, ok := strings.CutPrefix(stderr, "Defaulted container "); ok {
		_, stderr, _ = strings.Cut(rest, "\n")
	}
	return stderr
}

// started is a kubectl that runs on.
type started struct {
	*exec.Cmd
	out    *bufio.Reader
	stderr bytes.Buffer
	stdin  io.WriteCloser
}

func start(t *testing.T, c *Cluster, env []string, args ...string) *started {
	t.Helper()
	s := &started{Cmd: kubectlCommand(t, c, args...)}
	s.Env = append(s.Env, env...)
	out, err := s.StdoutPipe()
	check.Must(t, err)
	s.out, s.Stderr = bufio.NewReader(out), &s.stderr
	s.stdin, err = s.StdinPipe()
	check.Must(t, err)
	check.Must(t, s.Start())
	return s
}

// expect waits for a line of stdout.
func (s *started) expect(t *testing.T, want string) {
	t.Helper()
	if line, err := s.out.ReadString('\n'); err != nil || line != want+"\n" {
		_ = s.Process.Kill()
		_ = s.Wait()
		t.Fatalf("got %q and %v, want %q; stderr: %s", line, err, want, s.stderr.String())
	}
}

// end waits for the end, and returns what is left.
func (s *started) end(t *testing.T) result {
	t.Helper()
	rest, err := io.ReadAll(s.out)
	check.Must(t, err)
	if exit := new(exec.ExitError); !errors.As(s.Wait(), &exit) && !s.ProcessState.Success() {
		t.Fatal(exit)
	}
	return result{out: string(rest), err: withoutDefault(s.stderr.String()), code: s.ProcessState.ExitCode()}
}

func deletePod(t *testing.T, c *Cluster, pod *corev1.Pod) {
	t.Helper()
	check.Must(t, c.kubernetes.CoreV1().Pods(pod.Namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}))
}

func TestExecEndsWithTheContainer(t *testing.T) {
	c := sharedCluster(t)
	for protocol, env := range protocols {
		t.Run(protocol, func(t *testing.T) {
			pod := runningPod(t, c)
			// A command that waits for stdin, which stays open, ends as well.
			for _, waiting := range []string{"sleep infinity", "cat"} {
				s := start(t, c, env, "exec", "-i", "-n", pod.Namespace, pod.Name, "--", "sh", "-c", "echo ready; "+waiting)
				s.expect(t, "ready")
				defer func() {
					check.Equal(t, result{err: "command terminated with exit code 137\n", code: 137}, s.end(t), "%s", waiting)
				}()
			}
			deletePod(t, c, pod)
		})
	}
}

// A command ends when the client goes. With WebSockets the API server tells the kubelet only by the end of stdin.
func TestCommandEndsWithItsClient(t *testing.T) {
	c := sharedCluster(t)
	pod := runningPod(t, c)
	tests := map[string]struct {
		command  string
		function string
	}{
		"SPDY":      {command: "sleep infinity", function: "test/clusters.sleep+"},
		"WebSocket": {command: "cat", function: "test/clusters.process.cat+"},
	}
	for protocol, tc := range tests {
		t.Run(protocol, func(t *testing.T) {
			s := start(t, c, protocols[protocol], "exec", "-i", "-n", pod.Namespace, pod.Name,
				"--", "sh", "-c", "echo ready; "+tc.command)
			s.expect(t, "ready")
			g := gomega.NewWithT(t)
			g.Eventually(stacks, deadline, tick).Should(gomega.ContainSubstring(tc.function), "the command must run")
			check.Must(t, s.Process.Kill())
			_ = s.Wait()
			g.Eventually(stacks, deadline, tick).ShouldNot(gomega.ContainSubstring(tc.function), "the command runs on")
		})
	}
}

// stacks shows what this process does, and so which commands run in it.
func stacks() (string, error) {
	var text bytes.Buffer
	err := pprof.Lookup("goroutine").WriteTo(&text, 1)
	return text.String(), err
}

func TestSessionsNeedARunningContainer(t *testing.T) {
	c := sharedCluster(t)
	pod := runningPod(t, c)
	patchPod(t, c, pod, "status",
		`{"status":{"containerStatuses":[{"name":"main","state":{"running":null,"terminated":{"exitCode":1}}}]}}`)
	for protocol, env := range protocols {
		for args, want := range map[string]string{
			"exec pod -c main -- echo": `container not found ("main")`,
			"attach pod -c main":       "container main not found in pod pod_" + pod.Namespace,
		} {
			cmd := kubectlCommand(t, c, append([]string{"-n", pod.Namespace}, strings.Fields(args)...)...)
			cmd.Env = append(cmd.Env, env...)
			got := run(t, cmd)
			if got.code != 1 || !strings.Contains(got.err, "unable to upgrade connection: "+want) {
				t.Errorf("kubectl %s with %s: got %+v, want %q", args, protocol, got, want)
			}
		}
	}
}

func TestTerminalSize(t *testing.T) {
	c := sharedCluster(t)
	pod := runningPod(t, c)
	request := c.kubernetes.CoreV1().RESTClient().Post().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).
		SubResource("exec").VersionedParams(&corev1.PodExecOptions{
		Container: "main", Command: []string{"resize"}, Stdin: true, Stdout: true, TTY: true,
	}, scheme.ParameterCodec)
	spdy, err := remotecommand.NewSPDYExecutor(c.Config, http.MethodPost, request.URL())
	check.Must(t, err)
	webSocket, err := remotecommand.NewWebSocketExecutor(c.Config, http.MethodGet, request.URL().String())
	check.Must(t, err)
	for name, executor := range map[string]remotecommand.Executor{"SPDY": spdy, "WebSocket": webSocket} {
		t.Run(name, func(t *testing.T) {
			in, typed := io.Pipe()
			shown, out := io.Pipe()
			sizes := make(sizeQueue)
			ended := make(chan error, 1)
			go func() {
				ended <- executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{
					Stdin: in, Stdout: out, Tty: true, TerminalSizeQueue: sizes,
				})
			}()
			lines := bufio.NewReader(shown)
			for _, size := range []remotecommand.TerminalSize{{Width: 80, Height: 24}, {Width: 120, Height: 40}} {
				sizes <- size
				line, err := lines.ReadString('\n')
				check.Must(t, err)
				check.Equal(t, fmt.Sprintf("%dx%d\n", size.Width, size.Height), line, "the terminal's size")
			}
			check.Must(t, typed.Close())
			check.Must(t, <-ended)
			close(sizes)
		})
	}
}

// sizeQueue is what a client sees of its terminal.
type sizeQueue chan remotecommand.TerminalSize

func (q sizeQueue) Next() *remotecommand.TerminalSize {
	size, ok := <-q
	if !ok {
		return nil
	}
	return &size
}

func TestAttach(t *testing.T) {
	c := sharedCluster(t)
	for protocol, env := range protocols {
		t.Run(protocol, func(t *testing.T) {
			pod := runningPod(t, c)
			s := start(t, c, env, "attach", "-q", "-i", "-n", pod.Namespace, pod.Name, "-c", "main")
			_, err := io.WriteString(s.stdin, "typed\n")
			check.Must(t, err)
			s.expect(t, "typed") // So it is attached, and has not shown what was printed before.
			annotate(t, c, pod, map[string]string{LogAnnotation: "one\ntwo\nthree"})
			s.expect(t, "three")
			deletePod(t, c, pod)
			check.Equal(t, result{}, s.end(t), "the end of the container")
		})
	}
}

// forward starts a port-forward, and returns where it listens.
func forward(t *testing.T, c *Cluster, env []string, pod *corev1.Pod, port int) (s *started, address string) {
	t.Helper()
	s = start(t, c, env, "port-forward", "-n", pod.Namespace, pod.Name, fmt.Sprintf(":%d", port), "--address=127.0.0.1")
	line, err := s.out.ReadString('\n')
	check.Must(t, err)
	if _, err := fmt.Sscanf(line, "Forwarding from %s -> ", &address); err != nil {
		t.Fatalf("got %q: %v; %s", line, err, s.stderr.String())
	}
	return s, address
}

func TestPortForward(t *testing.T) {
	c := sharedCluster(t)
	for protocol, env := range protocols {
		t.Run(protocol, func(t *testing.T) {
			pod := runningPod(t, c)
			web, address := forward(t, c, env, pod, 8080)
			client := &http.Client{Transport: &http.Transport{}}
			for _, path := range []string{"/metrics", "/again"} { // Over one connection.
				resp, err := client.Get("http://" + address + path)
				check.Must(t, err)
				body, err := io.ReadAll(resp.Body)
				check.Must(t, errors.Join(err, resp.Body.Close()))
				check.Equal(t, fmt.Sprintf("pod %s/pod port 8080: GET %s\n", pod.Namespace, path), string(body), "the answer")
			}
			client.CloseIdleConnections()

			echo, address := forward(t, c, env, pod, echoPort)
			sent := make([]byte, 1<<20)
			_, _ = rand.Read(sent)
			check.Equal(t, true, bytes.Equal(sent, exchange(t, address, sent)), "the echo differs")

			closed, address := forward(t, c, env, pod, closedPort)
			check.Equal(t, 0, len(exchange(t, address, []byte("hello"))), "what a closed port answers")
			if got := closed.end(t); !strings.Contains(got.err, "connect: connection refused") {
				t.Errorf("a closed port: got %+v", got)
			}

			deletePod(t, c, pod)
			if protocol == "WebSocket" {
				return // kubectl finds that out with its next ping, after ten seconds.
			}
			for _, s := range []*started{web, echo} {
				if got := s.end(t); got.code != 1 || !strings.Contains(got.err, "lost connection to pod") {
					t.Errorf("the pod is deleted: got %+v", got)
				}
			}
		})
	}
}

// exchange sends bytes to an address and returns what comes back until the other side has closed.
func exchange(t *testing.T, address string, sent []byte) []byte {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	check.Must(t, err)
	defer func() { _ = conn.Close() }()
	go func() {
		_, _ = conn.Write(sent)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(conn)
	if err != nil && len(got) > 0 {
		t.Fatal(err)
	}
	return got
}

func TestCopy(t *testing.T) {
	c := sharedCluster(t)
	pod := runningPod(t, c)
	annotate(t, c, pod, map[string]string{LogSizeAnnotation: "10M"})
	dir := t.TempDir()
	var want bytes.Buffer
	check.Must(t, runLog{size: 10e6, lines: []string{"one", "two"}}.writeTo(&want))

	from := filepath.Join(dir, "from")
	got := run(t, kubectlCommand(t, c, "cp", "-n", pod.Namespace, "-c", "main", pod.Name+":/var/log/train.log", from))
	check.Equal(t, 0, got.code, "kubectl cp from a pod: %s", got.err)
	data, err := os.ReadFile(from)
	check.Must(t, err)
	check.Equal(t, true, bytes.Equal(want.Bytes(), data), "another file has come, of %d bytes", len(data))

	got = run(t, kubectlCommand(t, c, "cp", "-n", pod.Namespace, "-c", "main", from, pod.Name+":/tmp/to"))
	check.Equal(t, result{out: fmt.Sprintf("to %d %x\n", len(data), sha256.Sum256(data))}, got, "kubectl cp to a pod")
}

func TestCutStreamsEndsSessions(t *testing.T) {
	c := sharedCluster(t)
	for protocol, env := range protocols {
		t.Run(protocol, func(t *testing.T) {
			pod := runningPod(t, c)
			s := start(t, c, env, "exec", "-n", pod.Namespace, pod.Name, "--", "sh", "-c", "echo ready; sleep infinity")
			s.expect(t, "ready")
			c.CutStreams()
			check.Equal(t, result{}, s.end(t), "kubectl exec takes an end without an exit code for success")
		})
	}
	pod := runningPod(t, c)
	web, _ := forward(t, c, protocols["SPDY"], pod, 8080)
	c.CutStreams()
	if got := web.end(t); got.code != 1 || !strings.Contains(got.err, "lost connection to pod") {
		t.Errorf("kubectl port-forward: got %+v", got)
	}
}
