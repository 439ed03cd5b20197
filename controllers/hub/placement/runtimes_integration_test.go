// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/stage"
)

// knownRuntimes are what a test says of the runtimes of workers.
type knownRuntimes map[v1alpha1.ClusterName]*dispatch.Runtimes

func (k knownRuntimes) Of(worker v1alpha1.ClusterName) *dispatch.Runtimes { return k[worker] }

func (k knownRuntimes) Own(runtime types.NamespacedName) *dispatch.OwnRuntimes {
	own := &dispatch.OwnRuntimes{On: map[v1alpha1.ClusterName]dispatch.Comparison{}}
	for worker := range k {
		if known, _ := k[worker].Of(runtime); known.Own != nil {
			own.On[worker] = known
		}
	}
	if len(own.On) == 0 {
		return nil
	}
	return own
}

func (k knownRuntimes) Subscribe(func(v1alpha1.ClusterName, []types.NamespacedName)) (cancel func()) {
	return func() {}
}

var torchKey = types.NamespacedName{Name: "torch-distributed"}

// torchIs are the runtimes of a worker that has only torch.
func torchIs(comparison dispatch.Comparison) *dispatch.Runtimes {
	return dispatch.NewRuntimes(map[types.NamespacedName]dispatch.Comparison{torchKey: comparison}, true)
}

// torchVersion is the version of the runtime of the tests' jobs on the hub.
func (s *scene) torchVersion(t *testing.T) string {
	t.Helper()
	runtime := &trainer.ClusterTrainingRuntime{}
	check.Must(t, s.Hub.Admin.Get(t.Context(), client.ObjectKey{Name: torchKey.Name}, runtime))
	return fmt.Sprintf("%s.%d", runtime.UID, runtime.Generation)
}

// A job whose policy says Same waits until it is known that a worker has the hub's runtime, and then runs there and on no
// other worker. The status of the WorkerClusters does not count beside what the process knows.
func TestSameRuntime(t *testing.T) {
	s := newScene(t)
	known := knownRuntimes{}
	s.runtimes = known
	s.restart(t)
	s.Policy(t, v1alpha1.DispatchPolicySpec{Runtime: v1alpha1.RuntimeSame})
	s.Submit(t, "same")
	reasons := reasonsOf(s.expect(t, "same", v1alpha1.ReasonNoFit))
	for _, worker := range []v1alpha1.ClusterName{east, west} {
		if want := "RuntimeDiffers: it is not known yet whether ClusterTrainingRuntime torch-distributed"; !strings.HasPrefix(reasons[worker], want) {
			t.Errorf("nothing is known, and %s is %q", worker, reasons[worker])
		}
	}

	version := s.torchVersion(t)
	known[east] = torchIs(dispatch.Comparison{Version: version, State: v1alpha1.RuntimeDiffers, Paths: []string{"spec.mlPolicy.numNodes"}})
	s.Clock.Step(explanationInterval) // Only the words have changed.
	reasons = reasonsOf(s.expect(t, "same", v1alpha1.ReasonNoFit))
	if want := "RuntimeDiffers: ClusterTrainingRuntime torch-distributed of the worker is not the hub's: it differs in spec.mlPolicy.numNodes"; reasons[east] != want {
		t.Errorf("east is %q, want %q", reasons[east], want)
	}
	known[west] = torchIs(dispatch.Comparison{Version: version})
	d, _ := s.reconcile(t, "same")
	check.Equal(t, west, d.Spec.Cluster, "the worker of the job")
}

// ownTorch is the comparison with a worker's torch, of which each of some pods requests so many GPUs.
func ownTorch(version string, pods, gpus int) dispatch.Comparison {
	return ownRuntime(version, fmt.Sprintf(`{"mlPolicy": {"numNodes": %d, "torch": {}}, "template": {"spec": {"replicatedJobs": [{
		"name": "node", "template": {"metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}, "spec": {"template": {"spec": {
		"containers": [{"name": "node", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "%d"}}}]}}}}}]}}}`, pods, gpus))
}

func ownRuntime(version, spec string) dispatch.Comparison {
	return dispatch.Comparison{
		Version: version, State: v1alpha1.RuntimeDiffers, Foreign: true, Demand: true, Paths: []string{"spec.mlPolicy.numNodes"},
		Own: &dispatch.RuntimeSpec{Digest: fmt.Sprintf("%x", sha256.Sum256([]byte(spec))), JSON: []byte(spec)},
	}
}

// plain leaves the number of pods and what they request to the runtime.
func plain(job *trainer.TrainJob) { job.Spec.Trainer = nil }

