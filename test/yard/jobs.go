// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package yard

import (
	"context"
	"fmt"
	"io"
	"net"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/clusters"
)

// GPU is the resource of the GPUs on a yard's nodes.
const GPU = corev1.ResourceName("nvidia.com/gpu")

// ClusterTrainingRuntimes that InstallRuntimes installs.
const (
	// RuntimeName is the trainer module's runtime for PyTorch.
	RuntimeName = "torch-distributed"
	// FailFastRuntimeName is a similar runtime. Its jobs fail with their first pod; RuntimeName's retry for minutes.
	FailFastRuntimeName = "torch-fail-fast"
)

// InstallRuntimes installs the runtimes of a yard's jobs on a cluster.
func InstallRuntimes(ctx context.Context, cluster *clusters.Cluster) error {
	if err := cluster.ApplyTrainerRuntimes(ctx, "torch_distributed.yaml"); err != nil {
		return err
	}
	c, err := NewClient(cluster)
	if err != nil {
		return err
	}
	runtime := &trainer.ClusterTrainingRuntime{}
	if err := c.Get(ctx, client.ObjectKey{Name: RuntimeName}, runtime); err != nil {
		return fmt.Errorf("get ClusterTrainingRuntime %q: %w", RuntimeName, err)
	}
	runtime.ObjectMeta = metav1.ObjectMeta{Name: FailFastRuntimeName, Labels: runtime.Labels}
	for i := range runtime.Spec.Template.Spec.ReplicatedJobs {
		runtime.Spec.Template.Spec.ReplicatedJobs[i].Template.Spec.BackoffLimit = ptr.To[int32](0)
	}
	if err := c.Create(ctx, runtime); err != nil {
		return fmt.Errorf("create ClusterTrainingRuntime %q: %w", runtime.Name, err)
	}
	return nil
}

// GPUNodes describes count nodes with gpus GPUs each.
func GPUNodes(prefix string, count int, gpus int64, product string) clusters.NodeShape {
	return clusters.NodeShape{
		Count: count, NamePrefix: prefix,
		Capacity: corev1.ResourceList{GPU: *resource.NewQuantity(gpus, resource.DecimalSI)},
		Labels:   map[string]string{"nvidia.com/gpu.product": product},
	}
}

// Job describes a TrainJob in few fields.
type Job struct {
	Namespace string // default: default
	Name      string
	// ManagedBy is spec.managedBy. Empty: the manager's default.
	ManagedBy string
	// Nodes is the number of nodes of the job, where 0 means 1. GPUs is the number of GPUs on each node.
	Nodes int32
	GPUs  int64
	// RunFor is how long the simulated pods run: a duration, or clusters.RunForever.
	RunFor string
	// Fail, if not empty, is the message with which the pods fail. Use it with FailFastRuntimeName.
	Fail string
}

// TrainJob returns what a user would write. Its runtimePatches say what the simulated nodes do.
func (j Job) TrainJob() *trainer.TrainJob {
	resources := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}
	if j.GPUs > 0 {
		resources[GPU] = *resource.NewQuantity(j.GPUs, resource.DecimalSI)
	}
	job := &trainer.TrainJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: or(j.Namespace, metav1.NamespaceDefault), Name: j.Name},
		Spec: trainer.TrainJobSpec{
			ManagedBy:  ptr.To(or(j.ManagedBy, v1alpha1.ManagedByMultiKueue)),
			RuntimeRef: trainer.RuntimeRef{Name: RuntimeName},
			Trainer: &trainer.Trainer{
				NumNodes:         ptr.To(max(j.Nodes, 1)),
				Command:          []string{"torchrun", "train.py"},
				ResourcesPerNode: &corev1.ResourceRequirements{Requests: resources, Limits: resources},
			},
		},
	}
	annotations := map[string]string{}
	if j.RunFor != "" {
		annotations[clusters.RunForAnnotation] = j.RunFor
	}
	if j.Fail != "" {
		job.Spec.RuntimeRef.Name = FailFastRuntimeName
		annotations[clusters.FailAnnotation] = j.Fail
	}
	if len(annotations) > 0 {
		job.Spec.RuntimePatches = []trainer.RuntimePatch{podAnnotations(annotations)}
	}
	return job
}

func or(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}

// podAnnotations patches annotations into the runtime's trainer pods.
func podAnnotations(annotations map[string]string) trainer.RuntimePatch {
	pod := &trainer.PodTemplatePatch{Metadata: &metav1.ObjectMeta{Annotations: annotations}}
	job := &trainer.JobTemplatePatch{Spec: &trainer.JobSpecPatch{Template: pod}}
	spec := &trainer.JobSetSpecPatch{ReplicatedJobs: []trainer.ReplicatedJobPatch{{Name: "node", Template: job}}}
	return trainer.RuntimePatch{
		Manager:             "trainyard.dev/simulation",
		TrainingRuntimeSpec: &trainer.TrainingRuntimeSpecPatch{Template: &trainer.JobSetTemplatePatch{Spec: spec}},
	}
}

// Until the yard stops, balance gives each connection to the first backend that takes it, as a Service does for
// replicas if some of them are down.
func (y *Yard) balance(ctx context.Context, address string, backends []string) error {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listen in the place of a Service: %w", err)
	}
	go func() {
		<-y.stopped
		_ = listener.Close()
	}()
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // The yard has stopped.
			}
			go pass(client, backends)
		}
	}()
	return nil
}

func pass(client net.Conn, backends []string) {
	defer client.Close()
	for _, backend := range backends {
		server, err := net.Dial("tcp", backend)
		if err != nil {
			continue
		}
		defer server.Close()
		ended := make(chan struct{}, 2)
		for _, pair := range [][2]net.Conn{{client, server}, {server, client}} {
			go func() {
				_, _ = io.Copy(pair[0], pair[1])
				ended <- struct{}{}
			}()
		}
		<-ended
		return
	}
}
