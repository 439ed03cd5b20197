// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"cmp"
	"context"
	"time"

	"k8s.io/utils/clock"

	"github.com/trainyard/trainyard/dispatch/judgement"
	"github.com/trainyard/trainyard/internal/copies"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/internal/requeue"
)

// steps are what can be done about one key. The fields of each step say what it may touch; all share what has been seen
// of the key, and what this process knows of the attempt.
type steps struct {
	seen     *observation
	attempt  *attempt
	here     judgement.Worker
	clock    clock.PassiveClock
	worker   copies.Worker
	events   *announcer
	reporter *reporter
	status   *statusWriter
	mender   *mender
	checkup  *checkup
	stopper  *stopper
	creator  *creator
}

// stepsFor returns the steps for a key of which this has been seen, and is known.
func (r *reconciler) stepsFor(worker copies.Worker, seen *observation, known *attempt) *steps {
	o, records := &r.options, records.Writer{Hub: r.options.Hub, Clock: r.options.Clock, Accelerators: r.options.Accelerators}
	s := &steps{seen: seen, attempt: known, here: r.here(), clock: o.Clock, worker: worker}
	s.events = &announcer{seen: seen, attempt: known, cluster: o.Cluster, clusterID: o.ClusterID, recorder: o.Recorder}
	s.reporter = &reporter{
		seen: seen, attempt: known, cluster: o.Cluster, clock: o.Clock, budget: o.Budget, records: records, events: s.events,
	}
	verifier := &verifier{seen: seen, attempt: known, clock: o.Clock, started: r.started, hubReader: o.HubReader}
	search := &search{seen: seen, attempt: known, clock: o.Clock, worker: worker}
	kueue := &workerKueue{seen: seen, attempt: known, cluster: o.Cluster, clock: o.Clock, worker: worker, connection: o.Worker}
	s.status = &statusWriter{
		seen: seen, attempt: known, cluster: o.Cluster, clock: o.Clock, budget: o.Budget, hub: o.Hub, records: records,
		verifier: verifier, reporter: s.reporter, events: s.events,
	}
	s.mender = &mender{
		seen: seen, attempt: known, hubID: o.HubID, clock: o.Clock, worker: worker, lease: o.Lease, kueue: kueue,
		reporter: s.reporter, events: s.events,
	}
	s.checkup = &checkup{
		seen: seen, attempt: known, cluster: o.Cluster, clock: o.Clock, connection: o.Worker, lease: o.Lease,
		jobSetMissing: o.JobSetMissing, reporter: s.reporter,
	}
	s.stopper = &stopper{
		seen: seen, attempt: known, cluster: o.Cluster, clusterID: o.ClusterID, clock: o.Clock, worker: worker, hub: o.Hub,
		hubReader: o.HubReader, records: records, verifier: verifier, search: search, mender: s.mender, reporter: s.reporter,
		status: s.status,
	}
	s.creator = &creator{
		seen: seen, attempt: known, cluster: o.Cluster, hubID: o.HubID, clock: o.Clock, worker: worker, policy: o.Policy,
		propagation: propagation{
			cluster: o.Cluster, hubID: o.HubID, hub: o.Hub, hubReader: o.HubReader, connection: o.Worker, worker: worker,
			namespaceLabel: o.NamespaceLabel, unsent: o.Unsent, pins: o.Pins, pinned: r.pinned, runtimes: o.Runtimes,
		},
		letGo:        func() {},
		dependencies: o.Dependencies, protected: o.Protected, sweepRefused: o.Collector.SweepRefused, unsent: o.Unsent, trials: o.Trials,
		creations: r.creations, lookUp: o.LookUp,
		verifier: verifier, search: search, kueue: kueue, mender: s.mender, reporter: s.reporter, events: s.events,
	}
	return s
}

// act does what the state asks for. It returns when to look again, zero if an event will tell.
func (s *steps) act(ctx context.Context, what judgement.Attempt) (time.Duration, error) {
	if s.attempt.ended && (what == judgement.Absent || what == judgement.Blocked || what == judgement.Evicting || what == judgement.CopyDeleted) {
		return 0, nil // The end of the attempt is reported, and placement decides next.
	}
	switch what {
	case judgement.Absent:
		return s.creator.create(ctx)
	case judgement.Blocked:
		if s.seen.isCurrent(s.seen.copy) {
			return s.stopper.awaitEnd(ctx) // Somebody on the worker has deleted it.
		}
		return s.creator.giveBack(ctx)
	case judgement.Conflicting:
		due, gone, err := s.creator.conflict(ctx)
		if gone {
			return s.act(ctx, judgement.Of(s.seen.judged(s.here)).Attempt)
		}
		return due, err
	case judgement.Misplaced:
		s.events.misplaced()
	case judgement.Returned:
		return 0, s.reporter.reportReturned(ctx)
	case judgement.Mirrored:
		return s.mirror(ctx)
	case judgement.Evicting:
		return s.stopper.evict(ctx)
	case judgement.Finished:
		return s.status.finish(ctx)
	case judgement.CopyDeleted:
		return s.stopper.resolveMissing(ctx)
	case judgement.Withdrawing:
		return s.stopper.withdraw(ctx)
	case judgement.Released:
		return s.stopper.release(ctx)
	case judgement.HeldBack:
		return holdCheck, nil
	case judgement.Waiting, judgement.Idle:
	}
	return 0, nil
}

// mirror keeps the copy what it should be and brings its status to the hub. No step waits for the one before to
// succeed. The first error is returned as it is: a conflict keeps its type, and is retried without a log line.
func (s *steps) mirror(ctx context.Context) (time.Duration, error) {
	s.events.uncopied()
	mendDue, mendErr := s.mender.mend(ctx)
	statusDue, statusErr := s.status.syncStatus(ctx)
	s.checkup.measureStart()
	healthDue, healthErr := s.checkup.observe(ctx)
	stuckDue, refused, stuckErr := s.checkup.refuseStuck(ctx)
	if refused || stuckErr != nil {
		return 0, cmp.Or(stuckErr, mendErr, statusErr, healthErr) // The write wakes us.
	}
	runningDue, runningErr := s.reporter.reportRunning(ctx)
	due := requeue.Sooner(requeue.Sooner(mendDue, healthDue), requeue.Sooner(statusDue, runningDue))
	due = requeue.Sooner(due, stuckDue)
	if s.seen.believed {
		due = requeue.Sooner(due, createLag-s.clock.Since(s.attempt.copy.since))
	}
	return due, cmp.Or(mendErr, statusErr, healthErr, runningErr)
}
