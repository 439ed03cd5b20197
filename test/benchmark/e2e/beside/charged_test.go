// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"context"
	"errors"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/placement/demand"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/quota"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/fleet"
)

const gpuRuntime = `
mlPolicy: {numNodes: 1, torch: {}}
template:
  spec:
    replicatedJobs:
    - name: node
      template:
        metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
        spec: {template: {spec: {containers: [{name: node, image: i, resources: {limits: {nvidia.com/gpu: 8}}}]}}}
`

// TestKueueChargesUnmergedRequests: this Kueue was built with Kubeflow Trainer 2.2. So for jobs that ask for CPU, of a
// runtime with GPUs, it charges no GPU. The Workload says so while it waits and when it has quota.
func TestKueueChargesUnmergedRequests(t *testing.T) {
	w := newQuotaWorld(t)
	gpus := &trainer.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: "gpus"}}
	check(t, yaml.UnmarshalStrict([]byte(gpuRuntime), &gpus.Spec))
	await(t, "create the runtime", func(ctx context.Context) error { return w.Create(ctx, gpus.DeepCopy()) })
	w.make(t, kueueObject("ResourceFlavor", "", "nodes"))
	cluster, local := kueueObject("ClusterQueue", "", "team"), kueueObject("LocalQueue", fleet.Namespace, "team")
	amount := func(name, nominal string) any { return map[string]any{"name": name, "nominalQuota": nominal} }
	cluster.Object["spec"] = map[string]any{"namespaceSelector": map[string]any{}, "resourceGroups": []any{map[string]any{
		"coveredResources": []any{"cpu", string(gpu)},
		"flavors":          []any{map[string]any{"name": "nodes", "resources": []any{amount("cpu", "8"), amount(string(gpu), "0")}}},
	}}}
	local.Object["spec"] = map[string]any{"clusterQueue": "team"}
	w.make(t, cluster)
	w.make(t, local)
	w.awaitActive(t, cluster)
	w.awaitActive(t, local)

	deriver, err := demand.NewDeriver(t.Context(), w)
	check(t, err)
	for name, test := range map[string]struct {
		reason, cpu string
		reserves    bool
	}{
		"admitted": {"8 CPUs are there", "4", true},
		"waits":    {"16 CPUs are not there", "8", false},
	} {
		t.Run(name, func(t *testing.T) {
			job := &trainer.TrainJob{
				ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: name, Labels: map[string]string{v1alpha1.LabelLocalQueue: "team"}},
				Spec: trainer.TrainJobSpec{
					RuntimeRef: trainer.RuntimeRef{Name: "gpus"},
					Trainer: &trainer.Trainer{
						NumNodes:         new(int32(2)),
						ResourcesPerNode: &corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(test.cpu)}},
					},
				},
			}
			derived, err := deriver.Of(t.Context(), job.DeepCopy())
			check(t, err)
			queue := types.NamespacedName{Namespace: fleet.Namespace, Name: "team"}
			if lack := w.nodes(t).In(queue).Fit(derived.PodSets); (lack == nil) != test.reserves {
				t.Errorf("before the first Workload: it lacks %+v: %s", lack, test.reason)
			}
			await(t, "create the job", func(ctx context.Context) error { return w.Create(ctx, job.DeepCopy()) })
			key := client.ObjectKeyFromObject(job)
			await(t, "have Kueue decide about it", func(context.Context) error {
				tree := quota.New(w.counted(t))
				requests := tree.Requests(key)
				if len(requests) == 0 {
					return errors.New("it has not")
				}
				if reserved, _ := tree.Reserved(key); reserved != test.reserves {
					t.Errorf("it has quota: %t: %s", reserved, test.reason)
				}
				if basis := dispatch.BasisOf(derived.PodSets, requests[0]); basis != quota.Unmerged {
					t.Errorf("its Workload requests %v, which is basis %d; derived: %+v", requests[0], basis, derived.PodSets)
				}
				return nil
			})
			await(t, "delete the job", func(ctx context.Context) error { return client.IgnoreNotFound(w.Delete(ctx, job)) })
			w.deleteWorkloads(t)
		})
	}
}

// deleteWorkloads does what the garbage collector does elsewhere.
func (w *quotaWorld) deleteWorkloads(t *testing.T) {
	t.Helper()
	workload := kueueObject("Workload", fleet.Namespace, "")
	await(t, "delete the Workloads", func(ctx context.Context) error {
		if err := w.DeleteAllOf(ctx, workload, client.InNamespace(fleet.Namespace)); err != nil {
			return err
		}
		if left := w.counted(t).Workloads; len(left) > 0 {
			return errors.New("some are left")
		}
		return nil
	})
}
