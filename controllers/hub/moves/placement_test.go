// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package moves

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/placement"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/stage"
)

// asking counts the questions that are put to placement.
type asking struct {
	Room
	asked atomic.Int64
}

// Elsewhere implements Room.
func (a *asking) Elsewhere(
	ctx context.Context, d *v1alpha1.Dispatch, full map[string]v1alpha1.ClusterExplanation,
) (v1alpha1.ClusterExplanation, error) {
	a.asked.Add(1)
	return a.Room.Elsewhere(ctx, d, full)
}

// awaitCalm waits until nobody has asked placement for some time.
func (a *asking) awaitCalm(t *testing.T) {
	t.Helper()
	last := int64(-1)
	gomega.NewWithT(t).Eventually(func() bool {
		before := last
		last = a.asked.Load()
		return last == before
	}, check.Patience, 4*gatherTime).Should(gomega.BeTrue(), "nothing is asked any more")
}

// run starts a manager with placement and moves, connected to the workers, until the test ends.
func (s *scene) run(t *testing.T) *asking {
	t.Helper()
	fleet := stage.StartFleet(t, remote.Options{})
	for _, worker := range s.Workers {
		worker.Join(fleet, worker.Name())
	}
	mgr := s.NewManager(t, s.Hub.Cluster.Config)
	placer, err := placement.NewReconciler(t.Context(), placement.Options{
		Hub: mgr.GetClient(), HubReader: mgr.GetAPIReader(), ManagedBy: v1alpha1.ManagedByMultiKueue, Connections: fleet,
		Recorder: mgr.GetEventRecorder("trainyard"), Clock: clock.RealClock{},
	})
	check.Must(t, err)
	room := &asking{Room: placer}
	mover := NewReconciler(Options{
		Hub: mgr.GetClient(), Room: room, Policy: placement.Policies{Hub: mgr.GetClient()}.For, Clock: clock.RealClock{},
	})
	check.Must(t, placer.Add(mgr))
	check.Must(t, mover.Add(mgr))
	stage.RunFor(t, mgr)
	return room
}

// recorder counts the jobs that are on their way.
type recorder struct {
	mu sync.Mutex
	// underway has the jobs between their eviction and their next copy. most is the maximum at a time. Under mu.
	underway map[types.UID]int32
	most     int
}

// record watches the Dispatches of the scene until the test ends.
func (s *scene) record(t *testing.T) *recorder {
	t.Helper()
	r := &recorder{underway: map[types.UID]int32{}}
	watch, err := s.Hub.Admin.Watch(t.Context(), &v1alpha1.DispatchList{}, client.InNamespace(s.Namespace))
	check.Must(t, err)
	t.Cleanup(watch.Stop)
	go func() {
		for event := range watch.ResultChan() {
			if d, ok := event.Object.(*v1alpha1.Dispatch); ok {
				r.see(d)
			}
		}
	}()
	return r
}

func (r *recorder) see(d *v1alpha1.Dispatch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	attempt, is := r.underway[d.UID]
	switch {
	case d.Spec.Eviction != nil:
		r.underway[d.UID] = d.Spec.Attempt
	case is && d.Spec.Attempt > attempt && d.WasCopied():
		delete(r.underway, d.UID)
	}
	r.most = max(r.most, len(r.underway))
}

func (r *recorder) atMost() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.most
}

// await waits until is returns true for the Dispatch of a job.
func (s *scene) await(t *testing.T, name, what string, is func(*v1alpha1.Dispatch) bool) *v1alpha1.Dispatch {
	t.Helper()
	d := &v1alpha1.Dispatch{}
	gomega.NewWithT(t).Eventually(func() error {
		*d = v1alpha1.Dispatch{}
		if err := s.Hub.Admin.Get(t.Context(), s.Key(name), d); err != nil {
			return err
		}
		if !is(d) {
			return fmt.Errorf("spec %+v, conditions %+v", d.Spec, d.Status.Conditions)
		}
		return nil
	}, check.Patience, 10*time.Millisecond).Should(gomega.Succeed(), "%s: %s", name, what)
	return d
}

func on(worker v1alpha1.ClusterName) func(*v1alpha1.Dispatch) bool {
	return func(d *v1alpha1.Dispatch) bool { return d.Spec.Cluster == worker }
}

// asBig makes a job need this many GPUs on each of two nodes.
func asBig(gpus string) func(*trainer.TrainJob) {
	return func(job *trainer.TrainJob) {
		resources := job.Spec.Trainer.ResourcesPerNode
		resources.Requests[stage.GPU] = resource.MustParse(gpus)
		resources.Limits[stage.GPU] = resource.MustParse(gpus)
	}
}

func byLabel(worker string) func(*trainer.TrainJob) {
	return func(job *trainer.TrainJob) {
		metav1.SetMetaDataAnnotation(&job.ObjectMeta, v1alpha1.AnnotationClusters, "region="+worker)
	}
}

