// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/test/explorer/memory"
	"github.com/trainyard/trainyard/test/laws"
)

// ledger is what the invariants remember.
type ledger struct {
	// givenUp are the attempts on a worker that may run on beside later attempts. This is documented: their failover is
	// Immediate, or an admin has had the worker forgotten.
	givenUp map[given]bool
	// untold are the attempts on a worker whose copy the hub cannot know of: its creation was late, or a user has taken off
	// its label.
	untold map[given]bool
	// over are the attempts, and the jobs, whose copies may be deleted according to a record.
	over map[done]bool
	// attempts is the highest that was recorded of an origin.
	attempts map[types.UID]int32
	// placed are the attempts on a worker that were recorded.
	placed map[given]bool
	// accepted are the jobs, without an attempt, that a worker has said it takes.
	accepted map[given]bool
}

type given struct {
	origin  types.UID
	attempt string
	worker  string
}

type done struct {
	origin  types.UID
	attempt string
}

func newLedger() ledger {
	return ledger{
		givenUp: map[given]bool{}, untold: map[given]bool{}, over: map[done]bool{}, attempts: map[types.UID]int32{}, placed: map[given]bool{},
		accepted: map[given]bool{},
	}
}

// observe checks a change when it is made. Nothing is checked by looking at everything.
func (w *World) observe(change memory.Change) {
	version := ""
	if change.After != nil {
		version = change.After.Object.GetResourceVersion()
	}
	fmt.Fprintf(w.digest, "%d %s %s %s %s\n", w.now, change.Actor, change.Kind, change.Key.Name, version)
	if change.Kind != memory.ExecutionLease && w.isManager(change.Actor) {
		w.busy++
		w.last = describe(change)
	}
	if w.Tell != nil {
		w.tell("    %s", describe(change))
	}
	switch change.Kind {
	case memory.Dispatch:
		w.dispatchChanged(change)
	case memory.TrainJob:
		if server := w.serverOf(change); server == w.Hub {
			w.hubJobChanged(change)
		} else {
			w.copyChanged(change, server)
		}
	case memory.Pod:
		if change.Before == nil {
			w.podCreated(change)
		}
	case memory.Tombstone:
		if change.After != nil {
			w.Seen["Tombstone"]++
			tombstone := change.After.Object.(*v1alpha1.Tombstone)
			for n := int32(1); n <= tombstone.Spec.Attempt; n++ {
				w.ledger.over[done{tombstone.Spec.TrainJob.UID, attemptText(n)}] = true
			}
		}
	default:
	}
}

// serverOf is where a change was made: UIDs say so.
func (w *World) serverOf(change memory.Change) *memory.Server {
	version := change.After
	if version == nil {
		version = change.Before
	}
	name, _, _ := strings.Cut(string(version.Object.GetUID()), "-")
	if k := w.worker(v1alpha1.ClusterName(name)); k != nil {
		return k.server
	}
	return w.Hub
}

func asDispatch(version *memory.Version) *v1alpha1.Dispatch {
	if version == nil {
		return nil
	}
	return version.Object.(*v1alpha1.Dispatch)
}

