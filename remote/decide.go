// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/trainjobs"
)

const messageUnauthorized = "the worker answers 401 Unauthorized: give new credentials, for instance with \"kubectl trainyard join\""

// observation is what the loop has found out about a worker.
type observation struct {
	// unusable is the reason why the loop cannot send anything.
	unusable    error
	fingerprint string
	pinned      types.UID

	// answer is the answer to the last probe. reason says what was wrong, unless answer is answered. id and
	// lastSeen are of the last probe that was answered.
	answer   answer
	reason   string
	id       types.UID
	lastSeen time.Time
	// failures counts the probes that failed in a row, since firstFailure.
	failures     int
	firstFailure time.Time

	// apis are the APIs that the worker served when it last answered that. apisErr is the last error, or nil.
	apis    apis
	apisErr error
	// rights says which of Options.Rights the worker grants.
	rights map[Right]grant
	// synced is true when the caches have listed everything once. pending are the resources that the caches have not
	// listed yet. overdue is true when the first lists take longer than SyncTimeout.
	synced  bool
	pending []string
	overdue bool
	// denied are requests that the caches need and the worker forbids.
	denied []call
	// stalled are requests of the caches that have failed for longer than SyncTimeout while the worker answers probes.
	stalled []call
	// excesses say which lists have no end, and which answers to the caches are too large.
	excesses []string
}

// record adds the answer to a probe. A 401 or 403 does not make the worker unreachable, but the next pause grows too.
func (f *observation) record(id types.UID, how answer, err error, now time.Time) {
	if how == answered {
		f.answer, f.reason, f.id, f.lastSeen, f.failures = how, "", id, now, 0
		return
	}
	if f.failures == 0 || f.answer != how {
		f.failures, f.firstFailure = 0, now
	}
	f.failures++
	f.answer, f.reason = how, err.Error()
}

// served says whether the worker serves the APIs, as far as is known.
func (f *observation) served() bool { return f.apis.trainJob && f.apis.jobSet }

// jobSetMissing is Status.JobSetMissing.
func (f *observation) jobSetMissing() string {
	if f.apis.jobSet {
		return ""
	}
	return jobSetGVK.GroupVersion().String() + " jobsets are not served: install JobSet"
}

type decision struct {
	state   State
	message string
	since   time.Time
	gate    gate
	// keep says to change nothing.
	keep bool
}

// decide returns what follows from the observation for a worker whose status was before.
func decide(f observation, before Status, now time.Time, opts *Options) decision {
	v := f.decision(before.State, now, opts)
	if v.since.IsZero() {
		if v.since = now; v.state == before.State {
			v.since = before.Since
		}
	}
	return v
}

func (f *observation) decision(before State, now time.Time, opts *Options) decision {
	switch {
	case f.unusable != nil:
		return decision{state: CredentialsInvalid, message: f.unusable.Error()}
	case f.answer == unauthorized || f.answer == forbidden:
		return decision{state: CredentialsInvalid, message: f.reason}
	case f.answer == none:
		return f.failing(before, now, opts)
	case f.pinned == "":
		return decision{state: Connecting, message: fmt.Sprintf("the worker answers as cluster %s and waits to be pinned", f.id)}
	case f.id != f.pinned:
		return decision{state: IdentityChanged, message: fmt.Sprintf(
			"the credentials lead to cluster %s, but the worker was registered as cluster %s", f.id, f.pinned)}
	case f.apis.kubernetes == "":
		return decision{state: Connecting, message: f.apisMessage()}
	case !f.apis.trainJob:
		return decision{
			state: TrainJobAPIMissing, gate: f.cachesGate(),
			message: trainjobs.GroupVersionKind.GroupVersion().String() + " trainjobs are not served: install the CRDs of " +
				"Kubeflow Trainer",
		}
	case len(f.denied) > 0:
		return decision{state: CredentialsInvalid, gate: cachesOnly, message: fmt.Sprintf(
			"the worker forbids %s: grant it to the hub's user in all namespaces", quote(f.denied))}
	case len(f.excesses) > 0:
		return decision{state: Connecting, gate: cachesOnly, message: "the worker answers with more than it may: " +
			strings.Join(f.excesses, "; ")}
	case len(f.stalled) > 0:
		return decision{state: Connecting, gate: cachesOnly, message: fmt.Sprintf(
			"the worker has not answered %s for too long, and what the hub knows of it is out of date", quote(f.stalled))}
	case !f.synced:
		return decision{state: Connecting, message: f.syncMessage(), gate: cachesOnly}
	}
	return decision{state: Connected, message: "connected", gate: open}
}

// failing decides for a worker that does not answer. A worker that answered before keeps its state for a while.
func (f *observation) failing(before State, now time.Time, opts *Options) decision {
	patience := time.Duration(opts.FailureThreshold-1) * opts.ProbeInterval
	mayRecover := f.failures < opts.FailureThreshold || now.Sub(f.firstFailure) < patience
	if mayRecover && before != Connecting && before != Unreachable {
		return decision{keep: true}
	}
	return decision{state: Unreachable, message: f.reason, since: f.firstFailure}
}

// apisMessage is the message for a worker that answers the probe but has not said yet which APIs it serves.
func (f *observation) apisMessage() string {
	if f.apisErr != nil {
		return f.apisErr.Error()
	}
	return "the worker's APIs are being checked"
}

// cachesGate lets caches that have synced once continue while an API is missing.
func (f *observation) cachesGate() gate {
	if f.synced {
		return cachesOnly
	}
	return shut
}

func (f *observation) syncMessage() string {
	if f.overdue && len(f.pending) > 0 {
		return fmt.Sprintf("the worker has not answered the first list of %s for too long", strings.Join(f.pending, ", "))
	}
	return "the caches are being filled"
}

// quote lists requests, sorted, so that the same requests give the same text.
func quote(requests []call) string {
	texts := make([]string, 0, len(requests))
	for _, request := range requests {
		texts = append(texts, fmt.Sprintf("\"%s %s\"", request.verb, request.resource))
	}
	slices.Sort(texts)
	return strings.Join(texts, ", ")
}
