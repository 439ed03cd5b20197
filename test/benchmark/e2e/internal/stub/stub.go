// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package stub

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/api"
)

// Stub ends the jobs of a worker.
type Stub struct {
	client *api.Client
	runFor *atomic.Int64
	// path is the path of the jobs of a namespace, and completion the patch of a job's status that makes it Complete.
	path       func(namespace string) string
	completion func(at time.Time) []byte

	mu      sync.Mutex
	started map[string]bool // under mu: by UID
}

// New returns a stub that plays the TrainJob controller: it ends each TrainJob so many nanoseconds after it may run. A
// negative number: never.
func New(client *api.Client, runFor *atomic.Int64) *Stub {
	return &Stub{client: client, runFor: runFor, path: api.TrainJobsIn, completion: Completion, started: map[string]bool{}}
}

// OfJobSets returns a stub that plays the JobSet controller, for a worker that has a TrainJob controller.
func OfJobSets(client *api.Client, runFor *atomic.Int64) *Stub {
	return &Stub{client: client, runFor: runFor, path: api.JobSetsIn, completion: jobSetCompletion, started: map[string]bool{}}
}

// Observe sees a change of a job on the worker. failed gets the errors of writes.
func (s *Stub) Observe(ctx context.Context, event *api.Event, failed func(error)) {
	job := &event.Object
	s.mu.Lock()
	defer s.mu.Unlock()
	if event.Type == "DELETED" {
		delete(s.started, job.Metadata.UID)
		return
	}
	runFor := time.Duration(s.runFor.Load())
	if job.Spec.Suspend || job.Complete() || s.started[job.Metadata.UID] || runFor < 0 {
		return
	}
	s.started[job.Metadata.UID] = true
	time.AfterFunc(runFor, func() {
		if err := s.complete(ctx, job.Metadata.Namespace, job.Metadata.Name); err != nil && ctx.Err() == nil {
			failed(err)
		}
	})
}

// complete ends a job as its controller does. A job that is gone has ended in another way.
func (s *Stub) complete(ctx context.Context, namespace, name string) error {
	path := s.path(namespace) + "/" + name + "/status"
	_, err := s.client.Do(ctx, http.MethodPatch, path, api.MergePatch, s.completion(time.Now()))
	if answer := (*api.Error)(nil); errors.As(err, &answer) && answer.Code == http.StatusNotFound {
		return nil
	}
	return err
}

// Completion is the patch of a TrainJob's status that makes it Complete.
func Completion(at time.Time) []byte {
	return fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Complete","status":"True","reason":"JobsCompleted",`+
		`"message":"jobset completed successfully","lastTransitionTime":%q}],`+
		`"jobsStatus":[{"name":"node","ready":0,"succeeded":1,"failed":0,"active":0,"suspended":0}]}}`, at.UTC().Format(time.RFC3339))
}

// jobSetCompletion is the patch of a JobSet's status that makes it Completed.
func jobSetCompletion(at time.Time) []byte {
	return fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Completed","status":"True","reason":"AllJobsCompleted",`+
		`"message":"jobset completed successfully","lastTransitionTime":%q}],"terminalState":"Completed",`+
		`"replicatedJobsStatus":[{"name":"node","ready":0,"succeeded":1,"failed":0,"active":0,"suspended":0}]}}`, at.UTC().Format(time.RFC3339))
}
