// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package nomination

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/kueues"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

func (s *scene) wantNominated(t *testing.T, name string, want ...string) {
	t.Helper()
	if got := s.nominated(t, name); !slices.Equal(got, want) {
		t.Errorf("nominated for %s are %v, want %v", name, got, want)
	}
}

// wantTold expects one Event with these words.
func (s *scene) wantTold(t *testing.T, words ...string) {
	t.Helper()
	got := s.Events.Take()
	if len(got) != 1 {
		t.Fatalf("told is %q, want one Event with %q", got, words)
	}
	for _, part := range words {
		if !strings.Contains(got[0], part) {
			t.Errorf("told is %q, want it to have %q", got[0], part)
		}
	}
}

// One worker is nominated in Kueue's name, Kueue loses nothing, and can take the nomination off.
func TestNominationIsKueues(t *testing.T) {
	s := newScene(t)
	s.submit(t, "a", 0)
	before := s.live(t, "a")
	s.turn(t, "a")
	s.wantNominated(t, "a", "east")
	s.wantTold(t, "Nominated worker east: there is room")
	after := s.live(t, "a")
	status := after.Object["status"].(map[string]any)
	delete(status, "nominatedClusterNames")
	check.Diff(t, before.Object["status"], any(status), "the nomination has changed more")
	for _, entry := range after.GetManagedFields() {
		if entry.Subresource == "status" && (entry.Manager != managerOfKueue || entry.Operation != metav1.ManagedFieldsOperationApply) {
			t.Errorf("%s owns a part of the status by %s", entry.Manager, entry.Operation)
		}
	}
	uid := after.GetUID()
	given := s.waiting()
	given["clusterName"] = "east"
	given["admissionChecks"] = []any{map[string]any{"name": s.Namespace, "state": "Ready"}}
	s.status(t, "a", given)
	s.wantNominated(t, "a")
	if s.turn(t, "a"); s.room.kept[uid] != "east" {
		t.Errorf("the room of a job with pods to come is on %q", s.room.kept[uid])
	}
	given["conditions"] = append(given["conditions"].([]any), is("Finished", "Succeeded", ""))
	s.status(t, "a", given)
	if s.turn(t, "a"); len(s.room.kept) != 0 || len(s.reconciler.remembered) != 0 {
		t.Errorf("left of a finished job are %v, %v", s.room.kept, s.reconciler.remembered)
	}
}

// A worker that does not admit the job loses the nomination to a worker with room. An Event says so in the worker's
// words.
func TestRefusedWorker(t *testing.T) {
	s := newScene(t)
	s.submit(t, "a", 0)
	s.turn(t, "a")
	s.Events.Take()
	s.clone(t, "east", "a", is("QuotaReserved", "Pending", "no quota"))
	if result := s.turn(t, "a"); result.RequeueAfter <= 0 || result.RequeueAfter > admissionTime {
		t.Errorf("the worker has %s", result.RequeueAfter)
	}
	s.wantNominated(t, "a", "east")
	s.Clock.Step(admissionTime)
	s.turn(t, "a")
	s.wantNominated(t, "a", "west")
	s.wantTold(t, "Nominated worker west instead of east", "no quota")
	if s.room.kept[s.live(t, "a").GetUID()] != "west" {
		t.Errorf("rooms are %v", s.room.kept)
	}
	s.clone(t, "east", "a")
	s.clone(t, "west", "a", is("QuotaReserved", "Inadmissible", "LocalQueue q doesn't exist"))
	s.turn(t, "a")
	s.wantNominated(t, "a", "west") // East has just refused it.
	s.wantTold(t, "Worker west stays nominated", "LocalQueue q doesn't exist", "no GPUs")
	s.turn(t, "a")
	if again := s.Events.Take(); len(again) > 0 {
		t.Errorf("told again is %q", again)
	}
	s.Clock.Step(minRefusal)
	s.turn(t, "a")
	s.wantNominated(t, "a", "east")
}

