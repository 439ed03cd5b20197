// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

const (
	// echoPort is the port at which a pod returns what it gets.
	echoPort = 7
	// closedPort is the port at which no process of a pod listens.
	closedPort = 9
)

// podPorts are the ports of a pod. Nothing is dialed: PortForward is the other side itself.
type podPorts struct {
	pod *corev1.Pod
}

// PortForward answers one connection to a port. It returns when the client has closed its side.
func (p podPorts) PortForward(_ context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	switch port {
	case closedPort:
		return fmt.Errorf("dial tcp4 127.0.0.1:%d: connect: connection refused", port)
	case echoPort:
		_, err := io.Copy(stream, stream)
		return err
	default:
		return p.serveHTTP(port, stream)
	}
}

// serveHTTP answers HTTP requests with the name of the pod, the port, and what is asked for.
func (p podPorts) serveHTTP(port int32, stream io.ReadWriter) error {
	in, out := bufio.NewReader(stream), bufio.NewWriter(stream)
	for {
		request, err := http.ReadRequest(in)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, request.Body); err != nil {
			return err
		}
		text := fmt.Sprintf("pod %s/%s port %d: %s %s\n", p.pod.Namespace, p.pod.Name, port, request.Method, request.URL.Path)
		response := http.Response{
			StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, Request: request, Close: request.Close,
			Header:        http.Header{"Content-Type": {"text/plain"}},
			ContentLength: int64(len(text)), Body: io.NopCloser(strings.NewReader(text)),
		}
		if err := errors.Join(response.Write(out), out.Flush()); err != nil || request.Close {
			return err
		}
	}
}
