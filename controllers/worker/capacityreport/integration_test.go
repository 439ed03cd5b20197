// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package capacityreport_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/capacity"
	"github.com/trainyard/trainyard/controllers/worker/capacityreport"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/stage"
)

const (
	patience = 90 * time.Second
	tick     = 20 * time.Millisecond
	gpu      = corev1.ResourceName("nvidia.com/gpu")
	npu      = corev1.ResourceName("example.com/npu") // Of devices.
	// marker is the name of a node and of a pod on it. Each round changes both last.
	marker = "marker"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	m.Run()
}

// world is a worker without controllers, and a fleet that is connected to it twice, once for each source of capacity.
type world struct {
	server  *stage.Server
	cluster *clusters.Cluster
	admin   client.Client
	fleet   *remote.Fleet
}

// TestBothSourcesGiveTheSameNumbers: a hub that reads nodes and pods and a hub that reads the report see the same,
// before and after changes on the worker. Until then, the state names each missing thing.
func TestBothSourcesGiveTheSameNumbers(t *testing.T) {
	w := newWorld(t)
	counted, reported := w.connect(t, v1alpha1.CapacityFromPods), w.connect(t, v1alpha1.CapacityFromReport)
	await(t, counted, capacity.Known, "")
	await(t, reported, capacity.ReportMissing, "no CapacityReport API")
	check.Must(t, w.cluster.InstallCRDs(t.Context(), "../../../config/crd/worker/trainyard.dev_capacityreports.yaml"))
	await(t, reported, capacity.ReportMissing, `no CapacityReport named "capacity"`)
	w.runReporter(t, capacityreport.Options{})
	await(t, reported, capacity.Known, "")

	for round, act := range []func(*testing.T){w.populate, w.change} {
		act(t)
		w.mark(t, round)
		awaitMark(t, counted, round)
		awaitMark(t, reported, round)
		want, got := awaitDevices(t, counted, int64(4-round), int64(4-round)/2), awaitDevices(t, reported, int64(4-round), int64(4-round)/2)
		check.Diff(t, grouped(want), grouped(got), fmt.Sprintf("round %d: nodes: -counted +reported", round))
		check.Diff(t, want.Gangs, got.Gangs, fmt.Sprintf("round %d: gangs: -counted +reported", round))
		check.Diff(t, usesOf(want), usesOf(got), fmt.Sprintf("round %d: what gangs use: -counted +reported", round))
		if len(want.Nodes) != 6-round || len(want.Gangs) == 0 || len(usesOf(want)) == 0 {
			t.Errorf("round %d is too easy: %d nodes, %d gangs", round, len(want.Nodes), len(want.Gangs))
		}
	}
	check.Must(t, w.cluster.Apply(t.Context(), `{apiVersion: resource.k8s.io/v1beta2, kind: DeviceTaintRule, metadata: {name: burnt}, spec: {
		deviceSelector: {driver: npu.example.com, device: b}, taint: {key: burnt, effect: NoExecute}}}`))
	awaitDevices(t, counted, 2, 1)
	awaitDevices(t, reported, 2, 1)
	_, err := w.cluster.Kubectl(t.Context(), "delete", "devicetaintrule", "burnt")
	check.Must(t, err)
	awaitDevices(t, counted, 3, 1)
	awaitDevices(t, reported, 3, 1)
}

// TestAgentWithoutNewRights: an agent that may not read DeviceTaintRules and ResourceClaimTemplates reports devices all the
// same, and says so to hubs.
func TestAgentWithoutNewRights(t *testing.T) {
	w := newWorld(t)
	check.Must(t, w.cluster.InstallCRDs(t.Context(), "../../../config/crd/worker/trainyard.dev_capacityreports.yaml"))
	read := []string{"get", "list", "watch"}
	agent := stage.Account(t, w.cluster, "agent",
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes", "pods"}, Verbs: read},
		rbacv1.PolicyRule{APIGroups: []string{"resource.k8s.io"}, Resources: []string{"resourceslices", "deviceclasses", "resourceclaims"}, Verbs: read},
		rbacv1.PolicyRule{APIGroups: []string{"trainyard.dev"}, Resources: []string{"capacityreports"}, Verbs: []string{"get", "create", "patch"}},
	)
	w.populate(t)
	w.runReporterAs(t, agent.Config, capacityreport.Options{})
	reported := w.connect(t, v1alpha1.CapacityFromReport)
	await(t, reported, capacity.Known, "the agent may not watch devicetaintrules.resource.k8s.io: grant it with kubectl apply -k config/worker-agent")
	await(t, reported, capacity.Known, "the agent may not watch resourceclaimtemplates.resource.k8s.io: grant it with kubectl apply -k config/worker-agent")
	awaitDevices(t, reported, 4, 0)
}

