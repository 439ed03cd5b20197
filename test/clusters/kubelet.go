// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// kubelet answers the API server's requests for logs, in place of the kubelets of all nodes that kwok simulates.
// Annotations of a pod have what its containers have printed. So everybody who can change the pod can make it print,
// and kubelet stores nothing.
type kubelet struct {
	server   *http.Server
	listener net.Listener
	pods     kubernetes.Interface
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
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", k.serveLog)
	k.server = &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: startTimeout,
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
	}
	go func() { _ = k.server.ServeTLS(listener, "", "") }() // Until stop.
	return k, nil
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
	return k.server.Close()
}

// serveLog answers as a kubelet does. If there is nothing to read, it answers with the errors of a kubelet.
func (k *kubelet) serveLog(w http.ResponseWriter, r *http.Request) {
	options, err := parseLogOptions(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	container := r.PathValue("container")
	pod, err := k.pods.CoreV1().Pods(r.PathValue("namespace")).Get(r.Context(), r.PathValue("pod"), metav1.GetOptions{})
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	run, err := findRun(pod, container, options.previous)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	reader := &logReader{out: w, options: options, run: run, now: time.Now()}
	reader.skip(pod)
	if err := reader.print(pod); err != nil || !options.follow {
		return
	}
	_ = k.follow(r.Context(), pod, reader) // The client has gone, or the API server: there is nobody to tell.
}

// follow prints new output until the run of the container has ended.
func (k *kubelet) follow(ctx context.Context, pod *corev1.Pod, reader *logReader) error {
	for !reader.ended(pod) {
		watcher, err := k.pods.CoreV1().Pods(pod.Namespace).Watch(ctx, metav1.ListOptions{
			FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, pod.Name).String(), ResourceVersion: pod.ResourceVersion,
		})
		if err != nil {
			return err
		}
		for event := range watcher.ResultChan() {
			changed, ok := event.Object.(*corev1.Pod)
			if !ok {
				watcher.Stop()
				return errors.New("the watch of the pod has failed")
			}
			pod = changed
			if err := reader.print(pod); err != nil || event.Type == watch.Deleted || reader.ended(pod) {
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

// logOptions are the options of a request for a log.
type logOptions struct {
	follow, previous, timestamps bool
	tail                         int // -1: all
	since                        time.Duration
	sinceTime                    time.Time
}

func parseLogOptions(query url.Values) (o logOptions, err error) {
	o.tail = -1
	var errs []error
	parse := func(name string, set func(string) error) {
		if value := query.Get(name); value != "" {
			errs = append(errs, set(value))
		}
	}
	flag := func(to *bool) func(string) error {
		return func(value string) (err error) { *to, err = strconv.ParseBool(value); return err }
	}
	parse("follow", flag(&o.follow))
	parse("previous", flag(&o.previous))
	parse("timestamps", flag(&o.timestamps))
	parse("tailLines", func(value string) (err error) { o.tail, err = strconv.Atoi(value); return err })
	parse("sinceSeconds", func(value string) error {
		seconds, err := strconv.Atoi(value)
		o.since = time.Duration(seconds) * time.Second
		return err
	})
	parse("sinceTime", func(value string) (err error) { o.sinceTime, err = time.Parse(time.RFC3339, value); return err })
	return o, errors.Join(errs...)
}

// logReader prints the log of one run of a container.
type logReader struct {
	out     io.Writer
	options logOptions
	run     containerRun
	now     time.Time
	printed int // lines that are not to be printed again
}

// skip leaves out what --tail leaves out.
func (r *logReader) skip(pod *corev1.Pod) {
	if all := len(r.run.lines(pod)); r.options.tail >= 0 {
		r.printed = max(0, all-r.options.tail)
	}
}

// print prints what the pod has printed since the last call.
func (r *logReader) print(pod *corev1.Pod) error {
	lines := r.run.lines(pod)
	for ; r.printed < len(lines); r.printed++ {
		stamp := r.run.started.Add(time.Duration(r.printed) * time.Millisecond)
		if stamp.Before(r.options.sinceTime) || r.options.since > 0 && stamp.Before(r.now.Add(-r.options.since)) {
			continue
		}
		if r.options.timestamps {
			if _, err := fmt.Fprint(r.out, stamp.UTC().Format(time.RFC3339Nano), " "); err != nil {
				return err
			}
		}
		if _, err := fmt.Fprintln(r.out, lines[r.printed]); err != nil {
			return err
		}
	}
	return http.NewResponseController(r.out.(http.ResponseWriter)).Flush()
}

// ended says whether the run has ended, or the pod.
func (r *logReader) ended(pod *corev1.Pod) bool {
	if pod.UID != r.run.pod || r.options.previous {
		return true
	}
	status := containerStatus(pod, r.run.container)
	return status == nil || status.State.Running == nil || status.RestartCount != r.run.number
}

// containerRun is one run of a container: from a start of it to its end.
type containerRun struct {
	pod       types.UID
	container string
	number    int32 // 0 is the first
	started   time.Time
}

// findRun returns the run of a container whose log is asked for, or why there is none, in the words of a kubelet.
func findRun(pod *corev1.Pod, container string, previous bool) (containerRun, error) {
	run := containerRun{pod: pod.UID, container: container}
	status := containerStatus(pod, container)
	if status == nil {
		return run, fmt.Errorf("container %q in pod %q is not available", container, pod.Name)
	}
	run.number = status.RestartCount
	// The count goes up with a start. So the run before is one less, unless the container still waits for the next start.
	waiting, last := status.State.Waiting, status.LastTerminationState.Terminated
	switch {
	case previous && last == nil:
		return run, fmt.Errorf("previous terminated container %q in pod %q not found", container, pod.Name)
	case previous:
		run.started = last.StartedAt.Time
		if waiting == nil {
			run.number--
		}
	case status.State.Running != nil:
		run.started = status.State.Running.StartedAt.Time
	case status.State.Terminated != nil:
		run.started = status.State.Terminated.StartedAt.Time
	case last != nil:
		run.started = last.StartedAt.Time
	case waiting != nil:
		return run, fmt.Errorf("container %q in pod %q is waiting to start: %s", container, pod.Name, waiting.Reason)
	default:
		return run, fmt.Errorf("container %q in pod %q is waiting to start - no logs yet", container, pod.Name)
	}
	return run, nil
}

// lines are what the run has printed so far, by the pod's annotations.
func (r containerRun) lines(pod *corev1.Pod) []string {
	key := LogAnnotation
	if r.number > 0 {
		key = fmt.Sprintf("%s-%d", LogAnnotation, r.number)
	}
	text, ok := pod.Annotations[key+"."+r.container]
	if !ok {
		text = pod.Annotations[key]
	}
	if text = strings.TrimSuffix(text, "\n"); text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

func containerStatus(pod *corev1.Pod, container string) *corev1.ContainerStatus {
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for i := range statuses {
			if statuses[i].Name == container {
				return &statuses[i]
			}
		}
	}
	return nil
}
