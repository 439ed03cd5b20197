// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package board

import (
	"fmt"
	"io"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// lastLines is how many lines a log begins with.
const lastLines = 500

// pod is a pod of a job.
type pod struct {
	Name       string      `json:"name"`
	Phase      string      `json:"phase"`
	Worker     string      `json:"worker,omitempty"`
	Node       string      `json:"node,omitempty"`
	Restarts   int32       `json:"restarts"`
	Containers []string    `json:"containers"`
	Created    metav1.Time `json:"created"`
	Reason     string      `json:"reason,omitempty"`
}

// servePods answers with the pods of a job.
func (b *Board) servePods(w http.ResponseWriter, r *http.Request, c Caller) {
	key, ok := jobOf(w, r)
	if !ok {
		return
	}
	ctx, cancel := b.patience(r)
	defer cancel()
	pods, err := c.Pods(ctx, key)
	if err != nil {
		fail(w, err)
		return
	}
	list, err := pods.Client.CoreV1().Pods(key.Namespace).List(ctx, metav1.ListOptions{LabelSelector: pods.Selector})
	if err != nil {
		fail(w, err)
		return
	}
	shown := struct {
		Pods    []pod  `json:"pods"`
		WhyNone string `json:"whyNone,omitempty"`
	}{Pods: []pod{}, WhyNone: pods.WhyNone}
	for i := range list.Items {
		shown.Pods = append(shown.Pods, podOf(&list.Items[i]))
	}
	answer(w, http.StatusOK, shown)
}

func podOf(p *corev1.Pod) pod {
	shown := pod{
		Name: p.Name, Phase: string(p.Status.Phase), Worker: p.Labels[v1alpha1.LabelCluster], Node: p.Spec.NodeName, Created: p.CreationTimestamp,
		Reason: p.Status.Reason,
	}
	for _, c := range slices.Concat(p.Spec.Containers, p.Spec.InitContainers) {
		shown.Containers = append(shown.Containers, c.Name)
	}
	for _, s := range p.Status.ContainerStatuses {
		shown.Restarts += s.RestartCount
		if s.State.Waiting != nil && shown.Reason == "" {
			shown.Reason = s.State.Waiting.Reason
		}
	}
	return shown
}

// serveLog sends the end of a log, and what comes, as plain text.
func (b *Board) serveLog(w http.ResponseWriter, r *http.Request, c Caller) {
	key, ok := jobOf(w, r)
	if !ok {
		return
	}
	query := r.URL.Query()
	name, container := query.Get("pod"), query.Get("container")
	if len(validation.IsDNS1123Subdomain(name)) > 0 || len(validation.IsDNS1123Label(container)) > 0 {
		refuse(w, http.StatusBadRequest, &problem{Error: fmt.Sprintf("pod %q and container %q name no container", name, container)})
		return
	}
	leave, ok := c.Enter(r.Context())
	if !ok {
		refuse(w, http.StatusTooManyRequests, &problem{Error: "too many logs are open", Todo: "close some of them"})
		return
	}
	defer leave()
	pods, err := c.Pods(r.Context(), key)
	if err != nil {
		fail(w, err)
		return
	}
	log, err := pods.Client.CoreV1().Pods(key.Namespace).GetLogs(name, &corev1.PodLogOptions{
		Container: container, Follow: true, TailLines: ptr.To[int64](lastLines), Previous: query.Get("previous") == "true",
	}).Stream(r.Context())
	if err != nil {
		fail(w, err)
		return
	}
	defer func() { _ = log.Close() }()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.Copy(&flushed{to: w, control: http.NewResponseController(w)}, log) // The client may have gone.
}

// flushed sends what is written at once.
type flushed struct {
	to      io.Writer
	control *http.ResponseController
}

// Write writes and sends.
func (f *flushed) Write(p []byte) (int, error) {
	n, err := f.to.Write(p)
	if err == nil {
		err = f.control.Flush()
	}
	return n, err
}
