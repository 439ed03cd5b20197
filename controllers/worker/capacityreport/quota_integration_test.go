// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package capacityreport_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/capacity"
	"github.com/trainyard/trainyard/controllers/worker/capacityreport"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
)

// hubConfig has the token of the hub's service account.
func (w *world) hubConfig(t *testing.T) *rest.Config {
	t.Helper()
	hub := types.NamespacedName{Namespace: "trainyard-system", Name: "trainyard-hub"}
	kubeconfig, err := w.cluster.ServiceAccountKubeconfig(t.Context(), hub, time.Hour)
	check.Must(t, err)
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	check.Must(t, err)
	return config
}

// connectAs connects to the worker with these credentials. The connection requires quota.
func (w *world) connectAs(t *testing.T, name v1alpha1.ClusterName, config *rest.Config, source v1alpha1.CapacitySource) *remote.Cluster {
	t.Helper()
	system := &corev1.Namespace{}
	check.Must(t, w.admin.Get(t.Context(), client.ObjectKey{Name: metav1.NamespaceSystem}, system))
	w.fleet.Ensure(name, remote.Credentials{Config: config, Fingerprint: "1"}, system.UID, remote.CapacityFrom(source), remote.CountQuota(true))
	cluster, _ := w.fleet.Get(name)
	return cluster
}

// TestBothSourcesGiveTheSameQuota: a hub that reads Kueue's objects and a hub that reads the report see the same,
// whatever Kueue writes. Until then, the state names each missing thing.
func TestBothSourcesGiveTheSameQuota(t *testing.T) {
	w := newWorld(t)
	check.Must(t, w.cluster.InstallCRDs(t.Context(), "../../../config/crd/worker/trainyard.dev_capacityreports.yaml"))
	w.applyConfig(t, "namespace/namespace.yaml", "worker/service_account.yaml", "worker/cluster_role.yaml", "worker/cluster_role_binding.yaml")
	hub := w.hubConfig(t)
	counted := w.connectAs(t, "counted", hub, v1alpha1.CapacityFromPods)
	await(t, counted, capacity.QuotaMissing, "grant it to the hub's user (kubectl apply -k config/worker-kueue)")
	w.applyConfig(t, "worker-kueue/cluster_role.yaml", "worker-kueue/cluster_role_binding.yaml")
	await(t, counted, capacity.QuotaMissing, "the worker has no ClusterQueue of Kueue in version v1beta2")
	without := w.connectAs(t, "without", w.cluster.Config, v1alpha1.CapacityFromReport)
	await(t, without, capacity.ReportMissing, "")
	check.Must(t, w.cluster.ApplyFiles(t.Context(), "../../../capacity/testdata/kueue-crds.yaml"))
	// The reflectors ask again after up to a minute. A new connection asks at once.
	w.fleet.Remove("counted")
	counted = w.connectAs(t, "counted", hub, v1alpha1.CapacityFromPods)
	await(t, counted, capacity.Known, "")
	w.runReporter(t, capacityreport.Options{Quota: true})
	reported := w.connectAs(t, "reported", hub, v1alpha1.CapacityFromReport)
	await(t, reported, capacity.Known, "")

	random := rand.New(rand.NewPCG(1, 2))
	for round := range 3 {
		for range 40 {
			w.playKueue(t, random)
		}
		want := w.awaitFlavor(t, counted, fmt.Sprint("round-", round))
		got := w.awaitFlavor(t, reported, fmt.Sprint("round-", round))
		check.Diff(t, want, got, fmt.Sprintf("round %d: -counted +reported", round))
		if len(want.ClusterQueues) == 0 || len(want.LocalQueues) == 0 || len(want.Workloads) == 0 {
			t.Fatalf("round %d is too easy: %+v", round, want)
		}
	}
}

// TestReportWithoutQuota: a hub that asks for quota says so when the agent does not count it.
func TestReportWithoutQuota(t *testing.T) {
	w := newWorld(t)
	check.Must(t, w.cluster.InstallCRDs(t.Context(), "../../../config/crd/worker/trainyard.dev_capacityreports.yaml"))
	w.runReporter(t, capacityreport.Options{})
	await(t, w.connectAs(t, "asking", w.cluster.Config, v1alpha1.CapacityFromReport), capacity.QuotaMissing, "agent runs with --kueue-quota and may read")
	await(t, w.connect(t, v1alpha1.CapacityFromReport), capacity.Known, "")
}

// applyConfig applies files below config.
func (w *world) applyConfig(t *testing.T, files ...string) {
	t.Helper()
	for _, file := range files {
		check.Must(t, w.cluster.ApplyFiles(t.Context(), "../../../config/"+file))
	}
}

