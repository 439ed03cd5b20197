// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package drift_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/drift"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/internal/perworker"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/stage"
)

const workerName = v1alpha1.ClusterName("worker")

// hub is what a manager runs to compare runtimes.
type hub struct {
	*drift.States
	watch *drift.Hub
	set   *perworker.Set[*remote.Cluster]
}

var running hub

var shared = stage.Share(func(ctx context.Context, s *stage.Stage) error {
	if err := errors.Join(s.StartCaches(ctx), s.Connect(remote.Options{Scheme: s.Scheme})); err != nil {
		return err
	}
	running = newHub(s)
	s.Cleanup(stage.Run(running.set))
	s.Cleanup(stage.Run(running.watch))
	return nil
}, string(workerName))

func TestMain(m *testing.M) { shared.Main(m) }

func newHub(s *stage.Stage) hub {
	h := hub{States: &drift.States{HubID: stage.HubID}}
	h.watch = &drift.Hub{Cache: s.Cache, States: h.States}
	all := drift.NewShared(h.States, s.Hub.Admin)
	h.set = perworker.NewSet(s.Cache, logr.Discard(), perworker.Kind[*remote.Cluster]{
		Name: drift.Name, Concurrency: 1, Apart: true, Sources: h.States.Events,
		New: func(_ context.Context, worker v1alpha1.ClusterName, connection *remote.Cluster, _ func() bool) (reconcile.Reconciler, error) {
			return drift.NewReconciler(drift.Options{
				Cluster: worker, Hub: s.Cached, Worker: connection, Cache: connection.Cache(),
				Shared: all, Clock: clock.RealClock{},
			}), nil
		},
		Sweep: func(_ context.Context, worker v1alpha1.ClusterName, _ *remote.Cluster) (bool, error) {
			h.watch.Return(worker)
			return false, nil
		},
	})
	h.watch.Enqueue = func(worker v1alpha1.ClusterName, key types.NamespacedName) { h.set.Enqueue(drift.Name, worker, key) }
	return h
}

// scene has a worker that has joined, and a namespace for runtimes.
type scene struct {
	*stage.Scene
	worker *stage.Server
	hub
}

func newScene(t *testing.T) *scene {
	t.Helper()
	all := shared.Get(t)
	s := &scene{Scene: all.Scene(t), worker: all.Workers[0], hub: running}
	check.Must(t, s.set.Join(workerName, s.worker.Connection))
	return s
}

// write creates or replaces a runtime of the scene's namespace from the YAML of its spec.
func (s *scene) write(t *testing.T, on *stage.Server, name, spec string, changes ...func(*unstructured.Unstructured)) {
	t.Helper()
	runtime := newRuntime()
	runtime.SetNamespace(s.Namespace)
	runtime.SetName(name)
	var fields map[string]any
	check.Must(t, yaml.Unmarshal([]byte(spec), &fields))
	runtime.Object["spec"] = fields
	for _, change := range changes {
		change(runtime)
	}
	before := newRuntime()
	switch err := on.Admin.Get(t.Context(), client.ObjectKeyFromObject(runtime), before); {
	case client.IgnoreNotFound(err) != nil:
		t.Fatal(err)
	case err != nil:
		check.Must(t, on.Admin.Create(t.Context(), runtime))
	default:
		runtime.SetResourceVersion(before.GetResourceVersion())
		check.Must(t, on.Admin.Update(t.Context(), runtime))
	}
}

func newRuntime() *unstructured.Unstructured {
	runtime := &unstructured.Unstructured{}
	runtime.SetGroupVersionKind(trainer.SchemeGroupVersion.WithKind(trainer.TrainingRuntimeKind))
	return runtime
}

func (s *scene) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: name}
}

// settled returns what is known of a runtime, once it is about what the hub and the worker have now.
func (s *scene) settled(t *testing.T, name string) (known dispatch.Comparison) {
	t.Helper()
	check.Eventually(t, "the comparison of runtime "+name, func(g gomega.Gomega) {
		onHub, onWorker := newRuntime(), newRuntime()
		g.Expect(s.Hub.Admin.Get(t.Context(), s.key(name), onHub)).To(gomega.Succeed())
		g.Expect(s.worker.Admin.Get(t.Context(), s.key(name), onWorker)).To(gomega.Succeed())
		cached := &metav1.PartialObjectMetadata{}
		cached.SetGroupVersionKind(onHub.GroupVersionKind())
		g.Expect(s.worker.Connection.Cache().Get(t.Context(), s.key(name), cached)).To(gomega.Succeed())
		g.Expect(cached.ResourceVersion).To(gomega.Equal(onWorker.GetResourceVersion()))
		known, _ = s.States.Of(workerName).Of(s.key(name))
		g.Expect(known.Version).To(gomega.Equal(fmt.Sprintf("%s.%d", onHub.GetUID(), onHub.GetGeneration())))
	})
	return known
}

