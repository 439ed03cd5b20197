// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/test/check"
)

// knownRuntimes are what a test says of the runtimes of workers.
type knownRuntimes map[v1alpha1.ClusterName]*dispatch.Runtimes

func (k knownRuntimes) Of(worker v1alpha1.ClusterName) *dispatch.Runtimes { return k[worker] }

func (k knownRuntimes) Subscribe(func(v1alpha1.ClusterName)) (cancel func()) { return func() {} }

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

// A job that takes any runtime is placed by the hub's. If the worker will make other pods of it, an Event and the words of
// the decision say so, once.
func TestOtherDemandIsTold(t *testing.T) {
	for name, tc := range map[string]struct {
		reason     string
		comparison dispatch.Comparison
		told       bool
	}{
		"Demand": {reason: "more nodes than were counted", told: true, comparison: dispatch.Comparison{
			State: v1alpha1.RuntimeDiffers, Demand: true, Paths: []string{"spec.mlPolicy.numNodes"},
		}},
		"Image":    {reason: "as many pods of another image", comparison: dispatch.Comparison{State: v1alpha1.RuntimeDiffers, Paths: []string{"spec.image"}}},
		"Outdated": {reason: "it is replaced first", comparison: dispatch.Comparison{State: v1alpha1.RuntimeDiffers, Demand: true, Outdated: true}},
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
			const told = "is not the hub's, with which the room was counted: it differs in spec.mlPolicy.numNodes"
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
	differs := torchIs(dispatch.Comparison{State: v1alpha1.RuntimeDiffers, Demand: true, Paths: []string{"spec.mlPolicy.numNodes"}})
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
