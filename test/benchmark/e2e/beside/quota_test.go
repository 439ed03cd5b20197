// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/trainyard/trainyard/api/kueues"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/capacity"
	"github.com/trainyard/trainyard/controllers/hub/placement/demand"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/quota"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/fleet"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/kueue"
	"github.com/trainyard/trainyard/test/check"
)

const (
	// trees is how many random cohort trees there are, and reservations how many random Workloads come to each of them.
	trees, reservations = 12, 8
	gpu                 = corev1.ResourceName("nvidia.com/gpu")
)

// TestQuotaAsKueueAdmits makes random cohort trees, and random Workloads one after another. For each Workload it
// predicts what Kueue will do, from the quota as the hub and the agent count it. The last Workloads of each queue ask
// for one pod more than fits, and for exactly what fits.
func TestQuotaAsKueueAdmits(t *testing.T) {
	w := newQuotaWorld(t)
	admitted, refused := 0, 0
	for seed := range uint64(trees) {
		tree := w.newTree(t, seed)
		for i := range reservations {
			queue := tree.queues[tree.IntN(len(tree.queues))]
			if tree.submit(t, fmt.Sprintf("random-%d", i), queue, tree.podSets()) {
				admitted++
			} else {
				refused++
			}
		}
		tree.Shuffle(len(tree.queues), func(i, j int) { tree.queues[i], tree.queues[j] = tree.queues[j], tree.queues[i] })
		for _, queue := range tree.queues {
			tree.probe(t, queue)
		}
		tree.compareUsage(t)
	}
	t.Logf("of the random Workloads %d were admitted and %d were not", admitted, refused)
	if least := trees * reservations / 10; admitted < least || refused < least {
		t.Errorf("the test is too easy: %d were admitted and %d were not", admitted, refused)
	}
}

// quotaWorld is a cluster with a real Kueue.
type quotaWorld struct{ client.Client }

func newQuotaWorld(t *testing.T) *quotaWorld {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	all, err := fleet.Start(ctx, fleet.Options{})
	check.Must(t, err)
	t.Cleanup(func() { check.Must(t, all.Stop()) })
	k := kueue.New(&fleet.Fleet{Hub: all.Hub}, kueue.Tuning{Integrations: kueue.Tuned().Integrations})
	check.Must(t, k.Install(ctx))
	check.Must(t, k.Start(ctx))
	return &quotaWorld{all.Hub.Admin}
}

// tree is a random cohort tree with its queues.
type tree struct {
	*quotaWorld
	*rand.Rand
	name    string
	flavors []string
	queues  []string
}

// newTree makes up to four cohorts in up to three levels, and up to four queues with quota of one or two flavors.
func (w *quotaWorld) newTree(t *testing.T, seed uint64) *tree {
	t.Helper()
	tree := &tree{quotaWorld: w, Rand: rand.New(rand.NewPCG(seed, 19)), name: fmt.Sprintf("tree-%d", seed)}
	for i := range 1 + tree.IntN(2) {
		flavor := kueueObject("ResourceFlavor", "", fmt.Sprintf("%s-f%d", tree.name, i))
		spec := map[string]any{"nodeLabels": map[string]any{"flavor": fmt.Sprint(i)}}
		if tree.IntN(4) == 0 {
			spec["nodeTaints"] = []any{map[string]any{"key": "spot", "effect": "NoSchedule"}}
		}
		flavor.Object["spec"] = spec
		w.make(t, flavor)
		tree.flavors = append(tree.flavors, flavor.GetName())
	}
	cohorts := tree.IntN(5)
	for i := range cohorts {
		cohort, spec := kueueObject("Cohort", "", fmt.Sprintf("%s-c%d", tree.name, i)), map[string]any{}
		isRoot := i == 0 || tree.IntN(4) == 0
		if !isRoot {
			spec["parentName"] = fmt.Sprintf("%s-c%d", tree.name, tree.IntN(min(i, 2)))
		}
		if tree.IntN(3) > 0 {
			spec["resourceGroups"] = tree.groups(!isRoot)
		}
		cohort.Object["spec"] = spec
		w.make(t, cohort)
	}
	for i := range 2 + tree.IntN(3) {
		cluster := kueueObject("ClusterQueue", "", fmt.Sprintf("%s-q%d", tree.name, i))
		// A cohort need not exist.
		name := fmt.Sprintf("%s-c%d", tree.name, tree.IntN(cohorts+1))
		inCohort := tree.IntN(6) > 0
		spec := map[string]any{"namespaceSelector": map[string]any{}, "resourceGroups": tree.groups(inCohort)}
		if inCohort {
			spec["cohortName"] = name
		}
		cluster.Object["spec"] = spec
		w.make(t, cluster)
		local := kueueObject("LocalQueue", fleet.Namespace, cluster.GetName())
		local.Object["spec"] = map[string]any{"clusterQueue": cluster.GetName()}
		w.make(t, local)
		tree.queues = append(tree.queues, cluster.GetName())
	}
	for _, name := range tree.queues {
		w.awaitActive(t, kueueObject("ClusterQueue", "", name))
		w.awaitActive(t, kueueObject("LocalQueue", fleet.Namespace, name))
	}
	return tree
}