// status is what the status of the worker says of the scene's runtimes.
func (s *scene) status() []v1alpha1.WorkerRuntime {
	return slices.DeleteFunc(s.States.Status(workerName, nil, time.Unix(1, 0)), func(runtime v1alpha1.WorkerRuntime) bool {
		return runtime.Namespace != s.Namespace
	})
}

// dryRuns is how often the worker was asked.
func dryRuns(t *testing.T) (sum float64) {
	t.Helper()
	families, err := metrics.Registry.Gather()
	check.Must(t, err)
	for _, family := range families {
		if family.GetName() != "trainyard_worker_requests_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, pair := range m.GetLabel() {
				labels[pair.GetName()] = pair.GetValue()
			}
			if labels["cluster"] == string(workerName) && labels["verb"] == "patch" {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

const torch = `
mlPolicy: {numNodes: 2, torch: {}}
template:
  spec:
    replicatedJobs:
    - name: node
      template:
        metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
        spec:
          template:
            spec:
              containers:
              - name: node
                image: example.com/torch:1
                env: [{name: A, value: "1"}]
                resources: {requests: {cpu: "1", example.com/gpu: "8"}}
`

// What people write on both sides in their own ways is no difference: the order of keys, notations of amounts, what a
// client or the API server fills in, a TTL, and what a webhook of the worker does to each runtime.
func TestNoFalseAlarm(t *testing.T) {
	for name, tc := range map[string]struct{ hub, worker string }{
		"same":     {hub: torch, worker: torch},
		"keyorder": {hub: torch, worker: reordered(t, torch)},
		"amounts":  {hub: torch, worker: strings.NewReplacer(`cpu: "1"`, "cpu: 1000m", `gpu: "8"`, "gpu: 8").Replace(torch)},
		"defaults": {hub: torch, worker: strings.NewReplacer("- name: node\n      template:", "- name: node\n      replicas: 1\n      groupName: default\n      template:",
			"image: example", "terminationMessagePath: null\n                image: example").Replace(torch)},
		"ttl":    {hub: torch, worker: strings.Replace(torch, "  spec:\n    replicatedJobs", "  spec:\n    ttlSecondsAfterFinished: 60\n    replicatedJobs", 1)},
		"hubttl": {worker: torch, hub: strings.Replace(torch, "  spec:\n    replicatedJobs", "  spec:\n    ttlSecondsAfterFinished: 60\n    replicatedJobs", 1)},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.write(t, s.Hub, name, tc.hub)
			s.write(t, s.worker, name, tc.worker)
			if known := s.settled(t, name); known.State != "" {
				t.Errorf("%s %v: %s", known.State, known.Paths, known.Message)
			}
		})
	}
	t.Run("webhook", func(t *testing.T) {
		s := newScene(t)
		s.mutate(t)
		s.write(t, s.Hub, "webhook", torch)
		// The policy counts when the API server has seen it.
		check.Eventually(t, "the worker to change runtimes", func(g gomega.Gomega) {
			s.write(t, s.worker, "webhook", torch)
			there := newRuntime()
			g.Expect(s.worker.Admin.Get(t.Context(), s.key("webhook"), there)).To(gomega.Succeed())
			label, _, _ := unstructured.NestedString(there.Object, "spec", "template", "metadata", "labels", "mutated")
			if label == "" {
				g.Expect(s.worker.Admin.Delete(t.Context(), there)).To(gomega.Succeed())
			}
			g.Expect(label).To(gomega.Equal("yes"))
		})
		if known := s.settled(t, "webhook"); known.State != "" {
			t.Errorf("%s %v: %s", known.State, known.Paths, known.Message)
		}
	})
}

// reordered is the same spec as JSON, whose keys are sorted.
func reordered(t *testing.T, spec string) string {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(spec))
	check.Must(t, err)
	return string(data)
}