// A clone for which the worker's Kueue stops other Workloads is not withdrawn after ten seconds: the next worker would
// stop Workloads too. Kueue 0.20 has a gate and a reason for that, earlier versions have words.
func TestPreemptingWorkerIsNotWithdrawn(t *testing.T) {
	gate := map[string]any{"type": kueues.PreemptionGated, "status": "True", "reason": "PreemptionGated", "message": "it's gated"}
	for name, conditions := range map[string][]any{
		"Gated":       {is("QuotaReserved", "AdmissionGated", "Workload requires preemption, but it's gated"), gate},
		"GateOpened":  {is("QuotaReserved", "WaitingForQuota", "1 more needed"), gate},
		"Preempting":  {is("QuotaReserved", "WaitingForPreemptedWorkloads", "1 more needed")},
		"WordsOf0.19": {is("QuotaReserved", "Pending", "1 more needed. Pending the preemption of 1 workload(s)")},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.submit(t, "a", 0)
			s.turn(t, "a")
			s.clone(t, "east", "a", conditions...)
			s.turn(t, "a")
			s.Clock.Step(time.Hour)
			s.turn(t, "a")
			s.wantNominated(t, "a", "east")
			s.clone(t, "east", "a", is("QuotaReserved", "WaitingForQuota", "1 more needed"))
			s.Clock.Step(preemptionTime - time.Second) // The pods of the victims end.
			s.turn(t, "a")
			s.wantNominated(t, "a", "east")
			s.Clock.Step(time.Second)
			s.turn(t, "a")
			s.wantNominated(t, "a", "west")
		})
	}
}

// A worker whose Kueue 0.20 says that only an admin can help loses the nomination at once.
func TestReasonsThatNoTimeHelps(t *testing.T) {
	for _, reason := range []string{"Misconfigured", "Suspended", "ExceedsMaxQuota", "NoMatchingFlavor", "TopologyPlacementFailed"} {
		t.Run(reason, func(t *testing.T) {
			s := newScene(t)
			s.submit(t, "a", 0)
			s.turn(t, "a")
			s.Events.Take()
			s.clone(t, "east", "a", is("QuotaReserved", reason, "words of Kueue"))
			s.turn(t, "a")
			s.wantNominated(t, "a", "west")
			s.wantTold(t, "Nominated worker west instead of east", "words of Kueue")
		})
	}
}

// A worker that has admitted the job stays nominated, and is nominated again if the admission has crossed a withdrawal.
func TestAdmittedWorkerIsNotWithdrawn(t *testing.T) {
	s := newScene(t)
	s.submit(t, "a", 0)
	s.turn(t, "a")
	s.clone(t, "east", "a", is("Admitted", "Admitted", ""))
	s.Clock.Step(24 * time.Hour)
	s.turn(t, "a")
	s.wantNominated(t, "a", "east")
	crossed := s.waiting()
	crossed["nominatedClusterNames"] = []any{"west"}
	s.status(t, "a", crossed)
	s.turn(t, "a")
	s.wantNominated(t, "a", "east")
	if s.room.kept[s.live(t, "a").GetUID()] != "east" {
		t.Errorf("rooms are %v", s.room.kept)
	}
}

// The Workload of the highest priority gets the room, and then the oldest.
func TestOrder(t *testing.T) {
	s := newScene(t)
	s.room.jobs = 1
	s.submit(t, "low", 1)
	s.submit(t, "high", 2)
	s.turn(t, "low", "high")
	s.wantNominated(t, "high", "east")
	s.wantNominated(t, "low")
	if got := strings.Join(s.Events.Take(), "\n"); !strings.Contains(got, "No worker has room for the job: the nearest is west") {
		t.Errorf("told is %q", got)
	}
	s.room.jobs = 1
	s.turn(t)
	s.settle(t, "low")
	s.wantNominated(t, "low", "east")
}

