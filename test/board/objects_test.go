// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package board

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/stage"
)

// markup is in the words of a worker, of a refusal and of an Event.
const markup = `<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>&lt;b&gt;`

// objects creates what the pages show: four workers, jobs that run, wait, have trouble and have ended.
func (h *hub) objects(ctx context.Context) error {
	now := time.Now()
	for _, worker := range []*v1alpha1.WorkerCluster{
		newWorker("gpu-east", "Connected", "", "NVIDIA-H100-80GB-HBM3", 8, 2, 8, 8, 4, 0, 6, 0, 10), newWorker("gpu-west", "Unreachable", "it does not answer: "+markup, "NVIDIA-A10", 4, 4, 16),
		newWorker("gpu-north", "Connected", "", "NVIDIA-L4", 1, 1, 12, 0, 30), newWorker("gpu-south", "Connected", "", "NVIDIA-A100-SXM4-40GB", 8, 8, 2, 0, 260),
	} {
		if worker.Name == "gpu-north" {
			worker.Spec.Drain = true
		}
		if err := h.create(ctx, worker); err != nil {
			return err
		}
	}
	for i := range 40 {
		name, namespace := fmt.Sprintf("train-%02d", i), []string{"vision", "language"}[i%2]
		if err := h.job(ctx, namespace, name, func(d *v1alpha1.Dispatch) { runs(d, []v1alpha1.ClusterName{"gpu-east", "gpu-south"}[i%2], now) }); err != nil {
			return err
		}
	}
	for name, change := range map[string]func(*v1alpha1.Dispatch){
		"llama-pretrain": func(d *v1alpha1.Dispatch) { waits(d, v1alpha1.ReasonNoFit, "no worker has room") },
		"wrong-runtime": func(d *v1alpha1.Dispatch) {
			waits(d, v1alpha1.ReasonInvalidRuntime, "the runtime names no container: "+markup)
			d.Status.Explanation = nil
		},
		"crashes": func(d *v1alpha1.Dispatch) {
			runs(d, "gpu-east", now)
			d.Status.Restarts = 4
			d.Status.Conditions = append(d.Status.Conditions, condition(v1alpha1.DispatchHealthy, metav1.ConditionFalse, "CrashLoop", "pod crashes-node-0-0: container node ended with exit code 1: "+markup))
			after := func(seconds time.Duration) *metav1.Time { return &metav1.Time{Time: now.Add(seconds * time.Second)} }
			d.Status.History = []v1alpha1.Attempt{{
				Attempt: 1, Cluster: "gpu-west", StartTime: after(2), FirstRunningTime: after(3), To: *after(6), Outcome: v1alpha1.OutcomeWorkerLost, Message: "gpu-west does not answer",
			}}
			d.Spec.Attempt, d.Status.Attempt, d.Status.StartTime, d.Status.FirstRunningTime = 2, 2, after(9), after(11)
			d.Status.Conditions[0].LastTransitionTime = *after(8)
		},
	} {
		if err := h.job(ctx, "vision", name, change); err != nil {
			return err
		}
	}
	return h.Admin.Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "vision", Name: "refused"}, Type: corev1.EventTypeWarning, Reason: "Rejected", Message: "worker gpu-west refuses: " + markup,
		InvolvedObject: corev1.ObjectReference{Kind: "TrainJob", Namespace: "vision", Name: "crashes", UID: h.uid(ctx, "crashes")}, LastTimestamp: metav1.NewTime(now), Count: 3,
	})
}