// TestWrites: the report is written when its content changes, at most once a second, and is renewed in time.
func TestWrites(t *testing.T) {
	w := newWorld(t)
	check.Must(t, w.cluster.InstallCRDs(t.Context(), "../../../config/crd/worker/trainyard.dev_capacityreports.yaml"))
	clock := clocktesting.NewFakeClock(time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC))
	w.createNode(t, "a", nil, corev1.ResourceList{"cpu": resource.MustParse("8")}, true)
	w.runReporter(t, capacityreport.Options{Clock: clock})
	first := w.awaitGeneration(t, 1)
	if len(first.NodeGroups) != 1 || first.RenewTime.Year() != 2040 || first.Name != v1alpha1.CapacityReportName {
		t.Errorf("first report: %+v", first)
	}
	// A node that differs only in its host name increases the number of its row.
	w.createNode(t, "b", map[string]string{corev1.LabelHostname: "b"}, corev1.ResourceList{"cpu": resource.MustParse("8")}, true)
	// The reporter may see the node before it is ready, and write that first.
	second := w.stepUntil(t, clock, func(report *v1alpha1.CapacityReport) bool {
		return len(report.NodeGroups) == 1 && report.NodeGroups[0].Rows[0].Nodes == 2
	})
	// A change with no effect on the report, such as a taint that keeps no pod off, causes no write.
	for i := range 20 {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b"}}
		patch := fmt.Sprintf(`{"spec": {"taints": [{"key": "soft-%d", "effect": "PreferNoSchedule"}]}}`, i)
		check.Must(t, w.admin.Patch(t.Context(), node, client.RawPatch(types.MergePatchType, []byte(patch))))
		awaitTimer(t, clock)
		clock.Step(time.Second)
	}
	awaitTimer(t, clock)
	if got := w.report(t).Generation; got != second.Generation {
		t.Errorf("%d writes for nothing", got-second.Generation)
	}
	renewed := w.stepUntil(t, clock, func(report *v1alpha1.CapacityReport) bool { return report.Generation > second.Generation })
	if after := renewed.RenewTime.Sub(second.RenewTime.Time); after < capacity.RenewInterval {
		t.Errorf("renewed after %s", after)
	}
	second.ObjectMeta, second.RenewTime, renewed.ObjectMeta, renewed.RenewTime = metav1.ObjectMeta{}, metav1.MicroTime{}, metav1.ObjectMeta{}, metav1.MicroTime{}
	check.Diff(t, second, renewed, "renewed")
}

func newWorld(t *testing.T) *world {
	t.Helper()
	cleanup := func(stop func() error) { t.Cleanup(func() { check.Must(t, stop()) }) }
	options := clusters.Options{
		Name: "worker", APIServerArgs: []string{"--runtime-config=resource.k8s.io/v1beta2=true"}, // For DeviceTaintRules before 1.37.
	}
	server, err := stage.StartServer(t.Context(), cleanup, options, clusters.JobSetCRDs)
	if err != nil {
		t.Fatalf("this test needs a real API server (make controlplane builds it): %v", err)
	}
	return &world{server: server, cluster: server.Cluster, admin: server.Admin, fleet: stage.StartFleet(t, remote.Options{})}
}

