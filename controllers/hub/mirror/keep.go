// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/executionlease/protocol"
	"github.com/trainyard/trainyard/internal/requeue"
)

const (
	// restoreLimit is how often a copy is changed back until its job is moved: somebody on the worker does not give in.
	restoreLimit = 5
	// restoreMemory is how long it counts that a copy was changed back.
	restoreMemory = time.Hour
)

// keep makes the copy what it is to be: what the worker's agent has stopped goes on when the agent lets it, and what others have changed
// on the worker is changed back. It returns when to look again, zero if nothing is awaited.
func (r *reconciler) keep(ctx context.Context, worker client.Client, f facts, past *recollection) (time.Duration, error) {
	due, brought, err := r.bring(ctx, worker, f, past)
	if brought || err != nil {
		return due, err // The event of it brings us back.
	}
	if _, stopped := f.copy.GetAnnotations()[v1alpha1.AnnotationFenced]; stopped || r.isFenced(f) && !hasStarted(f.copy) {
		due = requeue.Sooner(due, leaseCheck)
	}
	return due, r.restore(ctx, worker, f, past)
}

// bring lets the copy go on if nothing speaks against it, and puts back the marks that somebody took off. It returns when to look again,
// and true if there was something to write.
func (r *reconciler) bring(ctx context.Context, worker client.Client, f facts, past *recollection) (time.Duration, bool, error) {
	may := r.permission(f)
	why, due, err := r.holdOf(ctx, f, past, may)
	if err != nil {
		return 0, false, err
	}
	lost, outdated := lostMarks(f.copy, f.dispatch, r.HubID, may), may.ok && isOutdated(f.copy, may)
	if !why.ends() && len(lost) == 0 && !outdated {
		return due, false, nil
	}
	updated := f.copy.DeepCopy()
	restored := append(resume(updated, why, may), putBack(updated, lost)...)
	if outdated {
		setAnnotation(updated, v1alpha1.AnnotationChallenge, may.challenge)
	}
	if len(restored) > 0 && past.giveIn(r.Clock.Now()) {
		return 0, true, r.evictChanged(ctx, f, restored, "it is changed again and again")
	}
	patch := client.MergeFromWithOptions(f.copy, client.MergeFromWithOptimisticLock{})
	if err := worker.Patch(ctx, updated, patch, fieldOwner); err != nil {
		if isRefusal(err) && len(restored) > 0 {
			return 0, true, r.evictChanged(ctx, f, restored, "the worker does not let it be changed back: "+refusalWords(err))
		}
		return 0, true, fmt.Errorf("patch TrainJob %s/%s on worker %q: %w", f.copy.GetNamespace(), f.copy.GetName(), r.Cluster, err)
	}
	if len(restored) > 0 {
		past.noteRestored(r.Clock.Now())
		r.recordRestored(f, restored)
	}
	return due, true, nil
}

// permission is what the worker's execution lease says about the job's copy.
func (r *reconciler) permission(f facts) permission {
	if !r.isFenced(f) {
		return permission{ok: true}
	}
	challenge, ok := r.Lease()
	return permission{fenced: true, challenge: challenge, ok: ok}
}

// isFenced is true if the copy is to be stopped when the worker's agent hears nothing from the hub.
func (r *reconciler) isFenced(f facts) bool {
	return f.dispatch.Spec.Failover == v1alpha1.FailoverFenced
}

// outdatedBy is by how many challenges that of a copy may be behind. An agent takes those of the time after which it fences, about ten.
const outdatedBy = 5

// isOutdated is true if the copy has not started and its challenge is so old that the agent will not start it: the creation was long on
// its way, or the agent is another one now. Since the attempt is the current one, it gets a new one.
func isOutdated(copy *unstructured.Unstructured, may permission) bool {
	if !may.fenced || hasStarted(copy) {
		return false
	}
	its, latest := protocol.ParseChallenge(copy.GetAnnotations()[v1alpha1.AnnotationChallenge]), protocol.ParseChallenge(may.challenge)
	return its.Run < latest.Run || its.Run == latest.Run && its.Number+outdatedBy <= latest.Number
}

// hasStarted is true if the copy has had a JobSet.
func hasStarted(copy *unstructured.Unstructured) bool { return len(trainjobs.JobsStatus(copy)) > 0 }

// mark is a label or annotation of ours, and its value; without one it is not to be there.
type mark struct {
	label      bool
	key, value string
}

// lostMarks are the marks that a copy should have and does not.
func lostMarks(copy *unstructured.Unstructured, dispatch *v1alpha1.Dispatch, hubID string, may permission) []mark {
	labels, annotations := marks(dispatch, hubID)
	if _, wanted := annotations[v1alpha1.AnnotationFailover]; !wanted {
		annotations[v1alpha1.AnnotationFailover] = ""
	}
	if may.fenced && may.ok && copy.GetAnnotations()[v1alpha1.AnnotationChallenge] == "" {
		annotations[v1alpha1.AnnotationChallenge] = may.challenge
	}
	var lost []mark
	for key, value := range labels {
		if copy.GetLabels()[key] != value {
			lost = append(lost, mark{label: true, key: key, value: value})
		}
	}
	for key, value := range annotations {
		if copy.GetAnnotations()[key] != value {
			lost = append(lost, mark{key: key, value: value})
		}
	}
	slices.SortFunc(lost, func(a, b mark) int { return strings.Compare(a.key, b.key) })
	return lost
}

// putBack sets the marks, and returns their names.
func putBack(copy *unstructured.Unstructured, lost []mark) []string {
	var names []string
	for _, mark := range lost {
		if mark.label {
			copy.SetLabels(merged(copy.GetLabels(), map[string]string{mark.key: mark.value}))
			names = append(names, "label "+mark.key)
		} else {
			setAnnotation(copy, mark.key, mark.value)
			names = append(names, "annotation "+mark.key)
		}
	}
	return names
}
