// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"errors"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/answers"
	"github.com/trainyard/trainyard/remote"
)

// sweepRefusal is why a worker refused a sweep. The zero value means that it did not refuse.
type sweepRefusal struct {
	reason, words string
}

// wordsLimit is how many bytes of a worker's message a condition shows.
const wordsLimit = 4096

// These texts say what a refusal means, and what to do where the worker forbids the sweep.
const (
	whatStands = "what is outdated on the worker cannot be deleted, so nothing new is created there: "
	whatFails  = "the hub cannot look at its copies there, so nothing new is created: "
	whatToDo   = "; the hub's user needs the verbs list and delete on trainjobs.trainer.kubeflow.org there, in all namespaces: " +
		"\"kubectl trainyard join\" grants them"
)

// refusalOf returns the refusal in an error that would be the same at the next try. Other errors pass, or are reported
// elsewhere: a worker that does not answer, and credentials that are not valid.
func refusalOf(err error) sweepRefusal {
	if errors.Is(err, remote.ErrEndlessList) {
		return sweepRefusal{reason: v1alpha1.ReasonRefused, words: whatFails + record.Shorten(err.Error(), wordsLimit)}
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return sweepRefusal{}
	}
	words := record.Shorten(strings.TrimSuffix(status.Status().Message, "."), wordsLimit)
	switch answer := answers.Of(err); {
	case answer == answers.NoRights:
		return sweepRefusal{reason: v1alpha1.ReasonForbidden, words: whatStands + words + whatToDo}
	case answer.IsRefusal():
		return sweepRefusal{reason: v1alpha1.ReasonRefused, words: whatStands + words}
	}
	return sweepRefusal{}
}

// failingTime is how long sweeps must fail before that is reported. A worker that has just started fails for seconds.
const failingTime = 30 * time.Second

// sweepEnded takes in the result of a sweep. It reports an error that is no refusal only if the worker has given only
// errors for failingTime. A worker that is not connected is not reported: it gets no copies anyway.
func (q *Quarantine) sweepEnded(worker v1alpha1.ClusterName, err error) {
	refusal := refusalOf(err)
	if lasting := q.registry.failing(worker, err, q.Clock.Now()); refusal == (sweepRefusal{}) && lasting {
		refusal = sweepRefusal{reason: v1alpha1.ReasonFailing, words: whatFails + record.Shorten(err.Error(), wordsLimit)}
	}
	if err != nil && refusal == (sweepRefusal{}) {
		return
	}
	if q.registry.note(worker, refusal) {
		q.inbox.AddAfter(types.NamespacedName{Name: string(worker)}, reportDelay)
	}
}

// SweepRefused says whether a worker refused its last sweep, and its words. Until it accepts one, nothing is created
// there.
func (q *Quarantine) SweepRefused(worker v1alpha1.ClusterName) (words string, refused bool) {
	refusal := q.registry.refusal(worker)
	return refusal.words, refusal != (sweepRefusal{})
}

// showRefusal writes the result of the last sweep into the status of a worker.
func (q *Quarantine) showRefusal(worker *v1alpha1.WorkerCluster, refusal sweepRefusal) {
	if refusal == (sweepRefusal{}) {
		meta.RemoveStatusCondition(&worker.Status.Conditions, v1alpha1.WorkerClusterSweepRefused)
		return
	}
	meta.SetStatusCondition(&worker.Status.Conditions, metav1.Condition{
		Type: v1alpha1.WorkerClusterSweepRefused, Status: metav1.ConditionTrue, Reason: refusal.reason, Message: refusal.words,
		ObservedGeneration: worker.Generation, LastTransitionTime: metav1.NewTime(q.Clock.Now()),
	})
}
