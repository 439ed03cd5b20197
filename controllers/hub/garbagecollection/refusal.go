// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"errors"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/remote"
)

// sweepRefusal is what a worker has refused of a sweep. The zero value says: nothing.
type sweepRefusal struct {
	reason, words string
}

// wordsLimit is how much of a worker's words is shown, so that a condition takes it.
const wordsLimit = 4096

// What would be right where the worker forbids.
const (
	whatStands = "what is outdated on the worker cannot be deleted, so nothing new is created there: "
	whatFails  = "what is there cannot be looked at, so nothing new is created there: "
	whatToDo   = "; the hub's user needs the verbs list and delete on trainjobs.trainer.kubeflow.org there, in all namespaces: " +
		"hack/worker-kubeconfig.sh grants them"
)

// refusalOf is an answer of the worker that will be the same again. What else goes wrong passes, or is told otherwise: that it does not answer,
// and that it does not know the credentials.
func refusalOf(err error) sweepRefusal {
	if errors.Is(err, remote.ErrEndlessList) {
		return sweepRefusal{reason: v1alpha1.ReasonRefused, words: whatFails + record.Shorten(err.Error(), wordsLimit)}
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return sweepRefusal{}
	}
	words := record.Shorten(strings.TrimSuffix(status.Status().Message, "."), wordsLimit)
	switch code := status.Status().Code; {
	case code == http.StatusForbidden && apierrors.IsForbidden(err) && strings.Contains(words, "cannot "):
		return sweepRefusal{reason: v1alpha1.ReasonForbidden, words: whatStands + words + whatToDo}
	case code == http.StatusUnauthorized, code == http.StatusConflict, code == http.StatusRequestTimeout, code == http.StatusTooManyRequests:
		return sweepRefusal{}
	case code >= 400 && code < 500:
		return sweepRefusal{reason: v1alpha1.ReasonRefused, words: whatStands + words}
	}
	return sweepRefusal{}
}

// failingTime is for how long a sweep may fail until that is told. A worker that has just been started has its faults
// for seconds.
const failingTime = 30 * time.Second

// sweepEnded takes in how a sweep has ended. An error that is no refusal is told if the worker gives none but errors
// for long. That it is not connected says nothing: then nobody is sent there anyway.
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

// SweepRefused says why a worker was not swept, in its words, and whether that is so. As long as it is, nothing new is
// created there.
func (q *Quarantine) SweepRefused(worker v1alpha1.ClusterName) (words string, refused bool) {
	refusal := q.registry.refusal(worker)
	return refusal.words, refusal != (sweepRefusal{})
}

// showRefusal changes what the status of a worker says of its last sweep.
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
