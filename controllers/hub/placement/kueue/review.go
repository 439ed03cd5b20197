// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package kueue

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/kueues"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

const (
	// CheckController is the spec.controllerName of Trainyard's AdmissionChecks.
	CheckController = v1alpha1.KeyPrefix + "placement"
	// CheckOwner is the field manager that applies the states of Trainyard's checks.
	CheckOwner = "trainyard-placement"
)

// Review is a Workload with quota that Trainyard's admission checks decide about.
type Review struct {
	workload types.NamespacedName
	uid      types.UID
	version  string
	checks   []kueues.CheckState
}

// review returns what Trainyard's checks have to decide, nil if there is nothing. They decide last: room that is held
// for a job is kept from other jobs.
func (w *workload) review(by checks) *Review {
	if !w.reserved || by.decided == "" {
		return nil
	}
	r := &Review{
		workload: types.NamespacedName{Namespace: w.Namespace, Name: w.Name}, uid: w.UID, version: w.ResourceVersion,
	}
	for _, c := range w.checks {
		ours := by.controllerOf(c.Name) == by.decided
		switch {
		case ours && (c.State == kueues.CheckPending || c.State == kueues.CheckReady):
			r.checks = append(r.checks, c)
		case ours, c.State != kueues.CheckReady:
			return nil
		}
	}
	if len(r.checks) == 0 {
		return nil
	}
	return r
}

// Says is true if all checks have a state and a message already.
func (r *Review) Says(state, message string) bool {
	for _, c := range r.checks {
		if c.State != state || c.Message != message {
			return false
		}
	}
	return true
}

// Retries is how many times the checks have given the quota of the job back in a row.
func (r *Review) Retries() int64 {
	var most int64
	for _, c := range r.checks {
		most = max(most, c.RetryCount)
	}
	return most
}

// Patch returns what gives all checks a state, for an apply of the status by CheckOwner. The apply fails with a
// conflict if the Workload has changed.
func (r *Review) Patch(state, message string, now time.Time) *unstructured.Unstructured {
	checks := make([]any, len(r.checks))
	for i, c := range r.checks {
		since := c.LastTransitionTime
		if c.State != state || since == "" {
			since = now.UTC().Format(time.RFC3339)
		}
		checks[i] = map[string]any{"name": c.Name, "state": state, "message": message, "lastTransitionTime": since}
	}
	patch := kueues.KindWorkload.New()
	patch.Object["status"] = map[string]any{"admissionChecks": checks}
	patch.SetNamespace(r.workload.Namespace)
	patch.SetName(r.workload.Name)
	patch.SetUID(r.uid)
	patch.SetResourceVersion(r.version)
	return patch
}