// connect connects to the worker. The connection has the name of the source.
func (w *world) connect(t *testing.T, source v1alpha1.CapacitySource) *remote.Cluster {
	t.Helper()
	name := v1alpha1.ClusterName(source)
	w.fleet.Ensure(name, remote.Credentials{Config: w.cluster.Config, Fingerprint: "1"}, w.server.ID, remote.CapacityFrom(source))
	cluster, _ := w.fleet.Get(name)
	return cluster
}

// runReporter runs a manager that has only the reporter until the test ends.
func (w *world) runReporter(t *testing.T, opts capacityreport.Options) {
	t.Helper()
	w.runReporterAs(t, w.cluster.Config, opts)
}

func (w *world) runReporterAs(t *testing.T, config *rest.Config, opts capacityreport.Options) {
	t.Helper()
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: w.admin.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
	})
	check.Must(t, err)
	check.Must(t, capacityreport.Add(mgr, opts))
	stage.RunFor(t, mgr)
}

func (w *world) report(t *testing.T) *v1alpha1.CapacityReport {
	t.Helper()
	report := &v1alpha1.CapacityReport{}
	check.Must(t, client.IgnoreNotFound(w.admin.Get(t.Context(), client.ObjectKey{Name: v1alpha1.CapacityReportName}, report)))
	return report
}

func (w *world) awaitGeneration(t *testing.T, least int64) *v1alpha1.CapacityReport {
	t.Helper()
	var report *v1alpha1.CapacityReport
	gomega.NewWithT(t).Eventually(func() int64 {
		report = w.report(t)
		return report.Generation
	}, patience, tick).Should(gomega.BeNumerically(">=", least))
	return report
}

func awaitTimer(t *testing.T, clock *clocktesting.FakeClock) {
	t.Helper()
	gomega.NewWithT(t).Eventually(clock.HasWaiters, patience, time.Millisecond).Should(gomega.BeTrue(), "somebody waits for the clock")
}

// stepUntil steps the clock second by second until the report is as it should be.
func (w *world) stepUntil(t *testing.T, clock *clocktesting.FakeClock, done func(*v1alpha1.CapacityReport) bool) *v1alpha1.CapacityReport {
	t.Helper()
	var report *v1alpha1.CapacityReport
	gomega.NewWithT(t).Eventually(func() bool {
		if report = w.report(t); done(report) {
			return true
		}
		if clock.HasWaiters() {
			clock.Step(time.Second)
		}
		return false
	}, patience, tick).Should(gomega.BeTrue())
	return report
}

// createNode creates a node with its status.
func (w *world) createNode(t *testing.T, name string, labels map[string]string, allocatable corev1.ResourceList, ready bool) *corev1.Node {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	check.Must(t, w.admin.Create(t.Context(), node))
	node.Status.Capacity, node.Status.Allocatable = allocatable, allocatable
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}}
	if ready {
		node.Status.Conditions[0].Status = corev1.ConditionTrue
	}
	check.Must(t, w.admin.Status().Update(t.Context(), node))
	return node
}

// await waits until a connection's capacity has this state and a message with these words.
func await(t *testing.T, cluster *remote.Cluster, state capacity.State, words string) {
	t.Helper()
	gomega.NewWithT(t).Eventually(func() string {
		status := cluster.Status()
		if status.State == remote.Connected && status.Capacity == state && strings.Contains(status.CapacityMessage, words) {
			return ""
		}
		return fmt.Sprintf("%s: %s: %d: %s", status.State, status.Message, status.Capacity, status.CapacityMessage)
	}, patience, tick).Should(gomega.BeEmpty())
}

// awaitMark waits until a connection shows the marker's changes of a round. Then it has seen all earlier changes.
func awaitMark(t *testing.T, cluster *remote.Cluster, round int) *capacity.Snapshot {
	t.Helper()
	var snapshot *capacity.Snapshot
	gomega.NewWithT(t).Eventually(func() bool {
		snapshot = cluster.Inventory().Snapshot()
		for _, node := range snapshot.Nodes {
			if node.Labels[marker] == fmt.Sprint(round) {
				return node.Used["cpu"] == int64(round+1)
			}
		}
		return false
	}, patience, tick).Should(gomega.BeTrue(), "round %d is seen", round)
	return snapshot
}