// groups returns quota of all flavors, in one resource group or with a group of its own for cpu.
func (tree *tree) groups(limited bool) []any {
	var gpus []any
	for _, flavor := range tree.flavors {
		nominal := tree.IntN(13)
		r := map[string]any{"name": string(gpu), "nominalQuota": fmt.Sprint(nominal)}
		if limited && tree.IntN(2) == 0 {
			r["borrowingLimit"] = fmt.Sprint(tree.IntN(6))
		}
		if limited && tree.IntN(2) == 0 {
			r["lendingLimit"] = fmt.Sprint(tree.IntN(nominal + 1))
		}
		gpus = append(gpus, map[string]any{"name": flavor, "resources": []any{r}})
	}
	return []any{map[string]any{"coveredResources": []any{string(gpu)}, "flavors": gpus}}
}

// podSets returns one or two PodSets of up to four pods. Some select a flavor, some tolerate the taint.
func (tree *tree) podSets() []v1alpha1.PodSet {
	var sets []v1alpha1.PodSet
	for i := range 1 + tree.IntN(4)/3 {
		set := v1alpha1.PodSet{
			Name: fmt.Sprintf("set-%d", i), Role: v1alpha1.RoleTrainer, Count: int32(1 + tree.IntN(4)),
			Requests: corev1.ResourceList{gpu: *resource.NewQuantity(int64(1+tree.IntN(3)), resource.DecimalSI)},
		}
		switch tree.IntN(6) {
		case 0:
			set.NodeSelector = map[string]string{"flavor": fmt.Sprint(tree.IntN(2)), "other": "x"}
		case 1:
			set.NodeAffinity = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: "flavor", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"0"}}, {Key: "other", Operator: corev1.NodeSelectorOpExists},
				},
			}}}
		}
		if tree.IntN(2) == 0 {
			set.Tolerations = []corev1.Toleration{{Key: "spot", Operator: corev1.TolerationOpExists}}
		}
		sets = append(sets, set)
	}
	return sets
}

// probe asks for one pod more than fits, which must wait, and then for what fits.
func (tree *tree) probe(t *testing.T, queue string) {
	t.Helper()
	of := func(count int32) []v1alpha1.PodSet {
		return []v1alpha1.PodSet{{
			Name: "main", Role: v1alpha1.RoleTrainer, Count: count, Requests: corev1.ResourceList{gpu: resource.MustParse("1")},
			Tolerations: []corev1.Toleration{{Key: "spot", Operator: corev1.TolerationOpExists}},
		}}
	}
	fits, nodes := int32(0), tree.nodes(t).In(types.NamespacedName{Namespace: fleet.Namespace, Name: queue})
	for nodes.Fit(of(fits+1)) == nil {
		fits++
	}
	if tree.submit(t, "above", queue, of(fits+1)) {
		t.Errorf("%s: Kueue admits %d pods, and %d were said to fit", queue, fits+1, fits)
	}
	if fits > 0 && !tree.submit(t, "at", queue, of(fits)) {
		t.Errorf("%s: Kueue does not admit %d pods, which were said to fit", queue, fits)
	}
}

// submit makes a Workload, waits until Kueue has decided about it, and compares.
func (tree *tree) submit(t *testing.T, name, queue string, podSets []v1alpha1.PodSet) (admitted bool) {
	t.Helper()
	lack := tree.nodes(t).In(types.NamespacedName{Namespace: fleet.Namespace, Name: queue}).Fit(podSets)
	workload := kueueObject("Workload", fleet.Namespace, queue+"-"+name)
	var sets []any
	for _, set := range podSets {
		sets = append(sets, podSetOf(t, set))
	}
	workload.Object["spec"] = map[string]any{"queueName": queue, "podSets": sets}
	tree.make(t, workload)
	said := ""
	await(t, "have Kueue decide about "+workload.GetName(), func(ctx context.Context) error {
		if err := tree.Get(ctx, client.ObjectKeyFromObject(workload), workload); err != nil {
			return err
		}
		if admitted = isTrue(workload, "QuotaReserved"); admitted {
			return nil
		}
		if said = messageOf(workload, "QuotaReserved"); !strings.Contains(said, "couldn't assign flavors") {
			return fmt.Errorf("it says %q", said)
		}
		return nil
	})
	if admitted != (lack == nil) {
		t.Errorf("%s: Kueue admits it: %t (%s), and we said that it lacks %+v", workload.GetName(), admitted, said, lack)
	}
	return admitted
}