// newWorker returns a worker. counts has pairs: GPUs that are free on each of how many nodes.
func newWorker(name, reason, message, product string, gpus int64, counts ...int64) *v1alpha1.WorkerCluster {
	w := &v1alpha1.WorkerCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"region": name[4:]}}}
	w.Spec.Connection.KubeconfigPath = "/" + name
	w.Status.Conditions = []metav1.Condition{condition(v1alpha1.WorkerClusterReady, metav1.ConditionTrue, reason, message), condition(v1alpha1.WorkerClusterAgentReady, metav1.ConditionTrue, "AgentAnswers", "")}
	if message != "" {
		w.Status.Conditions[0].Status = metav1.ConditionFalse
		w.Status.LastSeenTime = &metav1.Time{Time: time.Now().Add(-time.Hour)}
	}
	w.Status.KubernetesVersion, w.Status.Jobs = "v1.36.3", 20
	amounts := func(free int64) corev1.ResourceList {
		return corev1.ResourceList{"nvidia.com/gpu": *resource.NewQuantity(free, resource.DecimalSI), "cpu": *resource.NewQuantity(12*free, resource.DecimalSI), "memory": resource.MustParse("512Gi")}
	}
	group := v1alpha1.NodeGroup{Product: product, Resource: "nvidia.com/gpu", Unit: "Device", Allocatable: amounts(gpus)}
	for i := 0; i+1 < len(counts); i += 2 {
		group.Free = append(group.Free, v1alpha1.FreeNodes{GPUs: counts[i], Nodes: int32(counts[i+1]), Free: amounts(counts[i])})
		group.Nodes += int32(counts[i+1])
	}
	if len(counts)%2 == 1 { // The rest is free.
		group.Nodes += int32(counts[len(counts)-1])
		group.Free = append(group.Free, v1alpha1.FreeNodes{GPUs: gpus, Nodes: int32(counts[len(counts)-1]), Free: amounts(gpus)})
	}
	w.Status.NodeGroups = []v1alpha1.NodeGroup{group}
	return w
}

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(time.Now().Add(-30 * time.Minute))}
}

func runs(d *v1alpha1.Dispatch, worker v1alpha1.ClusterName, now time.Time) {
	d.Spec.Cluster, d.Spec.Attempt, d.Status.Attempt, d.Status.Phase = worker, 1, 1, v1alpha1.PhaseRunning
	d.Status.Conditions = []metav1.Condition{
		condition(v1alpha1.DispatchPlaced, metav1.ConditionTrue, v1alpha1.ReasonPlaced, "it has the most room"), condition(v1alpha1.DispatchMirrored, metav1.ConditionTrue, "Copied", ""),
	}
	d.Status.Steps = []v1alpha1.Step{{Name: "dataset-initializer", State: v1alpha1.StepSucceeded}, {Name: "trainer", State: v1alpha1.StepRunning}}
	d.Status.StartTime, d.Status.FirstRunningTime = &metav1.Time{Time: now.Add(-29 * time.Minute)}, &metav1.Time{Time: now.Add(-25 * time.Minute)}
}

func waits(d *v1alpha1.Dispatch, reason, message string) {
	d.Status.Phase = v1alpha1.PhaseWaiting
	d.Status.Conditions = []metav1.Condition{condition(v1alpha1.DispatchPlaced, metav1.ConditionFalse, reason, message)}
	d.Status.Explanation = []v1alpha1.ClusterExplanation{
		{Cluster: "gpu-east", Reason: "NoFit", Message: "lacks 16 nvidia.com/gpu on nodes with at least 8 free; it has room for 0 of 2 pods"},
		{Cluster: "gpu-north", Reason: "Cordoned", Message: "the worker is being drained"}, {Cluster: "gpu-west", Reason: "NotReady", Message: markup},
	}
}

// job creates a TrainJob and its Dispatch.
func (h *hub) job(ctx context.Context, namespace, name string, change func(*v1alpha1.Dispatch)) error {
	job := stage.NewTrainJob(namespace, name, stage.Managed)
	if err := h.Admin.Create(ctx, job); err != nil {
		return err
	}
	d := &v1alpha1.Dispatch{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	d.Spec.TrainJob = v1alpha1.TrainJobReference{Name: name, UID: job.UID}
	d.Spec.PodSets = []v1alpha1.PodSet{{Name: "node", Role: v1alpha1.RoleTrainer, Count: 2, Requests: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}}}
	change(d)
	return h.create(ctx, d)
}

// create creates an object with its status.
func (h *hub) create(ctx context.Context, object client.Object) error {
	status := object.DeepCopyObject().(client.Object)
	if err := h.Admin.Create(ctx, object); err != nil {
		return err
	}
	status.SetResourceVersion(object.GetResourceVersion())
	status.SetUID(object.GetUID())
	return h.Admin.Status().Update(ctx, status)
}