// awaitDevices waits until the nodes have a number of devices, and room for claims of two. They come by other watches than
// the mark.
func awaitDevices(t *testing.T, cluster *remote.Cluster, count, claims int64) (snapshot *capacity.Snapshot) {
	t.Helper()
	gomega.NewWithT(t).Eventually(func() (all [2]int64) {
		snapshot = cluster.Inventory().Snapshot()
		for _, node := range snapshot.Nodes {
			all[0] += node.Allocatable[npu] * int64(node.Count)
			for name, claims := range node.Allocatable {
				if v1alpha1.IsDeviceClaim(name) {
					all[1] += claims * int64(node.Count)
				}
			}
		}
		return all
	}, patience, tick).Should(gomega.Equal([2]int64{count, claims}))
	return snapshot
}

// grouped returns the nodes as placement groups them: the free amounts of usable nodes, and all amounts of the others.
func grouped(s *capacity.Snapshot) map[bool][]dispatch.NodeGroup {
	groups := map[bool][]dispatch.NodeGroup{}
	for _, node := range s.Nodes {
		free := dispatch.FreeOf(dispatch.Resources(node.Allocatable), dispatch.Resources(node.Used))
		groups[node.Schedulable] = append(groups[node.Schedulable], dispatch.NodeGroup{
			Labels: node.Labels, Taints: node.Taints, Free: free, Count: node.Count,
		})
	}
	for schedulable, nodes := range groups {
		groups[schedulable] = dispatch.NewNodes(nodes).Groups()
	}
	return groups
}

// usesOf counts the nodes on which the same gangs use the same amounts.
func usesOf(s *capacity.Snapshot) map[string]int {
	uses := map[string]int{}
	for _, node := range s.Nodes {
		if len(node.Gangs) > 0 {
			uses[fmt.Sprint(node.Allocatable, node.Used, node.Gangs)] += node.Count
		}
	}
	return uses
}

// pods are pods of all kinds that are counted in a way of their own, on the nodes of the test or on none.
const pods = `
{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: heavy}, handler: heavy, overhead: {podFixed: {cpu: 250m}}}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: npu}
spec: {extendedResourceName: example.com/npu}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: pair, namespace: default}
spec: {spec: {devices: {requests: [{name: npus, exactly: {deviceClassName: npu, count: 2, selectors: [cel: {expression: "device.driver != 'b'"}]}}]}}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: npus}
spec:
  {driver: npu.example.com, nodeName: gpu-2, pool: {name: gpu-2, generation: 1, resourceSliceCount: 1}, devices: [name: a, name: b, name: c, name: d]}
---
{apiVersion: v1, kind: Pod, metadata: {name: plain, namespace: default, finalizers: [example.com/kept]}, spec: {nodeName: gpu-0, containers: [MAIN]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: init, namespace: default}, spec: {nodeName: gpu-0, containers: [MAIN], initContainers: [FIRST}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: sidecar, namespace: default}, spec: {nodeName: cpu, containers: [MAIN], initContainers: [FIRST, restartPolicy: Always}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: heavy, namespace: default}, spec: {nodeName: cpu, runtimeClassName: heavy, containers: [MAIN]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: whole, namespace: default}, spec: {nodeName: gpu-1, resources: {requests: {cpu: 1750m}}, containers: [MAIN]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: unbound, namespace: default}, spec: {containers: [MAIN]}}
---
apiVersion: v1
kind: Pod
metadata: {name: daemon, namespace: default, ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: d, uid: d, controller: true}]}
spec: {nodeName: broken, tolerations: [{operator: Exists}], containers: [MAIN]}
---
{apiVersion: v1, kind: Pod, metadata: {name: a-0, namespace: default, labels: {GANG: a, STEP: node}}, spec: {nodeName: gpu-0, containers: [WITH_GPUS]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: a-1, namespace: default, labels: {GANG: a, STEP: node}}, spec: {nodeName: gpu-1, containers: [WITH_GPUS]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: b-0, namespace: default, labels: {GANG: b, STEP: launcher}}, spec: {nodeName: gpu-1, containers: [WITH_GPUS]}}
`

