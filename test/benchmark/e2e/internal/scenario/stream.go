// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/api"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/fleet"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/load"
)

const (
	// streamUsers create the jobs of a stream at the same time.
	streamUsers = 8
	// unfinishedJobs is how many jobs of a stream may not have ended: a stream does not become a burst on a busy machine.
	unfinishedJobs = 64
)

// stream creates jobs for a long time, and follows each of them until it is deleted. It keeps nothing of deleted jobs.
type stream struct {
	hub  *api.Client
	load *load.Load
	// free has an element for each job that has ended and may be followed by another job.
	free chan struct{}

	mu sync.Mutex
	// All below are under mu. ended has the UIDs of the jobs on the hub that have ended. finished and deleted are how many
	// jobs have ended and are gone so far. copies is how many copies there are on the workers. err is the first error.
	ended             map[string]bool
	finished, deleted int
	copies            int
	err               error
}

func newStream(hub *api.Client, l *load.Load) *stream {
	s := &stream{hub: hub, load: l, free: make(chan struct{}, unfinishedJobs), ended: map[string]bool{}}
	for range unfinishedJobs {
		s.free <- struct{}{}
	}
	return s
}

// run creates jobs at a rate, per second, until the context ends. It is slower if too many jobs have not ended.
func (s *stream) run(ctx context.Context, perSecond float64) error {
	limiter := rate.NewLimiter(rate.Limit(perSecond), 1)
	names := make(chan string)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer close(names)
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return nil
			case <-s.free:
			}
			if limiter.Wait(ctx) != nil {
				return nil // The context has ended, or ends before the next job is due.
			}
			select {
			case <-ctx.Done():
				return nil
			case names <- fmt.Sprintf("stream-%d", i):
			}
		}
	})
	for range streamUsers {
		group.Go(func() error {
			for name := range names {
				// The context of the stream does not interrupt a request: the job would exist or not.
				_, err := s.hub.Do(context.WithoutCancel(ctx), http.MethodPost, api.TrainJobsIn(fleet.Namespace), api.JSON, s.load.Body(name))
				if err != nil {
					return err
				}
				if err := s.failure(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// onHub sees a change of a job.
func (s *stream) onHub(event *api.Event) {
	uid := event.Object.Metadata.UID
	s.mu.Lock()
	defer s.mu.Unlock()
	switch ended := s.ended[uid]; {
	case event.Type == "DELETED" && !ended:
		s.err = fmt.Errorf("job %s was deleted before its end", event.Object.Metadata.Name)
	case event.Type == "DELETED":
		delete(s.ended, uid)
		s.deleted++
	case event.Object.Complete() && !ended:
		s.ended[uid] = true
		s.finished++
		s.free <- struct{}{} // It has room: each job took an element.
	}
}

// onWorker sees a change of a copy.
func (s *stream) onWorker(event *api.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch event.Type {
	case "ADDED":
		s.copies++
	case "DELETED":
		s.copies--
	}
}

// fail ends the stream.
func (s *stream) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
}

func (s *stream) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// counts returns how many jobs have ended and how many are gone so far, and how many copies there are.
func (s *stream) counts() (finished, deleted, copies int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.finished, s.deleted, s.copies
}