// playKueue creates, changes or deletes an object of a random kind.
func (w *world) playKueue(t *testing.T, random *rand.Rand) {
	t.Helper()
	kind := capacity.KueueKinds[random.IntN(len(capacity.KueueKinds))]
	object := kind.Object()
	object.SetName(fmt.Sprint("o", random.IntN(5)))
	if kind.Namespaced {
		object.SetNamespace(metav1.NamespaceDefault)
	}
	if random.IntN(5) == 0 {
		check.Must(t, client.IgnoreNotFound(w.admin.Delete(t.Context(), object)))
		return
	}
	groups := []any{map[string]any{"coveredResources": []any{"cpu"}, "flavors": []any{map[string]any{
		"name": fmt.Sprint("o", random.IntN(5)), "resources": []any{map[string]any{"name": "cpu", "nominalQuota": fmt.Sprintf("%dm", random.IntN(9000))}},
	}}}}
	switch kind.GVK.Kind {
	case "ClusterQueue":
		object.Object["spec"] = map[string]any{"cohortName": fmt.Sprint("o", random.IntN(5)), "resourceGroups": groups}
	case "Cohort":
		object.Object["spec"] = map[string]any{"parentName": fmt.Sprint("o", random.IntN(5)), "resourceGroups": groups}
	case "LocalQueue":
		object.Object["spec"] = map[string]any{"clusterQueue": fmt.Sprint("o", random.IntN(5))}
	case "ResourceFlavor":
		object.Object["spec"] = map[string]any{"nodeLabels": map[string]any{"a": fmt.Sprint(random.IntN(3))}}
	case "Workload":
		workload(object, random)
	}
	w.apply(t, object)
}

// workload is of a TrainJob or of a Job, and has reserved quota, has not yet, or is over.
func workload(object *unstructured.Unstructured, random *rand.Rand) {
	owner := metav1.OwnerReference{APIVersion: "trainer.kubeflow.org/v1alpha1", Kind: "TrainJob", Name: object.GetName(), UID: "u", Controller: new(true)}
	if random.IntN(4) == 0 {
		owner.APIVersion, owner.Kind = "batch/v1", "Job"
	}
	object.SetOwnerReferences([]metav1.OwnerReference{owner})
	object.Object["spec"] = map[string]any{"queueName": "o1", "podSets": []any{map[string]any{"name": "main", "count": int64(2)}}}
	if random.IntN(3) == 0 {
		return
	}
	conditions := []any{map[string]any{"type": "QuotaReserved", "status": "True"}}
	if random.IntN(4) == 0 {
		conditions = append(conditions, map[string]any{"type": "Finished", "status": "True"})
	}
	object.Object["status"] = map[string]any{"conditions": conditions, "admission": map[string]any{
		"clusterQueue": fmt.Sprint("o", random.IntN(5)), "podSetAssignments": []any{map[string]any{
			"name": "main", "count": int64(2), "flavors": map[string]any{"cpu": "o1"}, "resourceUsage": map[string]any{"cpu": fmt.Sprint(random.IntN(9))},
		}},
	}}
}

// apply creates or replaces an object.
func (w *world) apply(t *testing.T, object *unstructured.Unstructured) {
	t.Helper()
	before := object.DeepCopy()
	err := w.admin.Get(t.Context(), client.ObjectKeyFromObject(object), before)
	if err == nil {
		object.SetResourceVersion(before.GetResourceVersion())
		check.Must(t, w.admin.Update(t.Context(), object))
		return
	}
	check.Must(t, client.IgnoreNotFound(err))
	check.Must(t, w.admin.Create(t.Context(), object))
}

// awaitFlavor makes a flavor, and waits until a connection shows it and has seen everything else.
func (w *world) awaitFlavor(t *testing.T, cluster *remote.Cluster, name string) *v1alpha1.KueueQuota {
	t.Helper()
	marks := 0
	for _, kind := range capacity.KueueKinds {
		object := kind.Object()
		object.SetName(name)
		if kind.Namespaced {
			object.SetNamespace(metav1.NamespaceDefault)
		}
		if kind.GVK.Kind == "Workload" {
			object.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "trainer.kubeflow.org/v1alpha1", Kind: "TrainJob", Name: name, UID: "u", Controller: new(true)}})
		}
		w.apply(t, object)
		marks++
	}
	var quota *v1alpha1.KueueQuota
	gomega.NewWithT(t).Eventually(func() int {
		if quota = cluster.Inventory().Snapshot().Quota; quota == nil {
			return -1
		}
		return marked(quota, name)
	}, patience, tick).Should(gomega.Equal(marks), "%s is seen", name)
	return quota
}

// marked counts the objects of a name.
func marked(quota *v1alpha1.KueueQuota, name string) (found int) {
	count := func(is bool) {
		if is {
			found++
		}
	}
	for i := range quota.ClusterQueues {
		count(quota.ClusterQueues[i].Name == name)
	}
	for i := range quota.Cohorts {
		count(quota.Cohorts[i].Name == name)
	}
	for i := range quota.LocalQueues {
		count(quota.LocalQueues[i].Name == name)
	}
	for i := range quota.Flavors {
		count(quota.Flavors[i].Name == name)
	}
	for i := range quota.Workloads {
		count(quota.Workloads[i].Job == name)
	}
	return found
}
