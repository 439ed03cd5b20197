// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"strconv"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/executionlease/protocol"
)

// Gate says whether a TrainJob without a JobSet may get one now and, if not, why. It is shut for a copy whose attempt
// is lower than one that was seen. It is also shut for a copy with failover Fenced that is marked as stopped, that is
// not the first copy of its attempt, whose hub may be silent, or whose creation took too long. If Gate may open for a
// copy later, Rechecks brings that copy.
func (f *Fencer) Gate(job *trainer.TrainJob) (open bool, why string) {
	if !isCopy(job) {
		return true, ""
	}
	return f.tracker.admit(job)
}

// Shut is the gate of a process that does no fencing. It keeps copies with failover Fenced from starting: a silent hub
// would assume that they are stopped, and nobody would have stopped them.
func Shut(job *trainer.TrainJob) (open bool, why string) {
	if isCopy(job) && isFenced(job) {
		return false, "its failover is Fenced, and this cluster's agent runs with --fencing=false"
	}
	return true, ""
}

func (t *tracker) admit(job *trainer.TrainJob) (open bool, why string) {
	now := t.clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.tidy(hubOf(job))
	rank := t.rank(job, now)
	if rank == protocol.Outdated {
		t.inboxes.stops.Add(keyOf(job)) // The controller tells the hub, whose record may be old.
		return false, "this cluster has had a later attempt of its hub TrainJob; the hub deletes it"
	}
	if !isFenced(job) {
		return true, ""
	}
	h, key := t.hub(hubOf(job)), keyOf(job)
	delete(h.refused, key)
	if _, stopped := job.Annotations[v1alpha1.AnnotationFenced]; stopped {
		return false, "it was stopped while its hub was silent; the hub resumes it"
	}
	if rank == protocol.Repeated {
		t.refuse(h, key)
		return false, "this cluster has had another copy of this attempt; the hub resumes this copy if it knows of it"
	}
	admission := h.agent.Admits(challengeOf(job), now)
	if admission == protocol.Refused && len(job.Status.JobsStatus) > 0 {
		admission = protocol.Admitted // Gate has admitted it before, so only the lease counts.
	}
	switch admission {
	case protocol.Admitted:
		return true, ""
	case protocol.Refused:
		t.refuse(h, key)
		return false, "the request that created it took too long, or was sent before this cluster's agent started; the " +
			"hub writes a new challenge on it"
	default:
		h.waiting[key] = struct{}{}
		return false, "its hub has not answered this cluster's agent yet"
	}
}

// refuse makes this replica stop a copy, also as a standby. The caller holds the lock.
func (t *tracker) refuse(h *hub, key types.NamespacedName) {
	h.refused[key] = struct{}{}
	t.inboxes.stops.Add(key)
}

// isCopy is true for a TrainJob that a hub has created, whatever its failover is.
func isCopy(job *trainer.TrainJob) bool {
	return hubOf(job) != ""
}

// isFenced is true for a copy that the agent stops when the hub is silent.
func isFenced(job *trainer.TrainJob) bool {
	return job.Annotations[v1alpha1.AnnotationFailover] == string(v1alpha1.FailoverFenced)
}

// isFenceable is true for a copy that the agent may have to stop because it has not ended.
func isFenceable(job *trainer.TrainJob) bool {
	return isCopy(job) && isFenced(job) && !meta.IsStatusConditionTrue(job.Status.Conditions, trainer.TrainJobComplete) &&
		!meta.IsStatusConditionTrue(job.Status.Conditions, trainer.TrainJobFailed)
}

func keyOf(job *trainer.TrainJob) types.NamespacedName {
	return types.NamespacedName{Namespace: job.Namespace, Name: job.Name}
}

func hubOf(job *trainer.TrainJob) string { return job.Labels[v1alpha1.LabelHub] }

// originOf is the hub TrainJob of a copy, read from the copy's marks. Its UID is "" for a TrainJob that is no copy.
func originOf(job *trainer.TrainJob) protocol.Origin {
	return protocol.Origin{
		Hub: hubOf(job), Namespace: job.Namespace, Name: job.Name, UID: types.UID(job.Labels[v1alpha1.LabelOriginUID]),
	}
}

func challengeOf(job *trainer.TrainJob) protocol.Challenge {
	return protocol.ParseChallenge(job.Annotations[v1alpha1.AnnotationChallenge])
}

func copyStateOf(job *trainer.TrainJob) protocol.CopyState {
	_, stopped := job.Annotations[v1alpha1.AnnotationFenced]
	return protocol.CopyState{
		Origin: originOf(job), Copy: job.UID, Attempt: attemptOf(job), Fenced: isFenced(job), Challenge: challengeOf(job), Stopped: stopped,
	}
}

// attemptOf reads the attempt of a copy. It is 0 for a value that the hub cannot have written.
func attemptOf(job *trainer.TrainJob) int64 {
	attempt, err := strconv.ParseInt(job.Annotations[v1alpha1.AnnotationAttempt], 10, 32)
	if err != nil || attempt < 1 {
		return 0
	}
	return attempt
}
