// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"maps"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

//go:embed stages
var stages embed.FS

const (
	// RunForAnnotation on a pod says how long the pod runs, as a Go duration or RunForever. Without it a pod runs for a
	// second, or forever if its restart policy is Always.
	RunForAnnotation = "trainyard.dev/run-for"
	// RunForever makes a pod run until it is deleted.
	RunForever = "forever"
	// FailAnnotation on a pod makes the pod fail with exit code 1. Its value is the termination message.
	FailAnnotation = "trainyard.dev/fail"
	// TerminateForAnnotation on a pod says how long the pod runs on after its deletion, as a Go duration. A change to the
	// pod restarts that time.
	TerminateForAnnotation = "trainyard.dev/terminate-for"
	// LogAnnotation on a pod has what its containers have printed since they started, line by line. With "." and a
	// container's name it is for that container only. With "-1" before that it is for the run after the first restart, and
	// so on.
	LogAnnotation = "trainyard.dev/log"
	// LogSizeAnnotation on a pod makes its containers print this many bytes, at most 1Gi, before what LogAnnotation has:
	// numbered lines of 128 bytes. It can be for a container and a run in the same way. It may grow only as long as
	// LogAnnotation is empty, and by whole lines.
	LogSizeAnnotation = "trainyard.dev/log-size"

	// kwokAnnotation is on the nodes that kwok plays, and on no others.
	kwokAnnotation = "kwok.x-k8s.io/node"

	kwokConfig = `apiVersion: config.kwok.x-k8s.io/v1alpha1
kind: KwokConfiguration
options:
  cidr: 10.64.0.0/12
  nodeIP: %s
  manageNodesWithAnnotationSelector: kwok.x-k8s.io/node=fake
  nodeLeaseDurationSeconds: 40
  podPlayStageParallelism: 16
  nodePlayStageParallelism: 8
  nodeLeaseParallelism: 8
`
)

// AddNodes adds nodes, and waits until pods can be scheduled on them. With the first nodes it starts kwok, which
// simulates nodes and pods.
func (c *Cluster) AddNodes(ctx context.Context, shapes ...NodeShape) error {
	if len(shapes) == 0 {
		return nil
	}
	kwok, err := c.startKwok(ctx)
	if err != nil {
		return err
	}
	var names []string
	for _, shape := range shapes {
		created, err := c.createNodes(ctx, shape)
		if err != nil {
			return fmt.Errorf("add nodes to cluster %q: %w", c.Name, err)
		}
		names = append(names, created...)
	}
	for _, name := range names {
		err := c.waitFor(ctx, "node "+name, func(ctx context.Context) error { return c.probeNode(ctx, name, kwok) })
		if err != nil {
			return err
		}
	}
	return nil
}

// startKwok starts kwok unless it has been started.
func (c *Cluster) startKwok(ctx context.Context) (*Process, error) {
	c.kwokMu.Lock()
	defer c.kwokMu.Unlock()
	if c.kwok != nil {
		return c.kwok, nil
	}
	if c.kubelet == nil {
		kubelet, err := c.startKubelet(ctx)
		if err != nil {
			return nil, fmt.Errorf("start kubelet: %w", err)
		}
		c.kubelet = kubelet
	}
	config := fmt.Appendf(nil, kwokConfig, c.kubelet.nodeIP())
	for _, name := range []string{"stages/node.yaml", "stages/pod.yaml"} {
		data, err := stages.ReadFile(name)
		if err != nil {
			return nil, err
		}
		config = append(append(config, "---\n"...), data...)
	}
	path := filepath.Join(c.Dir, "kwok.yaml")
	if err := writeFile(path, config); err != nil {
		return nil, err
	}
	kwok, err := c.Run(ctx, "kwok", "kwok", "--kubeconfig="+c.KubeconfigPath, "--config="+path)
	c.kwok = kwok
	return kwok, err
}

// wakeKwok changes all pods, so that kwok looks at them again. kwok does not repeat a write that breaks off, that
// cannot be sent, or that an API server refuses because its etcd is away (v0.8 pkg/kwok/controllers/utils.go,
// shouldRetry). A kubelet would repeat it until it succeeds. Without wakeKwok the pod would stay as it is for ever.
func (c *Cluster) wakeKwok(ctx context.Context) error {
	c.kwokMu.Lock()
	running := c.kwok != nil
	c.kwokMu.Unlock()
	if !running {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	pods, err := c.kubernetes.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list pods of cluster %q: %w", c.Name, err)
	}
	var errs []error
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.DeletionTimestamp.IsZero() && (pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed) {
			continue
		}
		patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"annotations":{"trainyard.dev/look-again-after":%q}}}`, pod.UID, pod.ResourceVersion)
		_, err := c.kubernetes.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			errs = append(errs, fmt.Errorf("change pod %s/%s of cluster %q: %w", pod.Namespace, pod.Name, c.Name, err))
		}
	}
	return errors.Join(errs...)
}

// createNodes creates the nodes of a shape under the first free numbers.
func (c *Cluster) createNodes(ctx context.Context, shape NodeShape) ([]string, error) {
	c.kwokMu.Lock()
	kubeletPort := c.kubelet.port()
	c.kwokMu.Unlock()
	var names []string
	for number := 0; len(names) < shape.Count; number++ {
		node := shape.node(number)
		node.Status.DaemonEndpoints.KubeletEndpoint.Port = kubeletPort
		switch _, err := c.kubernetes.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); {
		case err == nil:
			names = append(names, node.Name)
		case !apierrors.IsAlreadyExists(err):
			return names, err
		}
	}
	return names, nil
}

func (s NodeShape) node(number int) *corev1.Node {
	prefix := s.NamePrefix
	if prefix == "" {
		prefix = "node"
	}
	name := fmt.Sprintf("%s-%d", prefix, number)
	labels := map[string]string{
		corev1.LabelHostname:   name,
		corev1.LabelOSStable:   "linux",
		corev1.LabelArchStable: "amd64",
	}
	maps.Copy(labels, s.Labels)
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("96"),
		corev1.ResourceMemory: resource.MustParse("1Ti"),
		corev1.ResourcePods:   resource.MustParse("110"),
	}
	maps.Copy(capacity, s.Capacity)
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: map[string]string{kwokAnnotation: "fake"}},
		Spec:       corev1.NodeSpec{Taints: s.Taints},
		Status:     corev1.NodeStatus{Capacity: capacity, Allocatable: capacity},
	}
}

// probeNode returns nil when a node is ready and has no taint for not being ready.
func (c *Cluster) probeNode(ctx context.Context, name string, kwok *Process) error {
	if kwok.hasEnded() {
		return kwok.Ended()
	}
	node, err := c.kubernetes.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, taint := range node.Spec.Taints {
		if taint.Key == corev1.TaintNodeNotReady || taint.Key == corev1.TaintNodeUnreachable {
			return fmt.Errorf("node %q is tainted %s", name, taint.Key)
		}
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("node %q is not ready", name)
}