// A worker whose own runtime asks for more than the worker has is not given the job, although the hub's runtime asks for
// less. When its runtime is changed, the waiting job is woken and runs there. The Dispatch has the pods and the digest of
// that runtime, and the words say what was counted.
func TestOwnRuntimeIsCounted(t *testing.T) {
	s := newScene(t)
	version := s.torchVersion(t)
	large := ownTorch(version, 3, 8) // A worker has two nodes with eight GPUs.
	known := knownRuntimes{east: torchIs(large), west: torchIs(large)}
	s.runtimes = known
	s.restart(t)
	s.Submit(t, "own", plain)
	d := s.expect(t, "own", v1alpha1.ReasonNoFit)
	const words = "the pods are counted as the worker's own ClusterTrainingRuntime \"torch-distributed\" makes them"
	for _, line := range d.Status.Explanation {
		if !strings.HasPrefix(line.Message, "lacks ") || !strings.Contains(line.Message, words) {
			t.Errorf("the explanation of %s is %s: %q, want what it lacks, and %q", line.Cluster, line.Reason, line.Message, words)
		}
	}

	small := ownTorch(version, 2, 8)
	known[east] = torchIs(small)
	s.drain()
	s.reconciler.runtimesChanged(east, []types.NamespacedName{torchKey})
	if !s.drain()[s.Key("own")] {
		t.Fatal("the change of the worker's runtime does not wake the waiting job")
	}
	d, _ = s.reconcile(t, "own")
	check.Equal(t, east, d.Spec.Cluster, "the worker of a job with %+v", d.Status)
	if len(d.Spec.PodSets) != 1 || d.Spec.PodSets[0].Count != 2 || d.Spec.PodSets[0].Requests.Name(gpu, resource.DecimalSI).Value() != 8 {
		t.Errorf("the PodSets are %+v, want those of the worker's runtime", d.Spec.PodSets)
	}
	check.Equal(t, small.Own.Digest, d.Spec.Counted.WorkerRuntime, "spec.counted.workerRuntime")
	check.Equal(t, version, d.Spec.Counted.Runtime, "spec.counted.runtime")
	if said := d.Annotations[v1alpha1.AnnotationDecision]; !strings.Contains(said, words) {
		t.Errorf("the decision is %q, want %q in it", said, words)
	}
	if events := strings.Join(s.Events.About("own"), "\n"); strings.Contains(events, "RuntimeDiffers") {
		t.Errorf("Events %q: what the worker makes was counted", events)
	}

	// So it is for a copy that is adopted on one of the workers.
	for worker, pods := range map[v1alpha1.ClusterName]int32{east: 2, west: 3} {
		needs, err := s.reconciler.Demand(t.Context(), stage.ReadTrainJob(t, s.Hub.Admin, s.Key("own")), worker)
		check.Must(t, err)
		check.Equal(t, pods, needs.PodSets[0].Count, "pods of the job on %s", worker)
	}

	// The room that is left on east is what the worker's runtime leaves.
	s.Submit(t, "next", plain)
	reasons := reasonsOf(s.expect(t, "next", v1alpha1.ReasonNoFit))
	if !strings.Contains(reasons[east], "lacks 16 nvidia.com/gpu") {
		t.Errorf("east is %q for the next job", reasons[east])
	}
}

// A manager that starts places nothing before it knows again which pods a worker makes with the runtimes that were not the
// hub's before. So a job that waits because of them goes on waiting.
func TestOwnRuntimesAreAwaitedAfterAStart(t *testing.T) {
	s := newScene(t)
	for _, name := range []v1alpha1.ClusterName{east, west} {
		worker := &v1alpha1.WorkerCluster{}
		check.Must(t, s.Hub.Admin.Get(t.Context(), client.ObjectKey{Name: string(name)}, worker))
		show := func(runtimes []v1alpha1.WorkerRuntime) {
			worker.Status.Runtimes = runtimes
			check.Must(t, s.Hub.Admin.Status().Update(context.WithoutCancel(t.Context()), worker))
		}
		show([]v1alpha1.WorkerRuntime{{
			Kind: trainer.ClusterTrainingRuntimeKind, Name: torchKey.Name, State: v1alpha1.RuntimeDiffers, Since: metav1.NewTime(s.Clock.Now()),
		}})
		t.Cleanup(func() {
			check.Must(t, s.Hub.Admin.Get(context.WithoutCancel(t.Context()), client.ObjectKey{Name: string(name)}, worker))
			show(nil)
		})
	}
	large := torchIs(ownTorch(s.torchVersion(t), 3, 8))
	known := knownRuntimes{east: large}
	s.runtimes = known
	s.restart(t)
	s.Submit(t, "early", plain)
	if d, _ := s.reconcile(t, "early"); d != nil {
		t.Fatalf("the Dispatch is %+v, want none: the runtime of west has not been compared", d.Spec)
	}
	known[west] = large
	s.reconciler.runtimesChanged(west, []types.NamespacedName{torchKey})
	s.expect(t, "early", v1alpha1.ReasonNoFit)
}