func (w *World) dispatchChanged(change memory.Change) {
	before, after := asDispatch(change.Before), asDispatch(change.After)
	if err := laws.Check(before, after); err != nil {
		w.fail("what %s has done to a Dispatch is no transition: %v", change.Actor, err)
	}
	if after == nil {
		if before.DeletionTimestamp != nil {
			w.attemptEnded(before) // Its last finalizer went.
		}
		return
	}
	if n := len(after.Status.History); n > 0 && before != nil && n != len(before.Status.History) {
		w.Seen[string(after.Status.History[n-1].Outcome)+string(after.Spec.Failover)]++
	}
	if record.IsAdopted(after) && (before == nil || before.Spec.Attempt < after.Spec.Attempt) {
		w.Seen["Adopted"]++
	}
	origin, spec := after.Spec.TrainJob.UID, after.Spec
	// A late copy of a job that is gone begins no attempt.
	if highest := w.ledger.attempts[origin]; before == nil && spec.Cluster != "" && spec.Attempt <= highest && w.isAlive(after) {
		w.fail("%s has begun attempt %d of %s, and %d was reached before", change.Actor, spec.Attempt, after.Name, highest)
	}
	w.ledger.attempts[origin] = max(w.ledger.attempts[origin], spec.Attempt)
	w.ledger.placed[given{origin, attemptText(spec.Attempt), string(spec.Cluster)}] = true
	for n := int32(1); n < spec.Attempt; n++ {
		w.ledger.over[done{origin, attemptText(n)}] = true
	}
	if spec.Cluster == "" || after.AttemptEnded() || after.IsFinished() || spec.Eviction != nil || after.DeletionTimestamp != nil {
		w.ledger.over[done{origin, attemptText(spec.Attempt)}] = true
	}
	if record.WasGivenUp(after) && !record.WasGivenUp(before) {
		w.Seen["GivenUp"]++
		w.jobGivenUp(change.Actor, after)
	}
	if e := spec.Eviction; e != nil && (before == nil || before.Spec.Eviction == nil) && e.Reason == v1alpha1.EvictionPreempted {
		w.Seen["Preempting"]++
		if !w.ledger.accepted[given{e.For, "", string(spec.Cluster)}] {
			w.fail("%s stops %s for %s, and worker %s has not said that it takes that job", change.Actor, after.Name, e.For, spec.Cluster)
		}
	}
	if before != nil && !before.AttemptEnded() && after.AttemptEnded() {
		w.attemptEnded(after)
	}
	if before != nil && before.DeletionTimestamp != nil && len(after.Finalizers) < len(before.Finalizers) {
		w.attemptEnded(after)
	}
}

// jobGivenUp checks that no worker has a copy of a job that is given up, nor pods of one.
func (w *World) jobGivenUp(actor string, d *v1alpha1.Dispatch) {
	origin := string(d.Spec.TrainJob.UID)
	for _, k := range w.workers {
		for _, version := range k.server.List(memory.TrainJob) {
			copy := version.Object
			at := given{d.Spec.TrainJob.UID, copy.GetAnnotations()[v1alpha1.AnnotationAttempt], string(k.name)}
			if copy.GetLabels()[v1alpha1.LabelOriginUID] == origin && !w.ledger.untold[at] {
				w.fail("%s gives up %s, and attempt %s is on %s", actor, d.Name, at.attempt, k.name)
			}
		}
		for _, version := range k.server.List(memory.Pod) {
			pod := version.Object.(*corev1.Pod)
			at := given{d.Spec.TrainJob.UID, pod.Labels[labelAttempt], string(k.name)}
			if pod.Labels[labelOrigin] == origin && k.isAlive(pod) && !w.ledger.untold[at] {
				w.fail("%s gives up %s, and a pod of attempt %s lives on %s", actor, d.Name, at.attempt, k.name)
			}
		}
	}
}

// isAlive is true if the hub has the TrainJob of a Dispatch.
func (w *World) isAlive(d *v1alpha1.Dispatch) bool {
	job := w.Hub.Get(memory.TrainJob, client.ObjectKeyFromObject(d))
	return job != nil && job.Object.GetUID() == d.Spec.TrainJob.UID
}

// attemptEnded notes which copies may run on. The hub does not wait for a worker that is forgotten, nor for the worker
// of an attempt with failover Immediate.
func (w *World) attemptEnded(d *v1alpha1.Dispatch) {
	outcome := v1alpha1.Outcome("")
	if n := len(d.Status.History); n > 0 && d.AttemptEnded() {
		outcome = d.Status.History[n-1].Outcome
	}
	worker := w.Hub.Get(memory.WorkerCluster, client.ObjectKey{Name: string(d.Spec.Cluster)})
	forgotten := worker != nil && worker.Object.GetAnnotations()[v1alpha1.AnnotationForget] != ""
	if outcome == v1alpha1.OutcomeWorkerLost && d.Spec.Failover == v1alpha1.FailoverImmediate || forgotten ||
		d.DeletionTimestamp != nil && d.Spec.Failover == v1alpha1.FailoverImmediate {
		w.ledger.givenUp[given{d.Spec.TrainJob.UID, attemptText(d.Spec.Attempt), string(d.Spec.Cluster)}] = true
	}
}

// isUser is true for users and for the setup of a world: they may do what they like.
func isUser(actor string) bool {
	return actor == "user" || actor == "setup"
}