// Placement is asked about all pods, under the name by which the pods are counted, and only about workers that
// MultiKueue can use.
func TestQuestion(t *testing.T) {
	s := newScene(t)
	west := kueues.KindMultiKueueCluster.New()
	west.SetName("west")
	check.Must(t, s.patch(s.Hub.Admin, west, "status", map[string]any{"status": map[string]any{
		"conditions": []any{map[string]any{"type": "Active", "status": "False", "reason": "ClientConnectionFailed", "message": "no route"}},
	}}))
	s.eventually(t, "the cluster is not Active", func() bool {
		seen := kueues.KindMultiKueueCluster.New()
		check.Must(t, s.Cached.Get(t.Context(), types.NamespacedName{Name: "west"}, seen))
		conditions, _, _ := unstructured.NestedSlice(seen.Object, "status", "conditions")
		return conditions[0].(map[string]any)["status"] == "False"
	})
	s.room.on = []v1alpha1.ClusterName{"west"}
	s.submit(t, "a", 7)
	s.turn(t, "a")
	s.wantNominated(t, "a")
	if len(s.room.asked) != 1 {
		t.Fatalf("asked %d times", len(s.room.asked))
	}
	job := s.room.asked[0]
	if job.Name != "of-a" || job.Priority != 7 || job.Attempt != 0 || job.PodSets[0].Count != 2 || job.PodSets[0].Requests.Name("nvidia.com/gpu", "").Value() != 8 {
		t.Errorf("asked about %+v", job)
	}
	if got := job.Excluded["west"]; got.Reason != reasonInactive || !strings.Contains(got.Message, "no route") || len(job.Excluded) != 1 {
		t.Errorf("excluded are %+v", job.Excluded)
	}
}

// A Workload that changes between the question and the write is not written.
func TestChangedWorkload(t *testing.T) {
	s := newScene(t)
	s.submit(t, "a", 0)
	s.room.before = func() {
		check.Must(t, s.Hub.Admin.Patch(t.Context(), s.named("a"), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`))))
	}
	s.turn(t, "a")
	s.wantNominated(t, "a")
	s.room.before = nil
	s.turn(t, "a")
	s.wantNominated(t, "a", "east")
}

// A new process takes the room of all jobs that are on workers before it nominates.
func TestRestart(t *testing.T) {
	s := newScene(t)
	s.submit(t, "a", 0)
	s.submit(t, "b", 0)
	s.turn(t, "a")
	given := s.waiting()
	given["clusterName"] = "west"
	s.status(t, "b", given)
	s.submit(t, "c", 0)
	s.room.kept = map[types.UID]v1alpha1.ClusterName{}
	s.restart()
	s.room.before = func() {
		if s.room.kept[s.live(t, "a").GetUID()] != "east" || s.room.kept[s.live(t, "b").GetUID()] != "west" {
			t.Errorf("asked with the rooms %v", s.room.kept)
		}
	}
	s.turn(t, "c")
	s.wantNominated(t, "c", "east")
}

// Nominations of others are left alone, and the message says what to set.
func TestForeignNominations(t *testing.T) {
	s := newScene(t)
	s.submit(t, "a", 0)
	foreign := s.waiting()
	foreign["nominatedClusterNames"] = []any{"east", "west"}
	s.status(t, "a", foreign)
	s.turn(t, "a")
	s.turn(t, "a")
	s.wantNominated(t, "a", "east", "west")
	s.wantTold(t, "has nominated 2 clusters", "multiKueue.dispatcherName: "+DispatcherName)
}

// What is wrong with MultiKueue's objects is said on the Workload.
func TestMissingConfig(t *testing.T) {
	s := newScene(t)
	s.object(t, "AdmissionCheck", s.Namespace+"-other", map[string]any{"spec": map[string]any{
		"controllerName": v1alpha1.ManagedByMultiKueue, "parameters": map[string]any{"name": "nothing"},
	}})
	s.submit(t, "a", 0)
	status := s.waiting()
	status["admissionChecks"] = []any{map[string]any{"name": s.Namespace + "-other", "state": "Pending"}}
	s.status(t, "a", status)
	s.turn(t, "a")
	s.wantTold(t, `MultiKueueConfig "nothing", which does not exist`)
}