// mutate has the worker's admission label the JobSets of the scene's runtimes.
func (s *scene) mutate(t *testing.T) {
	t.Helper()
	name := "drift-" + s.Namespace
	s.worker.Create(t, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"failurePolicy": "Fail", "reinvocationPolicy": "Never",
			"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{
				"apiGroups": []any{"trainer.kubeflow.org"}, "apiVersions": []any{"*"}, "resources": []any{"trainingruntimes"},
				"operations": []any{"CREATE", "UPDATE"},
			}}},
			"matchConditions": []any{map[string]any{"name": "ours", "expression": fmt.Sprintf("request.namespace == '%s'", s.Namespace)}},
			"mutations": []any{map[string]any{"patchType": "JSONPatch", "jsonPatch": map[string]any{
				"expression": "[JSONPatch{op: 'add', path: '/spec/template/metadata', value: {'labels': {'mutated': 'yes'}}}]",
			}}},
		},
	}})
	s.worker.Create(t, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding",
		"metadata": map[string]any{"name": name}, "spec": map[string]any{"policyName": name},
	}})
}

// A runtime that somebody edits on the worker differs, with the path, until it is edited back.
func TestEditedOnTheWorker(t *testing.T) {
	s := newScene(t)
	s.write(t, s.Hub, "edited", torch)
	s.write(t, s.worker, "edited", torch)
	check.Equal(t, "", string(s.settled(t, "edited").State), "state of an equal runtime")

	s.write(t, s.worker, "edited", strings.NewReplacer("torch:1", "torch:2", `gpu: "8"`, `gpu: "4"`).Replace(torch))
	known := s.settled(t, "edited")
	check.Equal(t, v1alpha1.RuntimeDiffers, known.State, "state of an edited runtime")
	const container = "spec.template.spec.replicatedJobs[0].template.spec.template.spec.containers[0]"
	check.Diff(t, []string{container + ".image", container + ".resources.requests['example.com/gpu']"}, known.Paths, "paths")
	check.Equal(t, true, known.Demand, "whether the demand depends on it")
	own := s.States.Own(s.key("edited"))
	if own == nil || own.On[workerName].Own != known.Own || known.Own == nil {
		t.Fatalf("the spec of the worker's runtime is not known: %+v", known)
	}
	there, err := json.Marshal(s.get(t, s.worker, "edited").Object["spec"])
	check.Must(t, err)
	check.Equal(t, string(there), string(known.Own.JSON), "the spec of the worker's runtime")
	status := s.status()
	if len(status) != 1 || status[0].Name != "edited" || status[0].Namespace != s.Namespace || status[0].Kind != trainer.TrainingRuntimeKind {
		t.Errorf("the status has %+v", status)
	}

	s.write(t, s.worker, "edited", torch)
	check.Equal(t, "", string(s.settled(t, "edited").State), "state of a runtime that was edited back")
	if own := s.States.Own(s.key("edited")); own != nil {
		t.Errorf("of a runtime that was edited back, %+v is kept", own.On)
	}

	// What makes the same pods is not kept, and neither is what is too large.
	s.write(t, s.worker, "edited", strings.Replace(torch, "torch:1", "torch:2", 1))
	if known := s.settled(t, "edited"); known.State != v1alpha1.RuntimeDiffers || known.Own != nil || known.Assumed != "" {
		t.Errorf("of a runtime with another image, %+v is known", known)
	}
	s.write(t, s.worker, "edited", strings.NewReplacer("torch:1", "torch:2", `gpu: "8"`, `gpu: "4"`, `value: "1"`, "value: "+strings.Repeat("x", 64<<10)).Replace(torch))
	if known := s.settled(t, "edited"); !known.Demand || known.Own != nil || !strings.Contains(known.Assumed, "at most 65536") {
		t.Errorf("of a runtime that is too large, %+v is known", known)
	}
	check.Must(t, s.worker.Admin.Delete(t.Context(), s.get(t, s.worker, "edited")))
	check.Eventually(t, "the runtime to be forgotten", func(g gomega.Gomega) {
		_, has := s.States.Of(workerName).Of(s.key("edited"))
		g.Expect(has).To(gomega.BeFalse())
	})
}

func (s *scene) get(t *testing.T, on *stage.Server, name string) *unstructured.Unstructured {
	t.Helper()
	runtime := newRuntime()
	check.Must(t, on.Admin.Get(t.Context(), s.key(name), runtime))
	return runtime
}

