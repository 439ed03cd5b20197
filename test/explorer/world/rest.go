// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/explorer/memory"
)

const (
	// patience is how long a world that is whole again may take to come to rest, and calm how long it must then stay so.
	patience = 30 * time.Minute
	calm     = 3 * time.Minute
)

// Rest repairs everything, and waits for everything to end. What does not end is a violation.
func (w *World) Rest() {
	if w.Failed() {
		return
	}
	w.tell("everything is mended")
	w.mend()
	if w.Failed() {
		return
	}
	unrest := ""
	for until := w.now + patience; w.now < until; {
		w.advance(20*time.Second, true)
		if unrest = w.unrest(); unrest == "" || w.Failed() {
			break
		}
	}
	if unrest != "" {
		w.fail("after %s in which nothing was wrong %s", patience, unrest)
	}
	if w.Failed() {
		return
	}
	// What has ended is collected when the clock of the leading manager says so. The clock that stamped the end may be far
	// behind.
	for until := w.now + retention + 2*maxSkew; w.now < until && w.hasCopies(); {
		w.advance(20*time.Second, true)
	}
	w.advance(calm/3, true)
	before := w.busy
	w.advance(calm, true)
	if w.busy != before && !w.Failed() {
		w.fail("there are %d writes although nothing happens, the last %s", w.busy-before, w.last)
	}
	if left := w.unrest(); left != "" && !w.Failed() {
		w.fail("when nothing happened any more %s", left)
	}
}

// hasCopies is true if a worker has a copy.
func (w *World) hasCopies() bool {
	for _, k := range w.workers {
		for _, version := range k.server.List(memory.TrainJob) {
			if !isForeign(version) {
				return true
			}
		}
	}
	return false
}

// mend ends all faults. One manager leads, and what is late arrives.
func (w *World) mend() {
	for _, k := range w.workers {
		k.down = false
		for _, a := range k.agents {
			a.pausedUntil = 0
		}
		w.Do(Action{Op: Uncordon, Who: string(k.name)})
		for _, version := range k.server.List(memory.TrainJob) {
			labels := version.Object.GetLabels()
			ours := version.Object.GetAnnotations()[annotationOurs] != "" && w.knows(types.UID(labels[v1alpha1.LabelOriginUID]))
			if labels[v1alpha1.LabelHub] == "" && !ours {
				w.Do(Action{Op: DeleteCopy, Who: string(k.name), Key: version.Object.GetName()}) // It has another object's name.
			}
		}
	}
	for _, m := range w.managers {
		m.cut, m.cutOff, m.pausedUntil = map[v1alpha1.ClusterName]bool{}, false, 0
	}
	w.advance(0, false)
	for _, m := range w.managers {
		m.leave(false) // A manager that has led would not go on for long.
	}
	w.managers[0].lead(0)
	for len(w.limbo) > 0 {
		w.arrive(w.limbo[0].name)
	}
	for _, version := range w.Hub.List(memory.TrainJob) {
		w.Do(Action{Op: Resume, Key: version.Object.GetName()})
	}
}

// knows is false for the UID of a TrainJob that a restored hub has forgotten. A copy of such a TrainJob without our
// label belongs to nobody, and is no unknown copy.
func (w *World) knows(origin types.UID) bool {
	if !w.forgetful {
		return true
	}
	for _, kind := range []memory.Kind{memory.TrainJob, memory.Dispatch, memory.Tombstone} {
		for _, version := range w.Hub.List(kind) {
			object := version.Object
			if d, ok := object.(*v1alpha1.Dispatch); ok && d.Spec.TrainJob.UID == origin || object.GetUID() == origin {
				return true
			}
			if tombstone, ok := object.(*v1alpha1.Tombstone); ok && tombstone.Spec.TrainJob.UID == origin {
				return true
			}
		}
	}
	return false
}

// unrest says what differs from the required end.
func (w *World) unrest() string {
	quarantined := map[string]bool{}
	for _, version := range w.Hub.List(memory.WorkerCluster) {
		worker := version.Object.(*v1alpha1.WorkerCluster)
		for _, copy := range worker.Status.UnknownCopies {
			quarantined[worker.Name+"/"+copy.Name] = true
		}
	}
	var found []string
	for _, version := range w.Hub.List(memory.TrainJob) {
		if why := w.unfinished(version.Object.(*unstructured.Unstructured), quarantined); why != "" {
			found = append(found, why)
		}
	}
	for _, version := range w.Hub.List(memory.Dispatch) {
		if w.Hub.Get(memory.TrainJob, client.ObjectKeyFromObject(version.Object)) == nil {
			found = append(found, fmt.Sprintf("Dispatch %s is there without its TrainJob (%s)", version.Object.GetName(), state(version)))
		}
	}
	for _, version := range w.Hub.List(memory.Tombstone) {
		found = append(found, fmt.Sprintf("Tombstone %s is there", version.Object.GetName()))
	}
	for _, k := range w.workers {
		found = append(found, k.left(quarantined)...)
	}
	return strings.Join(found, "; ")
}

// unfinished says what is wrong with a TrainJob that has not ended and does not say why.
func (w *World) unfinished(job *unstructured.Unstructured, quarantined map[string]bool) string {
	key := client.ObjectKeyFromObject(job)
	version := w.Hub.Get(memory.Dispatch, key)
	if trainjobs.Terminal(job) != nil && job.GetDeletionTimestamp() == nil {
		return ""
	}
	for name := range quarantined {
		if strings.HasSuffix(name, "/"+key.Name) {
			return "" // Its name waits for an admin.
		}
	}
	if version == nil {
		return fmt.Sprintf("TrainJob %s has no Dispatch", key.Name)
	}
	d := asDispatch(version)
	if placed := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchPlaced); placed != nil && placed.Reason == "UnknownCopy" {
		return ""
	}
	return fmt.Sprintf("TrainJob %s has not ended (%s)", key.Name, state(version))
}

// left says what is left on a worker that nobody needs.
func (k *Worker) left(quarantined map[string]bool) []string {
	var found []string
	for _, kind := range []memory.Kind{memory.TrainJob, memory.JobSet, memory.Pod} {
		for _, version := range k.server.List(kind) {
			key := client.ObjectKeyFromObject(version.Object)
			job := k.server.Get(memory.TrainJob, key)
			if quarantined[string(k.name)+"/"+key.Name] || job != nil && isForeign(job) {
				continue
			}
			if d := asDispatch(k.world.Hub.Get(memory.Dispatch, key)); d == nil || d.Spec.Cluster != k.name || !d.IsFinished() {
				found = append(found, fmt.Sprintf("%s %s is left on %s", kind, key.Name, k.name))
			}
		}
	}
	return found
}