func podSetOf(t *testing.T, set v1alpha1.PodSet) map[string]any {
	t.Helper()
	limits := set.Requests
	spec := corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, NodeSelector: set.NodeSelector, Tolerations: set.Tolerations,
		Containers: []corev1.Container{{Name: "c", Image: "none", Resources: corev1.ResourceRequirements{Requests: limits, Limits: limits}}},
	}
	if set.NodeAffinity != nil {
		spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: set.NodeAffinity}}
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&spec)
	check.Must(t, err)
	return map[string]any{"name": set.Name, "count": int64(set.Count), "template": map[string]any{"spec": fields}}
}

// counted counts the quota as the hub and the agent do.
func (w *quotaWorld) counted(t *testing.T) *v1alpha1.KueueQuota {
	t.Helper()
	tally := capacity.NewTally()
	tally.CountQuota()
	for _, kind := range capacity.KueueKinds {
		list := kind.NewList()
		check.Must(t, w.List(t.Context(), list))
		for i := range list.Items {
			stripped, err := kueues.Strip(&list.Items[i])
			check.Must(t, err)
			tally.KueueHandler().OnAdd(stripped, true)
		}
	}
	tally.QuotaListed()
	return tally.Snapshot().Quota
}

func (w *quotaWorld) nodes(t *testing.T) *dispatch.Nodes {
	t.Helper()
	return dispatch.NewNodes(nil).WithQuota(quota.New(w.counted(t)), true)
}

// compareUsage expects that Kueue says of each queue of the tree what we have counted.
func (tree *tree) compareUsage(t *testing.T) {
	t.Helper()
	await(t, "have Kueue report what "+tree.name+" uses", func(ctx context.Context) error {
		for _, counted := range tree.counted(t).ClusterQueues {
			if !strings.HasPrefix(counted.Name, tree.name+"-") {
				continue
			}
			queue, want, got := kueueObject("ClusterQueue", "", counted.Name), map[string]string{}, map[string]string{}
			for _, used := range counted.Used {
				want[used.Flavor] = fmt.Sprint(used.Amount)
			}
			if err := tree.Get(ctx, client.ObjectKeyFromObject(queue), queue); err != nil {
				return err
			}
			flavors, _, _ := unstructured.NestedSlice(queue.Object, "status", "flavorsReservation")
			for _, flavor := range flavors {
				fields := flavor.(map[string]any)
				for _, r := range fields["resources"].([]any) {
					if total := r.(map[string]any)["total"]; total != nil && total != "0" {
						got[fields["name"].(string)] = fmt.Sprint(total)
					}
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				return fmt.Errorf("%s: -counted +reported:\n%s", counted.Name, diff)
			}
		}
		return nil
	})
}

// make creates an object. It tries again while the webhooks are not reachable.
func (w *quotaWorld) make(t *testing.T, object *unstructured.Unstructured) {
	t.Helper()
	await(t, fmt.Sprintf("create %s %s", object.GetKind(), object.GetName()), func(ctx context.Context) error {
		return w.Create(ctx, object)
	})
}

func (w *quotaWorld) awaitActive(t *testing.T, object *unstructured.Unstructured) {
	t.Helper()
	await(t, fmt.Sprintf("have %s %s active", object.GetKind(), object.GetName()), func(ctx context.Context) error {
		err := w.Get(ctx, client.ObjectKeyFromObject(object), object)
		if err == nil && !isTrue(object, "Active") {
			err = errors.New("it is not")
		}
		return err
	})
}

func messageOf(object *unstructured.Unstructured, condition string) string {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, c := range conditions {
		if fields, ok := c.(map[string]any); ok && fields["type"] == condition {
			message, _ := fields["message"].(string)
			return message
		}
	}
	return ""
}

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
	check.Must(t, yaml.UnmarshalStrict([]byte(gpuRuntime), &gpus.Spec))
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
	check.Must(t, err)
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
			check.Must(t, err)
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
