// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"time"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/placement/kueue"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/record"
)

// unreportedWait is how long a job of Kueue's without a Dispatch waits for its Workload before the manager reports the
// wait.
const unreportedWait = 5 * time.Second

// obstacle says why the job waits, whatever capacity the workers have: the first obstacle in the order of this list.
// Nil: nothing that has been observed stands in the way.
func (seen *observation) obstacle() *dispatch.Decision {
	for _, find := range []func(*observation) *dispatch.Decision{
		exhausted,
		ofKueue,
		unknownCopy,
		protectedNamespace,
		func(seen *observation) *dispatch.Decision { return seen.needs.unmet },
	} {
		if obstacle := find(seen); obstacle != nil {
			return obstacle
		}
	}
	return nil
}

// exhausted is about a job without a next attempt.
func exhausted(seen *observation) *dispatch.Decision {
	if seen.past.attempt < record.LastAttempt {
		return nil
	}
	return &dispatch.Decision{Reason: v1alpha1.ReasonAttemptsExhausted, Message: fmt.Sprintf(
		"the last attempt of the job is %d, and there is no higher number; delete the TrainJob and create it again",
		seen.past.attempt)}
}

// ofKueue is about a job that Kueue has. Nil: Kueue does not stand in the way, or it is not known yet.
func ofKueue(seen *observation) *dispatch.Decision {
	switch seen.kueue.Standing {
	case kueue.MultiKueue:
		return &dispatch.Decision{Reason: v1alpha1.ReasonManagedByMultiKueue, Message: seen.kueue.Message}
	case kueue.Held:
		return &dispatch.Decision{Reason: v1alpha1.ReasonWaitingForWorkload, Message: seen.kueue.Message}
	case kueue.Free, kueue.QuotaReserved, kueue.Unknown:
	}
	return nil
}

// awaitsKueue is true while nothing is written about a job, because its Workload will probably show soon whether Kueue
// admits the job. until is how long that lasts at most. 0: until Kueue's answer changes. Kueue admits a Workload before
// it resumes its job, but the two changes come through two watches. If the manager reported the wait at once, each such
// job would cost a waiting Dispatch.
func (seen *observation) awaitsKueue() (silent bool, until time.Duration) {
	switch seen.kueue.Standing {
	case kueue.Unknown:
		return true, 0
	case kueue.Held:
		until = unreportedWait - seen.at.Sub(seen.past.firstSeen)
		return seen.dispatch == nil && until > 0, max(until, 0)
	case kueue.Free, kueue.QuotaReserved, kueue.MultiKueue:
	}
	return false, 0
}

// unknownCopy is about a job that may be running already.
func unknownCopy(seen *observation) *dispatch.Decision {
	worker := seen.copyAt
	if worker == "" {
		return nil
	}
	key := seen.key()
	return &dispatch.Decision{Reason: v1alpha1.ReasonUnknownCopy, Message: fmt.Sprintf(
		"worker %s has a copy of this name that the hub has no record of, and that may be running; the job waits until somebody decides: "+
			"kubectl trainyard adopt %s %s makes it the copy of this job; kubectl trainyard release %s %s leaves it to the worker",
		worker, worker, key, worker, key)}
}

// protectedNamespace is about a job of a protected namespace. A copy would be in the namespace of that name on a worker,
// where its pods could use what the worker's own components have there.
func protectedNamespace(seen *observation) *dispatch.Decision {
	if !seen.needs.protected {
		return nil
	}
	return &dispatch.Decision{
		Reason: v1alpha1.ReasonProtectedNamespace,
		Message: fmt.Sprintf("TrainJobs of namespace %q are not dispatched: namespaces that begin with kube-, those of Trainyard, "+
			"Kubeflow Trainer, JobSet and Kueue, and those of the manager's flag --protected-namespaces are protected; create the "+
			"TrainJob in another namespace, or ask an admin for an exception (--unprotected-namespaces)", seen.job.GetNamespace()),
	}
}
