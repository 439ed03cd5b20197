// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
)

// promise is a promise of the product, with an edit that breaks it and the tests that notice that.
type promise struct {
	name string
	// words say what is promised.
	words string
	edits []edit
	// in is the package of the tests below test/faults, seenBy their names.
	in     string
	seenBy []string
}

// edit replaces a text that a file of the product has exactly once.
type edit struct {
	file      string
	find, put string
}

func (e edit) apply(source string) (string, error) {
	if n := strings.Count(source, e.find); n != 1 {
		return "", fmt.Errorf("%s has this %d times, want once:\n%s", e.file, n, e.find)
	}
	return strings.Replace(source, e.find, e.put, 1), nil
}

const (
	// scenarios is the package of the tests of faults by their names, behind of those with a Kueue on a worker.
	scenarios, behind = ".", "behind"
)

// promises are in the order of docs/failures.md.
var promises = []promise{
	{
		name: "short-loss", words: "A loss that is shorter than the grace period is written about no job.",
		edits: []edit{{
			file: "controllers/hub/failover/worker.go",
			find: "if due := awaySince(o.worker).Add(grace); now.Before(due) {",
			put:  "if due := awaySince(o.worker).Add(grace); now.Before(due) && o.cutOff {",
		}, {
			file: "controllers/hub/failover/worker.go",
			find: "if due := o.contact.UnreachableSince.Add(min(grace, confirmation)); now.Before(due) {",
			put:  "if due := o.contact.UnreachableSince.Add(min(grace, confirmation)); now.Before(due) && o.cutOff {",
		}},
		in: scenarios, seenBy: []string{"TestFaultShortLoss"},
	},
	{
		name: "hold", words: "A job whose failover is Hold stays on its worker.",
		edits: []edit{{
			file: "controllers/hub/failover/job.go",
			find: "return decision{do: hold, words: holdWords(d)}",
			put:  "return decision{do: end, words: holdWords(d)}",
		}},
		in: scenarios, seenBy: []string{"TestFaultHold"},
	},
	{
		name: "agent-stops", words: "The agent stops Fenced copies when the hub is silent.",
		edits: []edit{{
			file: "executionlease/protocol/copy.go",
			find: "	case now.Before(a.StopsFrom()):\n		return Decision{Again: a.StopsFrom()}",
			put:  "	case a != nil:\n		return Decision{Again: now.Add(a.Interval())}",
		}},
		in: scenarios, seenBy: []string{"TestFaultFenced", "TestFaultManagerAway"},
	},
	{
		name: "hub-waits", words: "The hub places a Fenced job anew only when the agent must have stopped it.",
		edits: []edit{{
			file: "executionlease/protocol/hub.go",
			find: "return fenceAfter + fenceAfter/50 + margin",
			put:  "return (fenceAfter + margin) / 100",
		}},
		in: scenarios, seenBy: []string{"TestFaultFencedSlowPods"},
	},
	{
		name: "resumed", words: "What the agent has stopped goes on when the hub is back before it has given the job up.",
		edits: []edit{{
			file: "controllers/hub/mirror/suspension.go",
			find: "case stopped && !may.ok:",
			put:  "case stopped && may.fenced:",
		}},
		in: scenarios, seenBy: []string{"TestFaultFencedAndBack", "TestFaultManagerAway"},
	},
	{
		name: "immediate", words: "A job whose failover is Immediate is placed anew after the grace period.",
		edits: []edit{{
			file: "controllers/hub/failover/job.go",
			find: "return decision{do: end, words: immediateWords(worker)}",
			put:  "return decision{do: hold, words: immediateWords(worker)}",
		}},
		in: scenarios, seenBy: []string{"TestFaultImmediate"},
	},
	{
		name: "silent-only", words: "What answers in any way is not silent: its Fenced jobs stay.",
		edits: []edit{{
			file: "controllers/hub/failover/job.go",
			find: "return f.isAnswerOnRecord() || !f.stop.untried && !f.stop.silent",
			put:  "return false",
		}},
		in: scenarios, seenBy: []string{"TestFaultRefusedIsNotSilent", "TestFaultAPIServerPaused"},
	},
	{
		name: "agent-alive", words: "Without an agent that was alive nothing is taken for fenced.",
		edits: []edit{{
			file: "controllers/hub/failover/job.go",
			find: "case f.stop.at.IsZero():",
			put:  "case f.stop.at.IsZero() && f.dispatch == nil:",
		}},
		in: scenarios, seenBy: []string{"TestFaultNoAgent"},
	},
	{
		name: "pause", words: "When many workers are lost at once, nothing is moved.",
		edits: []edit{{
			file: "controllers/hub/failover/worker.go",
			find: "	if o.cutOff {",
			put:  "	if o.cutOff && o.worker == nil {",
		}},
		in: scenarios, seenBy: []string{"TestFaultManyWorkersLost"},
	},
	{
		name: "given-up-goes", words: "What is left of an attempt that was given up is deleted when the worker is back.",
		edits: []edit{{
			file: "dispatch/judgement/judgement.go",
			find: "		return Needed\n	}\n	return c\n",
			put:  "		return Needed\n	}\n	return Needed\n",
		}, {
			file: "controllers/hub/garbagecollection/tombstone.go",
			find: "judgement.IsCovered(e.here, existing, tombstone) {",
			put:  "judgement.IsCovered(e.here, existing, tombstone) && e.hubID == \"\" {",
		}},
		in: scenarios, seenBy: []string{"TestFaultFenced", "TestFaultForgotten"},
	},
	{
		name: "hang-noticed", words: "A request to a worker that never answers ends.",
		edits: []edit{{
			file: "remote/loop.go",
			find: "context.WithTimeout(l.ctx, l.opts.ProbeTimeout)",
			put:  "context.WithTimeout(l.ctx, 1000*l.opts.ProbeTimeout)",
		}, {
			file: "remote/transports.go",
			find: "context.WithTimeout(req.Context(), timeout)",
			put:  "context.WithTimeout(req.Context(), 1000*timeout)",
		}},
		in: scenarios, seenBy: []string{"TestFaultHang"},
	},
	{
		name: "crash-between-writes", words: "What a manager has begun the next one ends: here, that a job has finished.",
		edits: []edit{{
			file: "dispatch/judgement/judgement.go",
			find: "	case trainjobs.Terminal(s.Job) != nil:\n		return Finished",
			put:  "	case trainjobs.Terminal(s.Job) != nil:\n		return Mirrored",
		}},
		in: "crashes", seenBy: []string{"TestCrashesOfAJobThatEnds"},
	},
	{
		name: "upstream-leads", words: "Our agents run no jobs beside a Kubeflow Trainer that leads.",
		edits: []edit{{
			file: "cmd/worker-agent/options.go",
			find: `leaseName      = "trainer.kubeflow.org"`,
			put:  `leaseName      = "trainer.example.org"`,
		}},
		in: scenarios, seenBy: []string{"TestFaultUpstreamTrainerLeads"},
	},
	{
		name: "refused-is-no-loss", words: "A worker that refuses the credentials is not lost.",
		edits: []edit{{
			file: "remote/decide.go",
			find: "case f.answer == unauthorized || f.answer == forbidden:",
			put:  "case (f.answer == unauthorized || f.answer == forbidden) && f.pinned == \"\":",
		}, {
			file: "remote/decide.go",
			find: "case f.answer == none:",
			put:  "case f.answer != answered:",
		}},
		in: scenarios, seenBy: []string{"TestFaultRightsRevoked"},
	},
	{
		name: "identity", words: "Another cluster under a worker's name gets nothing.",
		edits: []edit{{
			file: "remote/decide.go",
			find: "case f.id != f.pinned:",
			put:  "case f.id == \"\":",
		}},
		in: scenarios, seenBy: []string{"TestFaultWorkerRecreated"},
	},
	{
		name: "quarantine", words: "A copy that the hub has no record of is left alone.",
		edits: []edit{{
			file: "dispatch/judgement/judgement.go",
			find: "	case relation == record.Foreign, relation == record.Unmarked, relation == record.Later:",
			put:  "	case relation == record.Foreign:\n		return s.unlessGoing(Outdated)\n	case relation == record.Unmarked, relation == record.Later:",
		}},
		in: scenarios, seenBy: []string{"TestFaultHubRestored"},
	},
	{
		name: "foreign", words: "A TrainJob that is not ours is not touched.",
		edits: []edit{{
			file: "dispatch/record/relation.go",
			find: "case uid != \"\" && (uid == known.CopyUID || uid == d.RecordedCopy()):\n		return Current",
			put:  "case uid != \"\":\n		return Current",
		}},
		in: scenarios, seenBy: []string{"TestFaultForeignJobOfTheName", "TestFaultTwoHubs"},
	},
	{
		name: "deletion-waits", words: "A deletion waits for a worker that is away, for a time.",
		edits: []edit{{
			file: "controllers/hub/failover/job.go",
			find: "	if now.Before(due) {\n		return decision{do: pending",
			put:  "	if now.Before(due) && f.dispatch == nil {\n		return decision{do: pending",
		}},
		in: scenarios, seenBy: []string{"TestFaultDeletedWhileAway"},
	},
	{
		name: "tombstone", words: "What a worker has of a job that was let go is on record.",
		edits: []edit{{
			file: "controllers/hub/failover/finalize.go",
			find: `if spec.ClusterID == "" {`,
			put:  `if spec.ClusterID != "" {`,
		}},
		in: scenarios, seenBy: []string{"TestFaultTombstone", "TestFaultForgotten"},
	},
	{
		name: "cordon", words: "Nothing new comes to a worker that is cordoned.",
		edits: []edit{{
			file: "dispatch/job.go",
			find: "Cordoned: cluster.Spec.Unschedulable || cluster.Spec.Drain,",
			put:  "Cordoned: cluster.Spec.Unschedulable && cluster.Spec.Drain,",
		}},
		in: scenarios, seenBy: []string{"TestFaultCordon"},
	},
	{
		name: "drain-budget", words: "Not more jobs leave a drained worker at a time than their policy allows.",
		edits: []edit{{
			file: "controllers/hub/moves/evict.go",
			find: "return b[nameOf(policy)] < *policy.Rules().MaxConcurrentMoves",
			put:  "return b[nameOf(policy)] < *policy.Rules().MaxConcurrentMoves+1000",
		}},
		in: scenarios, seenBy: []string{"TestFaultDrain"},
	},
	{
		name: "pods-first", words: "An attempt begins when no pod of the one before is alive.",
		edits: []edit{{
			file: "internal/copies/remains.go",
			find: `return jobSet != "" && object.GetLabels()[jobsetv1alpha2.JobSetUIDKey] == string(jobSet)`,
			put:  "return true",
		}},
		in: scenarios, seenBy: []string{"TestFaultCopyDeletedBeforeItsPods"},
	},
	{
		name: "unlabelled", words: "A copy that somebody took the labels off is still the copy.",
		edits: []edit{{
			file: "dispatch/record/relation.go",
			find: "case uid != \"\" && (uid == known.CopyUID || uid == d.RecordedCopy()):\n		return Current",
			put:  "case copy.GetLabels()[\"trainyard.dev/hub\"] == \"\":\n		return Foreign\n	case uid != \"\" && (uid == known.CopyUID || uid == d.RecordedCopy()):\n		return Current",
		}, { // With this look at its pods, the copy is waited for until it has its labels again.
			file: "controllers/hub/mirror/search.go",
			find: "if found.remains == copies.Foreign && !s.seen.wasCopied() {",
			put:  "if found.remains == copies.Foreign {",
		}},
		in: scenarios, seenBy: []string{"TestFaultCopyUnlabelled"},
	},
	{
		name: "suspension", words: "A copy that somebody has suspended is resumed.",
		edits: []edit{{
			file: "controllers/hub/mirror/suspension.go",
			find: "return a.hidden || a.workload != nil",
			put:  "return a.hidden || a.workload != nil || !a.installed",
		}},
		in: scenarios, seenBy: []string{"TestFaultCopySuspended"},
	},
	{
		name: "attempts-count-on", words: "Attempts go on counting when somebody deletes the Dispatch.",
		edits: []edit{{
			file: "controllers/hub/placement/waiting.go",
			find: "p.attempt = max(p.attempt, d.Spec.Attempt)",
			put:  "p.attempt = min(p.attempt, d.Spec.Attempt)",
		}, {
			file: "controllers/hub/placement/observation.go",
			find: "p.attempt = max(p.attempt, last.Attempt)",
			put:  "p.attempt = max(p.attempt, min(last.Attempt, 0))",
		}},
		in: scenarios, seenBy: []string{"TestFaultDispatchDeleted"},
	},
	{
		name: "refusal", words: "A refusal is an answer: the next worker is asked.",
		edits: []edit{{
			file: "controllers/hub/mirror/create.go",
			find: "refused := isRefusal(err) &&",
			put:  "refused := isRefusal(err) && c.seen.job == nil &&",
		}},
		in: scenarios, seenBy: []string{"TestFaultRefusedByAll", "TestFaultRightsRevokedHalfWay"},
	},
	{
		name: "storm", words: "The status of a running job is written once a second at most.",
		edits: []edit{{
			file: "controllers/hub/mirror/status.go",
			find: "statusWindow = time.Second",
			put:  "statusWindow = time.Millisecond",
		}},
		in: scenarios, seenBy: []string{"TestFaultStatusStorm"},
	},
	{
		name: "fence-mark", words: "A Kueue does not start what the agent has stopped.",
		edits: []edit{{
			file: "executionlease/worker/copies.go",
			find: "updated.Annotations[v1alpha1.AnnotationFenced] = answer",
			put:  "updated.Annotations[v1alpha1.AnnotationFenced+\"-not\"] = answer",
		}},
		in: behind, seenBy: []string{"TestFaultFencedWhileAdmitted", "TestFaultFencedBeforeAdmission"},
	},
	{
		name: "fence-mark-removed", words: "The hub removes the mark when the attempt goes on, and Kueue starts the copy.",
		edits: []edit{{
			file: "controllers/hub/mirror/suspension.go",
			find: "trainjobs.SetAnnotation(copy, v1alpha1.AnnotationFenced, \"\")",
			put:  "trainjobs.SetAnnotation(copy, v1alpha1.AnnotationFenced+\"-not\", \"\")",
		}},
		in: behind, seenBy: []string{"TestFaultFencedWhileAdmittedAndBack"},
	},
	{
		name: "fence-deletes", words: "A copy that the agent cannot suspend is deleted in time.",
		edits: []edit{{
			file: "executionlease/worker/copies.go",
			find: "if err != nil && d.Urgent && !apierrors.IsConflict(err)",
			put:  "if err != nil && d.Urgent && apierrors.IsConflict(err)",
		}},
		in: behind, seenBy: []string{"TestFaultFencedWithoutKueue"},
	},
	{
		name: "resumed-by-others", words: "A stopped copy that somebody has resumed is deleted.",
		edits: []edit{{
			file: "executionlease/protocol/copy.go",
			find: "case c.Stopped && !c.Suspended && !c.Going:",
			put:  "case false:",
		}},
		in: behind, seenBy: []string{"TestFaultFencedWithoutPolicy"},
	},
	{
		name: "held-by-worker", words: "What the worker's Kueue has suspended is Kueue's to start.",
		edits: []edit{{
			file: "controllers/hub/mirror/suspension.go",
			find: "return refused, nil\n\t}\n\treturn queued, nil",
			put:  "return refused, nil\n\t}\n\treturn suspendedThere, nil",
		}},
		in: behind, seenBy: []string{"TestFaultQueueDrained", "TestFaultKueueKilled"},
	},
}
