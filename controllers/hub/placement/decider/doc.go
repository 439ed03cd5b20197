// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package decider decides which waiting job gets which worker. It does no I/O: it is told what changes, and wakes the
// jobs that its decisions are about.
//
//	d := decider.New(options)
//	d.Expect(unplaced)                        // nothing is decided before their demand is known
//	go d.Run(ctx)                             // a pass whenever something has changed
//
//	grant, waits, err := d.Enter(ctx, job)    // the reconciler of a job: it gets a worker or an answer by the next pass
//	grant, placed := d.Granted(uid, attempt)  // it has been woken because a later pass has placed it
//	d.Written(uid, attempt)                   // the grant is on the API server
//	d.Leave(key)                              // the job is not to be placed any more
//
//	d.Observe(dispatch)                       // the watches
//	d.Changed()
//
// A pass (loop.go) brings the workers' capacity up to date (fleet.go, free.go), lets the waiting list decide (package
// dispatch/queue), and records what has been placed (assignments.go). A Grant counts against its worker from the pass
// on. The job's reconciler writes the Grant. Nothing is decided after a start until the workers have shown what they
// have (startup.go). Explain says for each worker why it does not take a waiting job. Elsewhere says where a placed job
// would fit, and keeps the room for it.
//
// All state is under one lock, and passes are done one at a time. A restart forgets grants that have not been written,
// and promises of room: the jobs are decided on again.
package decider
