// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/test/check"
)

var noon = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// placed is a Dispatch of attempt 2 on worker east, changed by what controllers write.
func placed(changes ...func(d *v1alpha1.Dispatch)) *v1alpha1.Dispatch {
	d := &v1alpha1.Dispatch{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "job"}}
	d.Spec.Cluster, d.Spec.Attempt = "east", 2
	d.Spec.TrainJob = v1alpha1.TrainJobReference{Name: "job", UID: "origin"}
	for _, change := range changes {
		change(d)
	}
	return d
}

func copied(d *v1alpha1.Dispatch) {
	d.Status.CopyUID = "copy"
	record.SetCopied(&d.Status, d, noon)
}

func evicted(reason v1alpha1.EvictionReason) func(*v1alpha1.Dispatch) {
	return func(d *v1alpha1.Dispatch) { d.Spec.Eviction = &v1alpha1.Eviction{Reason: reason} }
}

func over(outcome v1alpha1.Outcome) func(*v1alpha1.Dispatch) {
	return func(d *v1alpha1.Dispatch) { record.End(&d.Status, d, outcome, "words", noon) }
}

func finished(d *v1alpha1.Dispatch) {
	record.Finish(&d.Status, d, &metav1.Condition{Type: "Failed", Status: metav1.ConditionTrue, Reason: "x", Message: "m"}, noon)
}

func leaving(d *v1alpha1.Dispatch) { d.DeletionTimestamp = &metav1.Time{Time: noon} }

// onWorker is the copy of an attempt. end is the condition that says how it ended, empty if it runs.
func onWorker(attempt, end string) *unstructured.Unstructured {
	job := trainjobs.New()
	job.SetUID("copy")
	job.SetLabels(map[string]string{v1alpha1.LabelOriginUID: "origin"})
	job.SetAnnotations(map[string]string{v1alpha1.AnnotationAttempt: attempt})
	if end != "" {
		job.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": end, "status": "True"}}}
	}
	return job
}

func TestDecide(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		seen   observation
		want   step
		why    string
		words  string
	}{
		"None":  {reason: "there is no job", want: wait},
		"Waits": {reason: "no worker has the job", seen: observation{dispatch: placed(func(d *v1alpha1.Dispatch) { d.Spec.Cluster = "" })}, want: wait},
		"Elsewhere": {reason: "the job is on another worker", want: wait,
			seen: observation{dispatch: placed(func(d *v1alpha1.Dispatch) { d.Spec.Cluster = "west" }), copy: onWorker("2", "Complete")}},
		"Runs": {reason: "the job goes on", seen: observation{dispatch: placed(copied), copy: onWorker("2", "")}, want: wait},
		"Ended": {reason: "the copy has ended, and the hub need not know yet", want: read, why: "Complete",
			seen: observation{dispatch: placed(copied), copy: onWorker("2", "Complete")}},
		"OlderEnded": {reason: "the copy is of an earlier attempt", want: wait,
			seen: observation{dispatch: placed(), copy: onWorker("1", "Complete")}},
		"Finished": {reason: "the pods are there until the retention is over", want: read, why: "Failed",
			seen: observation{dispatch: placed(copied, finished), copy: onWorker("2", "Failed")}},
		"FinishedAndDeleted": {reason: "the job is deleted, and the copy is still there", want: read, why: "Failed",
			seen: observation{dispatch: placed(copied, finished, leaving), copy: onWorker("2", "Failed")}},
		"FinishedWithoutCopy": {reason: "somebody was faster", want: miss, why: "Failed", words: "was deleted before",
			seen: observation{dispatch: placed(copied, finished)}},
		"Evicted": {reason: "the pods are to end", want: follow, why: "Drained",
			seen: observation{dispatch: placed(copied, evicted(v1alpha1.EvictionDrained)), copy: onWorker("2", "")}},
		"EvictedAndEnded": {reason: "the copy has ended before it was stopped", want: read, why: "Complete",
			seen: observation{dispatch: placed(copied, evicted(v1alpha1.EvictionDrained)), copy: onWorker("2", "Complete")}},
		"NeverRan": {reason: "there were no pods that ran", want: wait,
			seen: observation{dispatch: placed(copied, evicted(v1alpha1.EvictionAdmissionTimeout)), copy: onWorker("2", "")}},
		"Drained": {reason: "it was followed", want: wait, seen: observation{dispatch: placed(copied, over(v1alpha1.OutcomeDrained))}},
		"Lost": {reason: "the logs are lost with the worker", want: miss, why: "WorkerLost", words: `worker "east" was lost`,
			seen: observation{dispatch: placed(copied, over(v1alpha1.OutcomeWorkerLost)), copy: onWorker("2", "")}},
		"CopyDeleted": {reason: "the pods are gone", want: miss, why: "CopyDeleted", words: "somebody deleted",
			seen: observation{dispatch: placed(copied, over(v1alpha1.OutcomeCopyDeleted))}},
		"Refused": {reason: "there never was a pod", want: wait, seen: observation{dispatch: placed(over(v1alpha1.OutcomeRejected))}},
		"Deleted": {reason: "a job that is deleted takes its logs with it", want: wait,
			seen: observation{dispatch: placed(copied, leaving), copy: onWorker("2", "")}},
	} {
		t.Run(name, func(t *testing.T) {
			got := tc.seen.decide("east")
			check.Equal(t, tc.want, got.step, "step: %s", tc.reason)
			check.Equal(t, tc.why, got.reason, "reason: %s", tc.reason)
			if !strings.Contains(got.words, tc.words) || (tc.words == "") != (got.words == "") {
				t.Errorf("words are %q, want %q: %s", got.words, tc.words, tc.reason)
			}
		})
	}
}