// populate makes nodes, and pods on them.
func (w *world) populate(t *testing.T) {
	t.Helper()
	amounts := func(gpus string) corev1.ResourceList {
		return corev1.ResourceList{
			"cpu": resource.MustParse("7910m"), "memory": resource.MustParse("64Gi"), "pods": resource.MustParse("110"),
			gpu: resource.MustParse(gpus),
		}
	}
	w.createNode(t, marker, nil, corev1.ResourceList{"cpu": resource.MustParse("1"), "pods": resource.MustParse("110")}, true)
	for name, gpus := range map[string]string{"gpu-0": "8", "gpu-1": "8", "gpu-2": "8", "cpu": "0", "broken": "8"} {
		labels := map[string]string{corev1.LabelHostname: name, "zone": name[:1]}
		w.createNode(t, name, labels, amounts(gpus), name != "broken")
	}
	check.Must(t, w.cluster.Apply(t.Context(), strings.NewReplacer(
		"MAIN", "{name: c, image: none, resources: {requests: {cpu: 300m}}}",
		"WITH_GPUS", "{name: c, image: none, resources: {requests: {cpu: 1}, limits: {nvidia.com/gpu: 2}}}",
		"FIRST", "{name: first, image: none, resources: {requests: {cpu: 2, memory: 1Gi}}",
		"GANG", "jobset.sigs.k8s.io/jobset-name", "STEP", "jobset.sigs.k8s.io/replicatedjob-name",
	).Replace(pods)))
}

// change taints, cordons and deletes nodes, and ends and deletes pods. The pods of a deleted node stay.
func (w *world) change(t *testing.T) {
	t.Helper()
	for name, patch := range map[string]string{
		"gpu-1": `{"spec": {"unschedulable": true}}`,
		"gpu-2": `{"spec": {"taints": [{"key": "b", "value": "v", "effect": "NoSchedule"}, {"key": "a", "effect": "PreferNoSchedule"}]}}`,
	} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		check.Must(t, w.admin.Patch(t.Context(), node, client.RawPatch(types.MergePatchType, []byte(patch))))
	}
	check.Must(t, w.admin.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "cpu"}}))
	check.Must(t, w.cluster.Apply(t.Context(), `{apiVersion: resource.k8s.io/v1, kind: ResourceSlice, metadata: {name: npus}, spec: {
		driver: npu.example.com, nodeName: gpu-2, pool: {name: gpu-2, generation: 2, resourceSliceCount: 1},
		devices: [{name: a}, {name: b}, {name: c}, {name: d, taints: [{key: sick, effect: NoSchedule}]}]}}`))
	pod := func(name string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}}
	}
	ended := client.RawPatch(types.MergePatchType, []byte(`{"status": {"phase": "Succeeded"}}`))
	check.Must(t, w.admin.Status().Patch(t.Context(), pod("b-0"), ended))
	check.Must(t, w.admin.Delete(t.Context(), pod("plain"))) // A finalizer keeps it.
	check.Must(t, w.admin.Delete(t.Context(), pod("init"), client.GracePeriodSeconds(0)))
}

// mark makes the last changes of a round.
func (w *world) mark(t *testing.T, round int) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: marker}}
	check.Must(t, client.IgnoreNotFound(w.admin.Delete(t.Context(), pod, client.GracePeriodSeconds(0))))
	pod.ResourceVersion = ""
	requests := corev1.ResourceList{"cpu": *resource.NewMilliQuantity(int64(round+1), resource.DecimalSI)}
	pod.Spec = corev1.PodSpec{NodeName: marker, Containers: []corev1.Container{{
		Name: "c", Image: "none", Resources: corev1.ResourceRequirements{Requests: requests},
	}}}
	check.Must(t, w.admin.Create(t.Context(), pod))
	patch := fmt.Sprintf(`{"metadata": {"labels": {%q: "%d"}}}`, marker, round)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: marker}}
	check.Must(t, w.admin.Patch(t.Context(), node, client.RawPatch(types.MergePatchType, []byte(patch))))
}
