// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// TestWordsOfKueue: what a Workload says is quoted. A reason that the end of another job cannot change is a refusal.
func TestWordsOfKueue(t *testing.T) {
	condition := func(kind, status, reason, message string) any {
		return map[string]any{
			"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": "2026-01-02T03:04:05Z",
		}
	}
	quota := func(reason, message string) []any { return []any{condition("QuotaReserved", "False", reason, message)} }
	const (
		full = "couldn't assign flavors to pod set node: insufficient unused quota for nvidia.com/gpu in flavor h100, 3 more needed"
		max  = "couldn't assign flavors to pod set node: insufficient quota for nvidia.com/gpu in flavor h100, previously considered podsets " +
			"requests (0) + current podset request (8) > maximum capacity (4)"
		spot = "flavor cpu doesn't match node affinity, untolerated taint {spot  NoSchedule <nil>} in flavor spot"
	)
	for name, test := range map[string]struct {
		conditions, checks []any
		want               held
	}{
		"New":             {want: held{reason: "HeldByWorker", message: "Kueue has not looked at the copy yet"}},
		"Pending":         {conditions: quota("Pending", full), want: held{reason: "WaitingForQuota", message: full}},
		"WaitingForQuota": {conditions: quota("WaitingForQuota", "3 more needed"), want: held{reason: "WaitingForQuota", message: "3 more needed"}},
		"NoWords":         {conditions: quota("Pending", ""), want: held{reason: "WaitingForQuota", message: "Pending"}},
		"TooLarge":        {conditions: quota("Pending", max), want: held{reason: "Inadmissible", message: max, refuses: true}},
		"TooLargeInOneFlavor": {
			conditions: quota("Pending", max+", insufficient unused quota for nvidia.com/gpu in flavor a100, 1 more needed"),
			want:       held{reason: "WaitingForQuota", message: max + ", insufficient unused quota for nvidia.com/gpu in flavor a100, 1 more needed"},
		},
		"NoFlavorForAny": {conditions: quota("Pending", max+", "+spot), want: held{reason: "Inadmissible", message: max + ", " + spot, refuses: true}},
		"SecondPodSet":   {conditions: quota("Pending", max+"; "+full), want: held{reason: "WaitingForQuota", message: max + "; " + full}},
		"NotCovered": {
			conditions: quota("Pending", "couldn't assign flavors to pod set node: resource memory unavailable in ClusterQueue"),
			want:       held{reason: "Inadmissible", message: "couldn't assign flavors to pod set node: resource memory unavailable in ClusterQueue", refuses: true},
		},
		"ExceedsMaxQuota": {conditions: quota("ExceedsMaxQuota", "too much"), want: held{reason: "Inadmissible", message: "too much", refuses: true}},
		"Misconfigured":   {conditions: quota("Misconfigured", "no queue"), want: held{reason: "Inadmissible", message: "no queue", refuses: true}},
		"NoMatchingFlavor": {
			conditions: quota("NoMatchingFlavor", "no flavor"), want: held{reason: "Inadmissible", message: "no flavor", refuses: true},
		},
		"TopologyPlacementFailed": { // It does not fit even if all other Workloads are gone.
			conditions: quota("TopologyPlacementFailed", "no rack"), want: held{reason: "Inadmissible", message: "no rack", refuses: true},
		},
		"Suspended": {
			conditions: quota("Suspended", "ClusterQueue a is inactive"), want: held{reason: "Inadmissible", message: "ClusterQueue a is inactive"},
		},
		"WaitingForPreemptedWorkloads": {
			conditions: quota("WaitingForPreemptedWorkloads", full+". Pending the preemption of 1 workload(s)"),
			want:       held{reason: "WaitingForQuota", message: "WaitingForPreemptedWorkloads: " + full + ". Pending the preemption of 1 workload(s)"},
		},
		"AdmissionGated": {
			conditions: quota("AdmissionGated", "Workload requires preemption, but it's gated"),
			want:       held{reason: "WaitingForQuota", message: "AdmissionGated: Workload requires preemption, but it's gated"},
		},
		"EquivalentWorkload": {
			conditions: quota("PendingEvaluation", "Bypassed scheduling evaluation because an equivalent workload recently failed"),
			want: held{reason: "WaitingForQuota",
				message: "PendingEvaluation: Bypassed scheduling evaluation because an equivalent workload recently failed"},
		},
		"NewReasonWithoutWords": {conditions: quota("OnHold", ""), want: held{reason: "WaitingForQuota", message: "OnHold"}},
		"NoLocalQueue": {
			conditions: quota("Inadmissible", "LocalQueue main doesn't exist"),
			want:       held{reason: "Inadmissible", message: "LocalQueue main doesn't exist", refuses: true},
		},
		"Stopped":  {conditions: quota("Inadmissible", "ClusterQueue a is stopped"), want: held{reason: "Inadmissible", message: "ClusterQueue a is stopped"}},
		"Inactive": {conditions: quota("Inadmissible", "LocalQueue a is inactive"), want: held{reason: "Inadmissible", message: "LocalQueue a is inactive"}},
		"Checks": {
			conditions: []any{condition("QuotaReserved", "True", "QuotaReserved", "")},
			checks: []any{
				map[string]any{"name": "prov", "state": "Pending", "message": "no nodes yet"},
				map[string]any{"name": "done", "state": "Ready"}, map[string]any{"name": "a", "state": "Retry", "message": ""},
			},
			want: held{reason: "AdmissionChecks", message: "quota is reserved, and these admission checks are not Ready: a, prov (no nodes yet)"},
		},
		"Admitted": {
			conditions: []any{condition("QuotaReserved", "True", "QuotaReserved", ""), condition("Admitted", "True", "Admitted", "")},
			want:       held{reason: "HeldByWorker", message: "the copy is admitted, and is about to start"},
		},
		"Preempted": {
			conditions: append(quota("Pending", full), condition("Evicted", "True", "Preempted", "for a workload")),
			want:       held{reason: "EvictedByKueue", message: "Preempted: for a workload; " + full},
		},
		"Deactivated": {
			conditions: append(quota("Pending", "it is"), condition("Evicted", "True", "Deactivated", "it is")),
			want:       held{reason: "EvictedByKueue", message: "Deactivated: it is"},
		},
		"CheckRejected": {
			conditions: append(quota("Pending", "it is"), condition("Evicted", "True", "DeactivatedDueToAdmissionCheck", "it is")),
			want:       held{reason: "EvictedByKueue", message: "DeactivatedDueToAdmissionCheck: it is", refuses: true},
		},
		"PreemptedFromAStoppedQueue": {
			conditions: append(quota("Suspended", "ClusterQueue a is stopped"), condition("Evicted", "True", "ClusterQueueStopped", "stopped")),
			want:       held{reason: "EvictedByKueue", message: "ClusterQueueStopped: stopped; ClusterQueue a is stopped"},
		},
		"EvictedAndTooLargeNow": {
			conditions: append(quota("ExceedsMaxQuota", "too much"), condition("Evicted", "True", "Preempted", "for a workload")),
			want:       held{reason: "EvictedByKueue", message: "Preempted: for a workload; too much", refuses: true},
		},
		"ReservedAgain": {
			conditions: []any{condition("QuotaReserved", "True", "QuotaReserved", ""), condition("Evicted", "True", "Preempted", "")},
			want:       held{reason: "AdmissionChecks", message: "quota is reserved, and the copy is not admitted yet"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			object := &unstructured.Unstructured{Object: map[string]any{
				"status": map[string]any{"conditions": test.conditions, "admissionChecks": test.checks},
			}}
			check.Diff(t, test.want, heldBy(object), "heldBy()", cmp.AllowUnexported(held{}))
		})
	}
	odd := heldBy(&unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": "none"}}})
	if odd.reason != v1alpha1.ReasonHeldByWorker || odd.message == "" || odd.refuses {
		t.Errorf("a Workload of another form: %+v", odd)
	}
}

// TestWorkloadIsReadSeldom: at once when the copy has changed, and then with a back-off.
func TestWorkloadIsReadSeldom(t *testing.T) {
	now, copy, s := time.Now(), &unstructured.Unstructured{}, &suspension{queued: true}
	copy.SetGeneration(1)
	for _, want := range []time.Duration{5, 10, 20, 40, 80, 120, 120} {
		if due := s.due(copy, now); due != 0 {
			t.Fatalf("the next read is due in %s, want now", due)
		}
		s.note(held{reason: "r"}, copy, now)
		check.Equal(t, want*time.Second, s.due(copy, now), "the next read is due in")
		now = now.Add(want * time.Second)
	}
	s.note(held{}, copy, now)
	copy.SetGeneration(2)
	check.Equal(t, 0, s.due(copy, now), "the copy has changed, and the next read is due in")
	s.note(held{}, copy, now)
	check.Equal(t, minWorkloadDelay, s.due(copy, now), "the copy has changed, and the read after the next is due in")
	if s.over(); !s.queued || s.held != (held{}) || s.due(copy, now) != 0 {
		t.Errorf("the copy runs, and is not looked at anew when it is suspended again: %+v", s)
	}
}