// A worker whose own runtime asks for less than the hub's gets the job, where the pods of the hub's runtime have no room.
func TestSmallerOwnRuntimeIsCounted(t *testing.T) {
	s := newScene(t)
	hub := &trainer.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "large"}}
	check.Must(t, json.Unmarshal(ownTorch("", 3, 8).Own.JSON, &hub.Spec))
	s.Hub.Create(t, hub)
	key := client.ObjectKeyFromObject(hub)
	version := fmt.Sprintf("%s.%d", hub.UID, hub.Generation)
	s.runtimes = knownRuntimes{west: dispatch.NewRuntimes(map[types.NamespacedName]dispatch.Comparison{key: ownTorch(version, 1, 4)}, true)}
	s.restart(t)
	s.Submit(t, "small", plain, func(job *trainer.TrainJob) {
		job.Spec.RuntimeRef = trainer.RuntimeRef{APIGroup: ptr.To(trainer.GroupVersion.Group), Kind: ptr.To(trainer.TrainingRuntimeKind), Name: hub.Name}
	})
	d, _ := s.reconcile(t, "small")
	check.Equal(t, west, d.Spec.Cluster, "the worker of a job with %+v", d.Status)
	check.Equal(t, int32(1), d.Spec.PodSets[0].Count, "pods")
}

// A runtime of a worker with which a job cannot run keeps the job off that worker, and off no other. The words say why.
func TestOwnRuntimeThatCannotBeUsed(t *testing.T) {
	s := newScene(t)
	s.runtimes = knownRuntimes{east: torchIs(ownRuntime(s.torchVersion(t), `{"mlPolicy": {"numNodes": 200000, "torch": {}}, "template": {"spec": {"replicatedJobs": [{
		"name": "node", "template": {"metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}, "spec": {"template": {"spec": {
		"containers": [{"name": "node", "image": "none"}]}}}}}]}}}`))}
	s.restart(t)
	s.Submit(t, "free", plain)
	d, _ := s.reconcile(t, "free")
	check.Equal(t, west, d.Spec.Cluster, "the worker of a job with %+v", d.Status)
	check.Equal(t, "", d.Spec.Counted.WorkerRuntime, "spec.counted.workerRuntime of a worker with the hub's runtime")
}

// Where the worker's own runtime is too large to be looked at, a job is placed by the hub's. An Event and the words of the
// decision say so, once.
func TestAssumedRuntimeIsTold(t *testing.T) {
	assumed := dispatch.Comparison{
		State: v1alpha1.RuntimeDiffers, Demand: true, Paths: []string{"spec.mlPolicy.numNodes"}, Assumed: "its spec has 70000 bytes, and at most 65536 are looked at",
	}
	outdated, image := assumed, assumed
	outdated.Outdated, image.Assumed = true, ""
	for name, tc := range map[string]struct {
		reason     string
		comparison dispatch.Comparison
		told       bool
	}{
		"Demand":   {reason: "more nodes than were counted", told: true, comparison: assumed},
		"Image":    {reason: "as many pods of another image", comparison: image},
		"Outdated": {reason: "it is replaced first", comparison: outdated},
		"Equal":    {reason: "nothing differs"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.runtimes = knownRuntimes{east: torchIs(tc.comparison), west: torchIs(tc.comparison)}
			s.restart(t)
			s.Submit(t, "any")
			d, _ := s.reconcile(t, "any")
			if d.Spec.Cluster == "" {
				t.Fatalf("the job waits: %+v", d.Status)
			}
			events := strings.Join(s.Events.About("any"), "\n")
			words := d.Annotations[v1alpha1.AnnotationDecision]
			const told = "is not the hub's, with which the room was counted: it differs in spec.mlPolicy.numNodes; " +
				"the worker's was not counted because its spec has 70000 bytes"
			if strings.Count(events, "Warning RuntimeDiffers") != map[bool]int{true: 1}[tc.told] || strings.Contains(words, told) != tc.told {
				t.Errorf("%s: Events %q, decision %q", tc.reason, events, words)
			}
		})
	}
}

// A job whose policy pins its runtime is placed whatever the workers have, and nobody is told of a difference that does not
// count. The Dispatch says Pin.
func TestPinnedRuntimeIsOnRecord(t *testing.T) {
	s := newScene(t)
	differs := torchIs(ownTorch(s.torchVersion(t), 3, 8)) // No worker has room for that.
	s.runtimes = knownRuntimes{east: differs, west: differs}
	s.restart(t)
	s.Policy(t, v1alpha1.DispatchPolicySpec{Runtime: v1alpha1.RuntimePin})
	s.Submit(t, "pinned")
	d, _ := s.reconcile(t, "pinned")
	check.Equal(t, v1alpha1.RuntimePin, d.Spec.Runtime, "spec.runtime of the Dispatch of a job with %+v", d.Status)
	if events := strings.Join(s.Events.About("pinned"), "\n"); strings.Contains(events, "RuntimeDiffers") {
		t.Errorf("Events %q", events)
	}
}