// A worker is asked once for each version of either side, whatever else happens: nothing is asked when the hub only looks,
// when labels change, when the worker comes back, or when the connection is a new one.
func TestAskedOnce(t *testing.T) {
	s := newScene(t)
	s.write(t, s.Hub, "once", torch)
	s.write(t, s.worker, "once", torch)
	s.settled(t, "once")
	before := dryRuns(t)
	expect := func(count float64, what string) {
		t.Helper()
		s.settled(t, "once")
		if got := dryRuns(t) - before; got != count {
			t.Errorf("%s: the worker was asked %v times, want %v", what, got, count)
		}
		before = dryRuns(t)
	}
	s.write(t, s.Hub, "once", strings.Replace(torch, "torch:1", "torch:2", 1))
	expect(1, "changed on the hub")
	s.write(t, s.worker, "once", strings.Replace(torch, "torch:1", "torch:2", 1))
	expect(1, "changed on the worker")
	labeled := func(runtime *unstructured.Unstructured) { runtime.SetLabels(map[string]string{"note": "x"}) }
	s.write(t, s.worker, "once", strings.Replace(torch, "torch:1", "torch:2", 1), labeled)
	s.write(t, s.Hub, "once", strings.Replace(torch, "torch:1", "torch:2", 1), labeled)
	expect(0, "labeled")
	for range 20 {
		s.watch.Enqueue(workerName, s.key("once"))
	}
	s.set.Leave(workerName)
	check.Must(t, s.set.Join(workerName, s.worker.Connection))
	check.Eventually(t, "the runtimes to be listed again", func(g gomega.Gomega) {
		job := dispatch.Job{RequiredRuntime: &dispatch.RequiredRuntime{Key: s.key("nowhere"), Version: "v", Propagated: true}}
		decision := dispatch.Decide(job, nil, []dispatch.Worker{{Name: workerName, Nodes: dispatch.NewNodes(nil), Runtimes: s.States.Of(workerName)}})
		g.Expect(decision.Cluster).To(gomega.Equal(workerName), decision.Message)
	})
	// A key that comes later is handled later: the controller has one goroutine.
	s.write(t, s.Hub, "later", torch)
	s.write(t, s.worker, "later", torch)
	s.settled(t, "later")
	expect(1, "of another runtime, while this one has come back")
}

// If the worker's CRD does not know a field of the hub's runtime, the state names the field.
func TestUnknownField(t *testing.T) {
	s := newScene(t)
	s.extendCRD(t)
	s.write(t, s.worker, "newer", torch)
	check.Eventually(t, "the hub to take the field", func(g gomega.Gomega) {
		if runtime := newRuntime(); s.Hub.Admin.Get(t.Context(), s.key("newer"), runtime) == nil {
			g.Expect(s.Hub.Admin.Delete(t.Context(), runtime)).To(gomega.Succeed())
		}
		s.write(t, s.Hub, "newer", torch+"fieldOfTomorrow: x\n")
		_, has := s.get(t, s.Hub, "newer").Object["spec"].(map[string]any)["fieldOfTomorrow"]
		g.Expect(has).To(gomega.BeTrue())
	})
	known := s.settled(t, "newer")
	check.Equal(t, v1alpha1.RuntimeUnsupported, known.State, "state of %+v", known)
	if !strings.Contains(known.Message, `unknown field "spec.fieldOfTomorrow"`) || len(known.Message) > 200 {
		t.Errorf("the words are %q", known.Message)
	}
	check.Diff(t, []string{"spec.fieldOfTomorrow"}, known.Paths, "paths")
	if known.Own == nil {
		t.Errorf("the worker makes pods with a runtime that is not known: %+v", known)
	}
}

// extendCRD gives the hub's TrainingRuntimes a field, as a later release of Trainer would.
func (s *scene) extendCRD(t *testing.T) {
	t.Helper()
	crd := &unstructured.Unstructured{}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind("CustomResourceDefinition")
	crd.SetName("trainingruntimes.trainer.kubeflow.org")
	const field = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/fieldOfTomorrow"
	patch, err := json.Marshal([]map[string]any{{"op": "add", "path": field, "value": map[string]any{"type": "string"}}})
	check.Must(t, err)
	check.Must(t, s.Hub.Admin.Patch(t.Context(), crd, client.RawPatch(types.JSONPatchType, patch)))
}

// What the manager has made is known without a question. What it has made from an earlier version is no alarm, since the
// next job that needs it has it replaced; edits of others are.
func TestRuntimeOfTheManager(t *testing.T) {
	s := newScene(t)
	s.write(t, s.Hub, "ours", torch)
	made := func(runtime *unstructured.Unstructured) {
		onHub := s.get(t, s.Hub, "ours")
		runtime.SetLabels(map[string]string{v1alpha1.LabelPropagatedBy: stage.HubID})
		runtime.SetAnnotations(map[string]string{
			v1alpha1.AnnotationSource: fmt.Sprintf("%s.%d.%s", onHub.GetUID(), onHub.GetGeneration(), v1alpha1.SourceReplaced),
		})
	}
	before := dryRuns(t)
	s.write(t, s.worker, "ours", torch, made)
	if known := s.settled(t, "ours"); known.State != "" || known.Foreign || known.Outdated || dryRuns(t) != before {
		t.Errorf("%+v after %v questions", known, dryRuns(t)-before)
	}
	s.write(t, s.Hub, "ours", strings.Replace(torch, "torch:1", "torch:2", 1))
	known := s.settled(t, "ours")
	if known.State != v1alpha1.RuntimeDiffers || !known.Outdated || len(s.status()) > 0 {
		t.Errorf("of an earlier version: %+v", known)
	}
	s.write(t, s.worker, "ours", strings.Replace(torch, "torch:1", "torch:3", 1), made)
	known = s.settled(t, "ours")
	if known.State != v1alpha1.RuntimeDiffers || known.Outdated || len(s.status()) != 1 {
		t.Errorf("edited by somebody: %+v", known)
	}
}

