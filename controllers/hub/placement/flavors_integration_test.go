// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/placement/kueue"
	"github.com/trainyard/trainyard/test/check"
)

var hopper = map[string]string{"gpu": "h100"}

// startedByKueue is a job into which the hub's Kueue has written the labels of its flavor.
func startedByKueue(job *trainer.TrainJob) {
	queued(job)
	entry := trainjobs.HubFlavors([]trainer.ReplicatedJobPatch{trainjobs.OnNodes("node", hopper, nil)})
	entry.Manager = trainjobs.KueueManager
	job.Spec.RuntimePatches = []trainer.RuntimePatch{*entry}
}

// labelNodes gives all nodes of a worker labels for the time of the test.
func (s *scene) labelNodes(t *testing.T, worker v1alpha1.ClusterName, labels map[string]string) {
	t.Helper()
	for i := range 2 {
		node := &corev1.Node{}
		check.Must(t, s.Worker(worker).Admin.Get(t.Context(), client.ObjectKey{Name: fmt.Sprintf("node-%d", i)}, node))
		before := node.DeepCopy()
		node.Labels = labels
		check.Must(t, s.Worker(worker).Admin.Patch(t.Context(), node, client.MergeFrom(before)))
		t.Cleanup(func() {
			labeled := node.DeepCopy()
			node.Labels = before.Labels
			check.Must(t, s.Worker(worker).Admin.Patch(context.WithoutCancel(t.Context()), node, client.MergeFrom(labeled)))
		})
	}
}

// The flavors of a job that the hub's Kueue has started say which nodes have room for it, if its policy wants that.
func TestFlavorsOfAStartedJob(t *testing.T) {
	for _, flavors := range []v1alpha1.HubFlavors{"", v1alpha1.HubFlavorsIgnore} {
		s := newScene(t)
		s.Policy(t, v1alpha1.DispatchPolicySpec{HubFlavors: flavors})
		s.Submit(t, "job", startedByKueue)
		if d, _ := s.reconcile(t, "job"); d.Spec.Cluster == "" || len(d.Spec.PodSets[0].NodeSelector) > 0 {
			t.Errorf("with hubFlavors %q the Dispatch is %+v, want it placed without a node selector", flavors, d.Spec)
		}
	}
	for _, flavors := range []v1alpha1.HubFlavors{v1alpha1.HubFlavorsRequire, v1alpha1.HubFlavorsPropagate} {
		t.Run(string(flavors), func(t *testing.T) {
			s := newScene(t)
			s.Policy(t, v1alpha1.DispatchPolicySpec{HubFlavors: flavors})
			s.Submit(t, "job", startedByKueue)
			s.expect(t, "job", v1alpha1.ReasonNoFit)
			s.labelNodes(t, west, hopper)
			gomega.NewWithT(t).Eventually(func() v1alpha1.ClusterName {
				d, _ := s.reconcile(t, "job")
				return d.Spec.Cluster
			}, check.Patience, 10*time.Millisecond).Should(gomega.Equal(west), "the worker with the labels")
		})
	}
}

// assign writes the flavor that Kueue has assigned to the pods of a job into its Workload.
func (k *kueueAPI) assign(t *testing.T, job, flavor string) {
	t.Helper()
	w := kueueObject("kueue.x-k8s.io/v1beta2", "Workload", "trainjob-"+job)
	w.SetNamespace(k.Namespace)
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"admission": map[string]any{
		"clusterQueue": "research", "podSetAssignments": []any{map[string]any{
			"name": "node", "flavors": map[string]any{"cpu": flavor, "nvidia.com/gpu": flavor},
		}},
	}}})
	check.Must(t, err)
	check.Must(t, k.Hub.Admin.Status().Patch(t.Context(), w, client.RawPatch("application/merge-patch+json", patch)))
}

// Before Kueue resumes a job, its flavors come from its Workload. Until they are known, the job waits.
func TestFlavorsOfAJobWithQuota(t *testing.T) {
	k := newScene(t).withKueue(t)
	k.read(t)
	k.Policy(t, v1alpha1.DispatchPolicySpec{HubFlavors: v1alpha1.HubFlavorsRequire})
	k.Submit(t, "gated", queued, suspendedJob)
	k.setWorkload(t, "gated", kueue.Held, []string{withQuota}, provisioningCheck+":Pending", pending)
	k.assign(t, "gated", k.Namespace)
	k.decideTheRest(t, "gated")
	k.checked(t, "gated", kueue.Pending, v1alpha1.ReasonWaitingForWorkload)
	k.waits(t, "gated", v1alpha1.ReasonWaitingForWorkload, fmt.Sprintf("ResourceFlavor %q", k.Namespace))

	flavor := kueueObject("kueue.x-k8s.io/v1beta2", "ResourceFlavor", k.Namespace)
	flavor.Object["spec"] = map[string]any{
		"nodeLabels":  map[string]any{"gpu": "b200"},
		"tolerations": []any{map[string]any{"key": "spot", "operator": "Exists"}},
	}
	check.Must(t, k.Hub.Admin.Create(t.Context(), flavor))
	t.Cleanup(func() { check.Must(t, k.Hub.Admin.Delete(context.WithoutCancel(t.Context()), flavor)) })
	k.checked(t, "gated", kueue.Pending, v1alpha1.ReasonNoFit)
	k.labelNodes(t, west, hopper)
	flavor.Object["spec"].(map[string]any)["nodeLabels"] = map[string]any{"gpu": "h100"}
	check.Must(t, k.Hub.Admin.Update(t.Context(), flavor))
	d, _ := k.checked(t, "gated", kueue.Ready, string(west))
	want := []any{hopper, []corev1.Toleration{{Key: "spot", Operator: corev1.TolerationOpExists}}}
	check.Diff(t, want, []any{d.Spec.PodSets[0].NodeSelector, d.Spec.PodSets[0].Tolerations}, "the PodSet of the Dispatch")
}

// decideTheRest makes all checks of a job but Trainyard's Ready, and waits until the Watch says so.
func (k *kueueAPI) decideTheRest(t *testing.T, job string) {
	t.Helper()
	w := kueueObject("kueue.x-k8s.io/v1beta2", "Workload", "trainjob-"+job)
	w.SetNamespace(k.Namespace)
	check.Must(t, k.Hub.Admin.Get(t.Context(), client.ObjectKeyFromObject(w), w))
	w.Object["status"].(map[string]any)["admissionChecks"] = []any{
		map[string]any{"name": provisioningCheck, "state": kueue.Ready},
		map[string]any{"name": roomCheck, "state": kueue.Pending},
	}
	check.Must(t, k.Hub.Admin.Status().Update(t.Context(), w))
	k.awaitStanding(t, job, kueue.QuotaReserved)
}