// This test has placement and all watches. Jobs leave a drained worker one at a time, and only if there is room
// elsewhere. A job that fits nowhere says so, and moves by itself when another job has ended.
func TestDrainWithPlacement(t *testing.T) {
	s := newScene(t)
	s.Policy(t, v1alpha1.DispatchPolicySpec{MaxConcurrentMoves: new(int32(1))})
	east, west := s.Register(t, "east"), s.Register(t, "west")
	seen := s.record(t)
	room := s.run(t)
	// East is full with three jobs, and west has room for two of them.
	s.Submit(t, "filler", byLabel("west"), asBig("4"))
	for _, name := range []string{"one", "two", "three"} {
		s.Submit(t, name, byLabel("east"), asBig("2"))
	}
	for _, name := range []string{"one", "two", "three"} {
		s.await(t, name, "it is placed", on(east))
		s.Copied(t, s.Dispatch(t, name))
		s.unpin(t, name)
	}
	s.await(t, "filler", "it is placed", on(west))
	s.Copied(t, s.Dispatch(t, "filler"))

	s.ChangeWorker(t, east, drain)
	moved := map[string]bool{}
	for _, free := range []string{"4", "2"} { // These GPUs are free on each node of west, including the room that is kept.
		name := s.awaitEvicted(t, moved)
		moved[name] = true
		s.Submit(t, "thief-"+name, asBig(free), byLabel("west"))
		s.await(t, "thief-"+name, "it waits", func(d *v1alpha1.Dispatch) bool { return d.Status.Reason != "" && d.Spec.Cluster == "" })
		s.remove(t, "thief-"+name)
		s.stopped(t, name)
		s.await(t, name, "it has moved", on(west))
		s.Copied(t, s.Dispatch(t, name))
	}
	var last string
	for _, name := range []string{"one", "two", "three"} {
		if !moved[name] {
			last = name
		}
	}
	stays := s.await(t, last, "it stays and says so", record.HasNoRoomElsewhere)
	if condition := meta.FindStatusCondition(stays.Status.Conditions, v1alpha1.DispatchEvicting); condition.Reason != v1alpha1.ReasonNoRoomElsewhere {
		t.Errorf("the condition is %+v, want %s", condition, v1alpha1.ReasonNoRoomElsewhere)
	}
	room.awaitCalm(t) // After this, only new room wakes the controller.
	s.finish(t, "filler")
	s.awaitEvicted(t, moved)
	s.stopped(t, last)
	s.await(t, last, "it has moved", on(west))
	check.Equal(t, 1, seen.atMost(), "jobs that were on their way at a time")
}

// awaitEvicted waits until a job that is not in moved is being evicted, and returns its name.
func (s *scene) awaitEvicted(t *testing.T, moved map[string]bool) string {
	t.Helper()
	var found string
	gomega.NewWithT(t).Eventually(func() string {
		for _, name := range []string{"one", "two", "three"} {
			if !moved[name] && s.Dispatch(t, name).Spec.Eviction != nil {
				found = name
			}
		}
		return found
	}, check.Patience, 10*time.Millisecond).ShouldNot(gomega.BeEmpty(), "a job is being evicted")
	return found
}

// unpin removes the annotation that limits a job to some workers.
func (s *scene) unpin(t *testing.T, name string) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, v1alpha1.AnnotationClusters)
	job := &trainer.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name}}
	check.Must(t, s.Hub.Admin.Patch(t.Context(), job, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// remove deletes a job that waits.
func (s *scene) remove(t *testing.T, name string) {
	t.Helper()
	check.Must(t, s.Hub.Admin.Delete(t.Context(), &trainer.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name}}))
	gomega.NewWithT(t).Eventually(func() bool {
		return client.IgnoreNotFound(s.Hub.Admin.Get(t.Context(), s.Key(name), &v1alpha1.Dispatch{})) == nil &&
			s.Hub.Admin.Get(t.Context(), s.Key(name), &v1alpha1.Dispatch{}) != nil
	}, check.Patience, 10*time.Millisecond).Should(gomega.BeTrue(), "the Dispatch of %s goes with it", name)
}

// finish writes what mirror writes about a job that is Complete.
func (s *scene) finish(t *testing.T, name string) {
	t.Helper()
	s.says(t, name, trainer.TrainJobStatus{Conditions: []metav1.Condition{{
		Type: trainer.TrainJobComplete, Status: metav1.ConditionTrue, Reason: "AllJobsCompleted", LastTransitionTime: metav1.NewTime(s.Clock.Now()),
	}}})
	s.SetCondition(t, s.Dispatch(t, name), v1alpha1.DispatchFinished, metav1.ConditionTrue, v1alpha1.ReasonComplete)
}
