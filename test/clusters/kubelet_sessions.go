// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/utils/exec"
)

const (
	// sessionIdleTimeout is a kubelet's default.
	sessionIdleTimeout = 4 * time.Hour
	// exitKilled is the exit code of a process that is killed, as all processes of a container are at its end.
	exitKilled = 137
)

// serveExec runs a command in a container.
func (k *kubelet) serveExec(w http.ResponseWriter, r *http.Request) {
	c, options, ok := k.findContainer(w, r, "container not found (%[1]q)")
	if !ok {
		return
	}
	s, r := k.openSession(w, r)
	defer s.end()
	remotecommand.ServeExec(s, r, c, c.pod.Name, string(c.pod.UID), c.run.container, r.URL.Query()["command"], options,
		sessionIdleTimeout, remotecommand.DefaultStreamCreationTimeout, remotecommand.SupportedStreamingProtocols)
}

// serveAttach shows what a container prints.
func (k *kubelet) serveAttach(w http.ResponseWriter, r *http.Request) {
	c, options, ok := k.findContainer(w, r, "container %[1]s not found in pod %[2]s")
	if !ok {
		return
	}
	s, r := k.openSession(w, r)
	defer s.end()
	remotecommand.ServeAttach(s, r, c, c.pod.Name, string(c.pod.UID), c.run.container, options,
		sessionIdleTimeout, remotecommand.DefaultStreamCreationTimeout, remotecommand.SupportedStreamingProtocols)
}

// servePorts forwards ports of a pod, until the pod has ended.
func (k *kubelet) servePorts(w http.ResponseWriter, r *http.Request) {
	options, err := portforward.NewV4Options(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	pod, err := k.pod(r)
	if err != nil {
		http.Error(w, "pod does not exist", http.StatusNotFound)
		return
	}
	ended := func(now *corev1.Pod) bool { return now.UID != pod.UID || now.Status.Phase != corev1.PodRunning }
	if ended(pod) {
		http.Error(w, fmt.Sprintf("pod not found (%q)", fullName(pod)), http.StatusInternalServerError)
		return
	}
	s, r := k.openSession(w, r)
	defer s.end()
	go func() {
		defer s.end()
		_ = k.follow(r.Context(), pod, ended, ignore)
	}()
	portforward.ServePortForward(s, r, podPorts{pod}, pod.Name, string(pod.UID), options,
		sessionIdleTimeout, remotecommand.DefaultStreamCreationTimeout, portforward.SupportedProtocols)
}

// findContainer returns the container that a request is about, and what is to be streamed. If there is no such
// container, or it does not run, findContainer answers the request: with the words, which get the names of container
// and pod.
func (k *kubelet) findContainer(
	w http.ResponseWriter, r *http.Request, words string,
) (*container, *remotecommand.Options, bool) {
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return nil, nil, false
	}
	pod, err := k.pod(r)
	if err != nil {
		http.Error(w, "pod does not exist", http.StatusNotFound)
		return nil, nil, false
	}
	name := r.PathValue("container")
	run, ok := runningRun(pod, name)
	if !ok {
		http.Error(w, fmt.Sprintf(words, name, fullName(pod)), http.StatusInternalServerError)
		return nil, nil, false
	}
	return &container{kubelet: k, pod: pod, run: run}, options, true
}

// fullName is how a kubelet names a pod.
func fullName(pod *corev1.Pod) string { return pod.Name + "_" + pod.Namespace }

// ignore is for a follow that only waits.
func ignore(*corev1.Pod) error { return nil }

// container is a run of a container that clients exec into or attach to.
type container struct {
	kubelet *kubelet
	pod     *corev1.Pod
	run     containerRun
}

// ExecInContainer runs a command until it ends, the client goes, or the run of the container ends.
func (c *container) ExecInContainer(
	ctx context.Context, _, _, _ string, command []string, in io.Reader, out, err io.WriteCloser, tty bool,
	resize <-chan remotecommand.TerminalSize, _ time.Duration,
) error {
	if !tty {
		resize = nil // With WebSockets there is always a channel.
	}
	ctx, kill := context.WithCancel(ctx)
	defer kill()
	go func() {
		defer kill()
		_ = c.kubelet.follow(ctx, c.pod, c.run.endedIn, ignore)
	}()
	exited := make(chan int, 1)
	p := newProcess(c, in, out, err, resize)
	go func() { exited <- p.run(ctx, command) }() // A read of stdin ends when the caller closes the connection.
	var code int
	select {
	case code = <-exited:
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		code = exitKilled // Also if sleep has returned, because of ctx.
	}
	if code == 0 {
		return nil
	}
	return exec.CodeExitError{Err: fmt.Errorf("exit status %d", code), Code: code}
}

// AttachContainer shows what the container prints from now on, and what comes from stdin.
func (c *container) AttachContainer(
	ctx context.Context, _, _, _ string, in io.Reader, out, _ io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize,
) error {
	changed := ignore
	if out != nil {
		log, err := c.run.log(c.pod)
		if err != nil {
			return err
		}
		reader := newLogReader(out, c.run, logOptions{tail: 0, limit: math.MaxInt64})
		reader.skip(log)
		changed = reader.print
		if in != nil {
			go func() { _, _ = io.Copy(out, in) }() // Until the client has no more input, or the caller closes the connection.
		}
	}
	if err := c.kubelet.follow(ctx, c.pod, c.run.endedIn, changed); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// session is the answer to a request that upgrades its connection. The streaming server hijacks the connection, so
// net/http does not tell when the client goes: session does.
type session struct {
	http.ResponseWriter
	uncut context.Context    // ends when the session is cut
	open  context.Context    // ends with the session
	end   context.CancelFunc // ends open
}

// openSession returns a session, and its request, whose context ends with the session: with a call of end, when the
// client goes, or when the session is cut. Then the connection is closed.
func (k *kubelet) openSession(w http.ResponseWriter, r *http.Request) (*session, *http.Request) {
	open, end := context.WithCancel(r.Context())
	return &session{ResponseWriter: w, uncut: k.uncut(), open: open, end: end}, r.WithContext(open)
}

// Hijack implements http.Hijacker.
func (s *session) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	raw, buffered, err := http.NewResponseController(s.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(s.uncut, func() {
		_ = raw.Close() // First, so that nobody hears how what ends now has ended.
		s.end()
	})
	context.AfterFunc(s.open, func() {
		stop()
		_ = raw.Close()
	})
	conn := watchedConn{Conn: raw, gone: s.end}
	// What net/http has read already comes first.
	read, err := buffered.Reader.Peek(buffered.Reader.Buffered())
	if err != nil {
		return nil, nil, errors.Join(err, raw.Close())
	}
	reader := bufio.NewReader(io.MultiReader(bytes.NewReader(read), conn))
	return conn, bufio.NewReadWriter(reader, bufio.NewWriter(conn)), nil
}

// watchedConn tells when the other side has gone.
type watchedConn struct {
	net.Conn
	gone func()
}

func (c watchedConn) Read(to []byte) (int, error) {
	n, err := c.Conn.Read(to)
	if err != nil {
		c.gone()
	}
	return n, err
}
