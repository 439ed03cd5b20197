// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/kueues"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// held is what the worker's Kueue says about a copy that it keeps suspended. It is empty if that is not known.
type held struct {
	// reason is for the phase and the condition of the Dispatch. message has Kueue's words.
	reason, message string
	// refuses: Kueue does not admit the copy before an admin has changed something.
	refuses bool
}

// on says why the Kueue of a worker keeps the copy suspended.
func (h held) on(worker v1alpha1.ClusterName) string {
	return fmt.Sprintf("the Kueue of worker %q holds the copy: %s", worker, h.message)
}

// heldBy says why Kueue keeps the copy of a Workload suspended.
func heldBy(object *unstructured.Unstructured) held {
	w, err := kueues.Read[kueues.Workload](object)
	if err != nil {
		return held{reason: v1alpha1.ReasonHeldByWorker, message: fmt.Sprintf("the Workload cannot be understood: %v", err)}
	}
	quota, evicted := w.Condition(kueues.QuotaReserved), w.Condition(kueues.Evicted)
	switch {
	case w.Is(kueues.QuotaReserved) && w.Is(kueues.Admitted):
		return held{reason: v1alpha1.ReasonHeldByWorker, message: "the copy is admitted, and is about to start"}
	case w.Is(kueues.QuotaReserved):
		return held{reason: v1alpha1.ReasonAdmissionChecks, message: pendingChecks(w)}
	case w.Is(kueues.Evicted):
		return evictedByKueue(evicted, quota)
	case quota == nil:
		return held{reason: v1alpha1.ReasonHeldByWorker, message: "Kueue has not looked at the copy yet"}
	}
	return waitingForQuota(quota)
}

// pendingChecks names the admission checks that are not Ready.
func pendingChecks(w *kueues.Workload) string {
	var pending []string
	for _, check := range w.Status.AdmissionChecks {
		switch {
		case check.State == kueues.CheckReady:
		case check.Message == "":
			pending = append(pending, check.Name)
		default:
			pending = append(pending, fmt.Sprintf("%s (%s)", check.Name, check.Message))
		}
	}
	if len(pending) == 0 {
		return "quota is reserved, and the copy is not admitted yet"
	}
	slices.Sort(pending)
	return "quota is reserved, and these admission checks are not Ready: " + strings.Join(pending, ", ")
}

// evictedByKueue is for a copy that Kueue has stopped. Kueue itself gives up a Workload of which an admission check is
// Rejected, or which it has queued too often. A Workload that an admin has deactivated waits for the admin.
func evictedByKueue(evicted, quota *metav1.Condition) held {
	h := held{reason: v1alpha1.ReasonEvictedByKueue, message: fmt.Sprintf("%s: %s", evicted.Reason, evicted.Message)}
	h.refuses = evicted.Reason == kueues.ReasonCheckRejected || evicted.Reason == kueues.ReasonRequeuedTooOften
	if quota != nil && quota.Message != "" && quota.Message != evicted.Message {
		h.message += "; " + quota.Message
		h.refuses = h.refuses || waitingForQuota(quota).refuses
	}
	return h
}

// waitingForQuota is for a copy without quota. Kueue 0.20 has a reason for each case. Before 0.20, Kueue says
// Inadmissible also if a queue is stopped, or not ready yet, and Pending in all other cases. Only the message tells
// these cases apart.
func waitingForQuota(quota *metav1.Condition) held {
	h := held{reason: v1alpha1.ReasonWaitingForQuota, message: cmp.Or(quota.Message, quota.Reason)}
	switch quota.Reason {
	case kueues.ReasonMisconfigured, kueues.ReasonExceedsMaxQuota, kueues.ReasonNoMatchingFlavor, kueues.ReasonTopologyPlacementFailed:
		h.refuses = true
	case kueues.ReasonSuspended:
		h.reason = v1alpha1.ReasonInadmissible
	case kueues.ReasonInadmissible:
		h.reason = v1alpha1.ReasonInadmissible
		h.refuses = !strings.HasSuffix(quota.Message, " is stopped") && !strings.HasSuffix(quota.Message, " is inactive")
	case kueues.ReasonPending:
		h.refuses = quota.Message != "" && strings.Trim(noFlavor.ReplaceAllString(quota.Message, ""), ",; ") == ""
	case kueues.ReasonWaitingForQuota:
	default: // Such as WaitingForPreemptedWorkloads. The words of the Dispatch say which.
		if quota.Message != "" {
			h.message = fmt.Sprintf("%s: %s", quota.Reason, quota.Message)
		}
	}
	if h.refuses {
		h.reason = v1alpha1.ReasonInadmissible
	}
	return h
}

// noFlavor is how Kueue begins to say that no flavor takes a PodSet, and what it says of a flavor that never does: the
// flavor has too little even if nothing runs, or other labels or taints than the pods. If the message consists of such
// words only, the end of another job does not help. All other words of Kueue may be about room that other jobs will
// free. These are the words of Kueue before 0.20.
var noFlavor = regexp.MustCompile(strings.Join([]string{
	`couldn't assign flavors to pod set [^\s:]+:`,
	`insufficient quota for \S+ in flavor \S+, previously considered podsets requests \(\S+\) \+ current podset request \(\S+\) ` +
		`> maximum capacity \([^)]*\)`,
	`flavor [^\s,;]+ doesn't match node affinity`,
	`untolerated taint \{[^}]*\} in flavor [^\s,;]+`,
	`resource [^\s,;]+ unavailable in ClusterQueue`,
}, "|"))
