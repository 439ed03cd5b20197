// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// kubelet answers the API server's requests for logs, exec, attach and port-forward, in place of the kubelets of all
// nodes that kwok simulates. Annotations of a pod have what its containers have printed. So everybody who can change
// the pod can make it print, and kubelet stores nothing. Whatever a client asks for, kubelet starts no process, opens
// no file and connects to nothing but the API server.
type kubelet struct {
	server   *http.Server
	listener net.Listener
	pods     kubernetes.Interface

	mu      sync.Mutex
	streams context.Context    // ends when the streams that are open are cut; under mu
	cut     context.CancelFunc // ends streams; under mu
}

// startKubelet starts the kubelet of a cluster, unless its API server could not reach it.
func (c *Cluster) startKubelet(ctx context.Context) (*kubelet, error) {
	host, err := c.backend.hostAddress()
	if err != nil {
		return nil, nil //nolint:nilerr // A kind cluster without the address has no logs, as doc.go says.
	}
	ca, err := newAuthority("kubelet")
	if err != nil {
		return nil, err
	}
	pair, err := ca.serving(host)
	if err != nil {
		return nil, err
	}
	certificate, err := tls.X509KeyPair(pair.cert, pair.key)
	if err != nil {
		return nil, err
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return nil, fmt.Errorf("listen as kubelet: %w", err)
	}
	k := &kubelet{listener: listener, pods: c.kubernetes}
	k.streams, k.cut = context.WithCancel(context.Background())
	k.server = &http.Server{
		Handler:           k.routes(),
		ReadHeaderTimeout: startTimeout,
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
	}
	go func() { _ = k.server.ServeTLS(listener, "", "") }() // Until stop.
	return k, nil
}

// routes are the paths of a kubelet that an API server asks for. For kubectl's exec the API server sends a POST. For a
// client that speaks an older protocol over WebSockets it sends a GET.
func (k *kubelet) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", k.abortCut(k.serveLog))
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		mux.HandleFunc(method+" /exec/{namespace}/{pod}/{container}", k.serveExec)
		mux.HandleFunc(method+" /attach/{namespace}/{pod}/{container}", k.serveAttach)
		mux.HandleFunc(method+" /portForward/{namespace}/{pod}", k.servePorts)
	}
	return mux
}

// nodeIP is the address of all nodes. Without a kubelet it is an address where nobody answers.
func (k *kubelet) nodeIP() string {
	if k == nil {
		return "10.128.0.1"
	}
	return k.listener.Addr().(*net.TCPAddr).IP.String()
}

// port is where the kubelet listens, 0 if there is none.
func (k *kubelet) port() int32 {
	if k == nil {
		return 0
	}
	return int32(k.listener.Addr().(*net.TCPAddr).Port)
}

// stop also ends the requests that are under way.
func (k *kubelet) stop() error {
	if k == nil {
		return nil
	}
	k.cutStreams()
	return k.server.Close()
}

// CutStreams breaks off all logs that are read now, and all sessions of exec, attach and port-forward, as when a node
// fails. The pods run on, and later requests are answered.
func (c *Cluster) CutStreams() {
	c.kwokMu.Lock()
	defer c.kwokMu.Unlock()
	if c.kubelet != nil {
		c.kubelet.cutStreams()
	}
}

func (k *kubelet) cutStreams() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cut()
	k.streams, k.cut = context.WithCancel(context.Background())
}

// uncut is a context that ends when the streams of now are cut.
func (k *kubelet) uncut() context.Context {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.streams
}

// abortCut breaks an answer off when it is cut, so that the client does not take it for a whole one.
func (k *kubelet) abortCut(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		aborted := make(chan struct{})
		stop := context.AfterFunc(k.uncut(), func() {
			defer close(aborted)
			cancel()
			// Ends a write to a client that does not read.
			_ = http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0))
		})
		serve(w, r.WithContext(ctx))
		if !stop() {
			<-aborted // w must not be used after the return.
			panic(http.ErrAbortHandler)
		}
	}
}

// pod returns the pod that a request is about.
func (k *kubelet) pod(r *http.Request) (*corev1.Pod, error) {
	return k.pods.CoreV1().Pods(r.PathValue("namespace")).Get(r.Context(), r.PathValue("pod"), metav1.GetOptions{})
}

// follow calls changed with each later state of a pod, until ended is true for the state, or the pod is deleted.
func (k *kubelet) follow(
	ctx context.Context, pod *corev1.Pod, ended func(*corev1.Pod) bool, changed func(*corev1.Pod) error,
) error {
	for !ended(pod) {
		watcher, err := k.pods.CoreV1().Pods(pod.Namespace).Watch(ctx, metav1.ListOptions{
			FieldSelector:   fields.OneTermEqualSelector(metav1.ObjectNameField, pod.Name).String(),
			ResourceVersion: pod.ResourceVersion,
		})
		if err != nil {
			return err
		}
		for event := range watcher.ResultChan() {
			next, ok := event.Object.(*corev1.Pod)
			if !ok {
				watcher.Stop()
				return errors.New("the watch of the pod has failed")
			}
			pod = next
			if err := changed(pod); err != nil || event.Type == watch.Deleted || ended(pod) {
				watcher.Stop()
				return err
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}