// Of a runtime that only one side has nothing is said, and nothing is asked. It is compared when the other has it too.
func TestOnOneSide(t *testing.T) {
	s := newScene(t)
	before := dryRuns(t)
	s.write(t, s.worker, "pinned", torch, func(runtime *unstructured.Unstructured) {
		runtime.SetLabels(map[string]string{v1alpha1.LabelPropagatedBy: stage.HubID, v1alpha1.LabelPinned: "digest"})
	})
	s.write(t, s.worker, "lonely", torch)
	check.Eventually(t, "the runtime to be seen", func(g gomega.Gomega) {
		known, has := s.States.Of(workerName).Of(s.key("lonely"))
		g.Expect(has && known.Version != "").To(gomega.BeTrue())
		g.Expect(known.Foreign).To(gomega.BeTrue(), "the hub has not made it")
	})
	if _, has := s.States.Of(workerName).Of(s.key("pinned")); has {
		t.Error("a pinned runtime, which comes and goes with jobs, is looked at")
	}
	check.Equal(t, before, dryRuns(t), "questions about a runtime that the hub does not have")
	s.write(t, s.Hub, "lonely", strings.Replace(torch, "numNodes: 2", "numNodes: 3", 1))
	known := s.settled(t, "lonely")
	check.Diff(t, []string{"spec.mlPolicy.numNodes"}, known.Paths, "paths when the hub has it too")
	check.Must(t, s.Hub.Admin.Delete(t.Context(), s.get(t, s.Hub, "lonely")))
	check.Eventually(t, "the difference to be forgotten", func(g gomega.Gomega) {
		g.Expect(s.status()).To(gomega.BeEmpty())
	})
}

// Without the right to patch runtimes, the state is Unknown, and the words name the right. It is not asked again at once.
func TestWithoutRights(t *testing.T) {
	s := newScene(t)
	credentials := stage.Account(t, s.worker.Cluster, "reader", rbacv1.PolicyRule{
		APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch"},
	})
	fleet := stage.StartFleet(t, remote.Options{Scheme: s.Scheme})
	fleet.Ensure("reader", credentials, s.worker.ID)
	connection, _ := fleet.Get("reader")
	stage.AwaitConnected(t, connection)
	s.write(t, s.Hub, "hidden", torch)
	s.write(t, s.worker, "hidden", torch)
	s.settled(t, "hidden") // Both caches have it.

	states := &drift.States{HubID: stage.HubID}
	reconciler := drift.NewReconciler(drift.Options{
		Cluster: "reader", Hub: s.Cached, Worker: connection, Cache: connection.Cache(),
		Shared: drift.NewShared(states, s.Hub.Admin), Clock: s.Clock,
	})
	known := func() dispatch.Comparison {
		t.Helper()
		_, err := reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: s.key("hidden")})
		check.Must(t, err)
		comparison, _ := states.Of("reader").Of(s.key("hidden"))
		return comparison
	}
	check.Eventually(t, "the answer", func(g gomega.Gomega) { g.Expect(known().Version).NotTo(gomega.BeEmpty()) })
	if got := known(); got.State != v1alpha1.RuntimeUnknown || !strings.Contains(got.Message, `cannot patch resource "trainingruntimes"`) {
		t.Errorf("without the right: %+v", got)
	}
	stage.Grant(t, s.worker.Cluster, "patcher", "reader", rbacv1.PolicyRule{
		APIGroups: []string{"trainer.kubeflow.org"}, Resources: []string{"trainingruntimes"}, Verbs: []string{"patch"},
	})
	check.Equal(t, v1alpha1.RuntimeUnknown, known().State, "state before an hour is over")
	s.Clock.Step(time.Hour)
	check.Eventually(t, "the worker to be asked again", func(g gomega.Gomega) {
		s.Clock.Step(time.Hour)
		g.Expect(known().State).To(gomega.BeEmpty())
	})
}
