// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package capacityreport_test

import (
	"fmt"
	"strings"
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

	"github.com/trainyard/trainyard/api/kueues"
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
// before and after changes. Until then, the state names each missing thing.
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

	for round, act := range []func(){
		func() { w.applyKueue(t, "4", "") },
		func() {
			w.applyKueue(t, "9", ", {type: Finished, status: 'True'}")
			_, err := w.cluster.Kubectl(t.Context(), "delete", "clusterqueue", "other")
			check.Must(t, err)
		},
	} {
		act()
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

// kueueObjects are objects of all kinds. The quota of team, and whether the last Workload is over, change.
const kueueObjects = `
{apiVersion: kueue.x-k8s.io/v1beta2, kind: ResourceFlavor, metadata: {name: spot}, spec: {nodeLabels: {a: "1"}}}
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: Cohort, metadata: {name: research}, spec: {parentName: all, resourceGroups: [GROUP 7}]}]}]}}
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: ClusterQueue, metadata: {name: team}, spec: {cohortName: research, resourceGroups: [GROUP QUOTA}]}]}]}}
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: ClusterQueue, metadata: {name: other}, spec: {resourceGroups: [GROUP 2500m}]}]}]}}
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {name: main, namespace: default}, spec: {clusterQueue: team}}
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: Workload, metadata: {name: waits, namespace: default, OWNER TrainJob, name: waits, uid: u, controller: true}]}, SPEC}
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: Workload, metadata: {name: runs, namespace: default, OWNER TrainJob, name: runs, uid: u, controller: true}]}, SPEC, STATUS}]}}
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: Workload, metadata: {name: job, namespace: default, OWNER Job, name: job, uid: u, controller: true}]}, SPEC, STATUS}]}}
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: Workload, metadata: {name: ends, namespace: default, OWNER TrainJob, name: ends, uid: u, controller: true}]}, SPEC, STATUS}END]}}
`

func (w *world) applyKueue(t *testing.T, quota, end string) {
	t.Helper()
	check.Must(t, w.cluster.Apply(t.Context(), strings.NewReplacer(
		"GROUP", "{coveredResources: [cpu], flavors: [{name: spot, resources: [{name: cpu, nominalQuota:", "QUOTA", quota,
		"OWNER TrainJob", "ownerReferences: [{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob",
		"OWNER Job", "ownerReferences: [{apiVersion: batch/v1, kind: Job", "SPEC", "spec: {queueName: main, podSets: [{name: main, count: 2}]}",
		"STATUS", "status: {admission: {clusterQueue: team, podSetAssignments: [{name: main, count: 2, flavors: {cpu: spot}, "+
			"resourceUsage: {cpu: 3}}]}, conditions: [{type: QuotaReserved, status: 'True'", "END", end,
	).Replace(kueueObjects)))
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
		object := kind.New()
		object.SetName(name)
		if kind.Namespaced() {
			object.SetNamespace(metav1.NamespaceDefault)
		}
		if kind == kueues.KindWorkload {
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
