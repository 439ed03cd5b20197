// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
)

// annotationRetry on a Dispatch says which value of v1alpha1.AnnotationRetry has been carried out, and when:
// "0123456789abcdef,2026-11-27T11:00:00.5Z". It is written before a worker is asked again, so that neither edits nor a
// restart make a job ask more often than once in retryInterval. The time is a part of the job's circumstances, so a retry
// makes all earlier refusals void. Without the time, the TrainJob had the value before it had a Dispatch.
const annotationRetry = "trainyard.dev/retried"

// retryInterval is the least time between two retries of a job.
const retryInterval = 10 * time.Second

// retry is the value of annotationRetry.
type retry struct {
	// request is the digest of the user's value, empty if there was none.
	request string
	// at is when the request was carried out, zero if it was not.
	at time.Time
}

// retryOf returns the last retry that a Dispatch, which may be nil, has on record.
func retryOf(d *v1alpha1.Dispatch) retry {
	if d == nil {
		return retry{}
	}
	request, at, _ := strings.Cut(d.Annotations[annotationRetry], ",")
	then, err := time.Parse(time.RFC3339Nano, at)
	if err != nil {
		return retry{request: request}
	}
	return retry{request, then}
}

// noteRetry puts a retry on record, without writing it.
func noteRetry(d *v1alpha1.Dispatch, r retry) {
	switch {
	case r.request == "":
	case r.at.IsZero():
		metav1.SetMetaDataAnnotation(&d.ObjectMeta, annotationRetry, r.request)
	default:
		metav1.SetMetaDataAnnotation(&d.ObjectMeta, annotationRetry, r.request+","+r.at.UTC().Format(time.RFC3339Nano))
	}
}

// requestOf is a digest of the user's request for a retry, empty if there is none.
func requestOf(job *unstructured.Unstructured) string {
	value, asks, _ := unstructured.NestedString(job.Object, "metadata", "annotations", v1alpha1.AnnotationRetry)
	if !asks {
		return ""
	}
	return digest(value)
}

// retries says whether the user's request for a retry of an unplaced job is carried out now, or after how long, which is
// zero if there is no request. A job whose attempt has just ended is decided on first.
func (seen *observation) retries() (due bool, later time.Duration) {
	request, last := requestOf(seen.job), retryOf(seen.dispatch)
	if request == "" || request == last.request || record.AttemptOf(seen.dispatch) != record.Waiting {
		return false, 0
	}
	left := last.at.Add(retryInterval).Sub(seen.at)
	if left > retryInterval {
		left = 0 // The clock of the process that wrote the time was ahead.
	}
	return left <= 0, max(left, 0)
}

// retry puts on record that all workers are asked again. The event of the Dispatch brings the job again.
func (r *Reconciler) retry(ctx context.Context, seen *observation) error {
	if err := r.needs.observe(ctx, seen); err != nil {
		return err
	}
	d := seen.record()
	noteRetry(d, retry{request: requestOf(seen.job), at: seen.at})
	if err := r.writer.write(ctx, seen, d); err != nil {
		return err
	}
	if seen.obstacle() == nil {
		if kind, asked := r.needs.pods.kindOf(seen.job, seen.needs.job); asked {
			r.needs.pods.forgetRefusals(kind)
		}
	}
	r.writer.announcer.retried(seen.job, seen.dispatch)
	return nil
}