func (w *World) hubJobChanged(change memory.Change) {
	if change.Before == nil || isUser(change.Actor) {
		return
	}
	before := change.Before.Object.(*unstructured.Unstructured)
	if end := trainjobs.Terminal(before); end != nil {
		w.ledger.over[done{before.GetUID(), ""}] = true
		if change.After != nil && !equality.Semantic.DeepEqual(before.Object["status"], change.After.Object.(*unstructured.Unstructured).Object["status"]) {
			w.fail("%s has changed the status of TrainJob %s, which was %s", change.Actor, before.GetName(), end.Type)
		}
	}
	if change.After == nil || change.Actor == "hub/gc" {
		return
	}
	after := change.After.Object.(*unstructured.Unstructured)
	a, b := before.DeepCopy(), after.DeepCopy()
	for _, object := range []*unstructured.Unstructured{a, b} {
		delete(object.Object, "status")
		object.SetResourceVersion("")
	}
	if !equality.Semantic.DeepEqual(a.Object, b.Object) {
		w.fail("%s has written more of hub TrainJob %s than its status", change.Actor, before.GetName())
	}
}

func (w *World) isManager(actor string) bool {
	for _, m := range w.managers {
		if m.name == actor {
			return true
		}
	}
	return false
}

// copyCreated checks that the decision was on record before. It may be over: a creation can arrive late.
func (w *World) copyCreated(change memory.Change, server *memory.Server) {
	copy := change.After.Object
	origin, attempt := types.UID(copy.GetLabels()[v1alpha1.LabelOriginUID]), copy.GetAnnotations()[v1alpha1.AnnotationAttempt]
	if !w.ledger.placed[given{origin, attempt, server.Name}] {
		w.fail("%s has created the copy of attempt %s of %s on %s, and no Dispatch has said so", change.Actor, attempt, change.Key.Name, server.Name)
	}
}

func (w *World) copyChanged(change memory.Change, server *memory.Server) {
	if !w.isManager(change.Actor) {
		return
	}
	if change.Before == nil {
		w.copyCreated(change, server)
		return
	}
	before := change.Before.Object
	origin, attempt := types.UID(before.GetLabels()[v1alpha1.LabelOriginUID]), before.GetAnnotations()[v1alpha1.AnnotationAttempt]
	if before.GetLabels()[v1alpha1.LabelHub] != hubID && !strings.HasPrefix(before.GetAnnotations()[annotationOurs], hubID) {
		w.fail("%s has touched the foreign TrainJob %s on %s", change.Actor, change.Key.Name, server.Name)
		return
	}
	going := before.GetDeletionTimestamp() == nil && (change.After == nil || change.After.Object.GetDeletionTimestamp() != nil)
	if going && !w.ledger.over[done{origin, attempt}] && !w.ledger.over[done{origin, ""}] && !w.jobEnded(change.Key, origin) {
		w.fail("%s has deleted the copy of attempt %s of %s on %s, and no record says that it may", change.Actor, attempt, change.Key.Name, server.Name)
	}
}

// annotationOurs marks a copy whose label a user has taken off.
const annotationOurs = "explorer/ours"

// jobEnded is true if the hub's TrainJob has ended, is being deleted or is gone.
func (w *World) jobEnded(key client.ObjectKey, origin types.UID) bool {
	job := w.Hub.Get(memory.TrainJob, key)
	return job == nil || job.Object.GetUID() != origin || job.Object.GetDeletionTimestamp() != nil ||
		trainjobs.Terminal(job.Object.(*unstructured.Unstructured)) != nil
}

// podCreated checks the promise itself: no two pods of one origin live at the same time, except where an overlap is
// documented.
func (w *World) podCreated(change memory.Change) {
	begun := change.After.Object.(*corev1.Pod)
	w.Seen["Pod"]++
	for _, k := range w.workers {
		for _, version := range k.server.List(memory.Pod) {
			pod := version.Object.(*corev1.Pod)
			if pod.UID == begun.UID || pod.Labels[labelOrigin] != begun.Labels[labelOrigin] || pod.Labels[labelOrigin] == "" || !k.isAlive(pod) {
				continue
			}
			if w.mayOverlap(pod, string(k.name)) || w.mayOverlap(begun, w.serverOf(change).Name) {
				continue
			}
			w.fail("TrainJob %s runs twice: attempt %s on %s, and now attempt %s on %s", change.Key.Name,
				pod.Labels[labelAttempt], k.name, begun.Labels[labelAttempt], w.serverOf(change).Name)
		}
	}
}

func (w *World) mayOverlap(pod *corev1.Pod, worker string) bool {
	return w.ledger.givenUp[given{types.UID(pod.Labels[labelOrigin]), pod.Labels[labelAttempt], worker}]
}
