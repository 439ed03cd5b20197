// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/api"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/fleet"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/measure"
	"github.com/trainyard/trainyard/test/yard"
)

// users create jobs at the same time in a burst.
const users = 16

const placeholder = "name-of-the-job"

// Load creates jobs that are alike.
type Load struct {
	client *api.Client
	jobs   *measure.Jobs
	bodies [][]byte
	turn   atomic.Int64
}

// New returns a load of jobs with a pod and one GPU each, and with one of these sets of labels, in turn.
func New(client *api.Client, jobs *measure.Jobs, labels []map[string]string) (*Load, error) {
	l := &Load{client: client, jobs: jobs}
	for _, set := range labels {
		job := yard.Job{Namespace: fleet.Namespace, Name: placeholder, GPUs: 1}.TrainJob()
		job.APIVersion, job.Kind, job.Labels = "trainer.kubeflow.org/v1alpha1", "TrainJob", set
		body, err := json.Marshal(job)
		if err != nil {
			return nil, err
		}
		l.bodies = append(l.bodies, body)
	}
	return l, nil
}

// Body is what a user would write.
func (l *Load) Body(name string) []byte {
	body := l.bodies[int(l.turn.Add(1))%len(l.bodies)]
	return bytes.Replace(body, []byte(placeholder), []byte(name), 1)
}

// Create creates one job.
func (l *Load) Create(ctx context.Context, name string) error {
	l.jobs.Created(name)
	if _, err := l.client.Do(ctx, http.MethodPost, api.TrainJobsIn(fleet.Namespace), api.JSON, l.Body(name)); err != nil {
		return err
	}
	l.jobs.Accepted(name)
	return nil
}

// Names returns the names of so many jobs.
func Names(prefix string, count int) []string {
	names := make([]string, count)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%d", prefix, i)
	}
	return names
}

// Burst creates jobs as fast as the hub takes them, as many at a time as there are users. After an error it begins no
// more.
func (l *Load) Burst(ctx context.Context, names []string) error {
	var group errgroup.Group
	var failed atomic.Bool
	group.SetLimit(users)
	for _, name := range names {
		if failed.Load() {
			break
		}
		group.Go(func() error {
			err := l.Create(ctx, name)
			if err != nil {
				failed.Store(true)
			}
			return err
		})
	}
	return group.Wait()
}

// Steadily creates jobs at a rate, per second, whatever happens to them.
func (l *Load) Steadily(ctx context.Context, names []string, rate float64) error {
	ticker := time.NewTicker(time.Duration(float64(time.Second) / rate))
	defer ticker.Stop()
	for _, name := range names {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
		if err := l.Create(ctx, name); err != nil {
			return err
		}
	}
	return nil
}
