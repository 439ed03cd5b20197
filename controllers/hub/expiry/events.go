// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/records"
)

// valueLimit is how much of a user's value an Event quotes.
const valueLimit = 128

// recordUnreadable says that the annotation of a job is invalid, and what that means.
func (r *Reconciler) recordUnreadable(job *unstructured.Unstructured, fault error) {
	value, _ := ttlAnnotation(job)
	r.record(job, "InvalidTTL", "The annotation %s is %q: it %s. The job stays until somebody deletes it",
		v1alpha1.AnnotationTTL, record.Cut(value, valueLimit), fault)
}

// recordNotArchived says why a job stays although its time is over.
func (r *Reconciler) recordNotArchived(job *unstructured.Unstructured, err error) {
	r.record(job, "ArchiveFailed", "The job stays, although its time is over: %s", err)
}

// recordRefused says that the API server refuses the deletion of a job, if a retry does not help.
func (r *Reconciler) recordRefused(job *unstructured.Unstructured, err error) {
	if records.IsFinal(err) {
		r.record(job, "ExpiryRefused", "The job stays, although its time is over: %s", err)
	}
}

func (r *Reconciler) record(job *unstructured.Unstructured, reason, format string, args ...any) {
	r.Recorder.Eventf(job, nil, corev1.EventTypeWarning, reason, "Expire", "%s",
		record.Shorten(fmt.Sprintf(format, args...), record.NoteLimit))
}
