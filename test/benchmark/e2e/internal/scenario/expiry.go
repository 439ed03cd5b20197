// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/api"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/fleet"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/load"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/measure"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/stub"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/trainyard"
	"github.com/trainyard/trainyard/test/ports"
)

const (
	expiryWorkers = 2
	// A run has so many levels, but they are not closer together than minBetween.
	expiryLevels = 120
	minBetween   = 5 * time.Second
	// retentionShare of a job's time on the hub is the retention of its copy: an hour of six.
	retentionShare = 6
)

// Stream says what a run of jobs that expire is like.
type Stream struct {
	// PerSecond is how many jobs are created in a second. 0: as many as Trainyard brings to an end.
	PerSecond float64
	// Lasting is how long jobs are created.
	Lasting time.Duration
	// TTL is how long a finished job stays on the hub. Events stay as long, and copies for a sixth of that.
	TTL time.Duration
}

// Expiry is what finished jobs leave behind when they are archived and deleted.
type Expiry struct {
	TTL     float64 `json:"ttlSeconds"`
	Seconds float64 `json:"seconds"`
	// Jobs is how many jobs ended, and Archived how many entries the archive has.
	Jobs     int `json:"jobs"`
	Archived int `json:"archived"`
	// CPU is what the manager took for a job until it was deleted, in milliseconds.
	CPU float64 `json:"cpuMsPerJob"`
	// Before is before the first job, and After when all jobs are gone.
	Before Level   `json:"before"`
	Levels []Level `json:"levels"`
	After  *Level  `json:"after,omitempty"`
}

// ExpiringJobs lets a stream of jobs run and expire, on a fleet of its own. observe is called after each level.
func ExpiringJobs(ctx context.Context, s Stream, observe func(*Expiry) error) (err error) {
	// If the time of a job is over before its copy has been deleted, the deletion of the job deletes the copy in the
	// foreground. Only Kubernetes' garbage collector completes such a deletion.
	f, err := fleet.Start(ctx, fleet.Options{
		Workers: expiryWorkers, GarbageCollector: true, HubArgs: []string{"--event-ttl=" + s.TTL.String()},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Stop()) }()
	g := &gauges{fleet: f, archive: filepath.Join(f.Hub.Cluster.Dir, "archive")}
	if err := os.Mkdir(g.archive, 0o700); err != nil {
		return err
	}
	if g.metrics, err = ports.Free(); err != nil {
		return err
	}
	g.system, err = trainyard.On(f, trainyard.Options{Args: []string{
		"--archive-dir=" + g.archive, "--metrics-bind-address=" + g.metrics, "--metrics-secure=false",
	}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if g.stream, err = follow(ctx, f); err != nil {
		return err
	}
	if err := g.system.Install(ctx); err != nil {
		return err
	}
	if err := g.system.Expire(ctx, s.TTL/retentionShare, s.TTL); err != nil {
		return err
	}
	if err := g.system.Start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.system.Stop()) }()
	if err := g.system.Connected(ctx); err != nil {
		return err
	}
	e := &Expiry{TTL: s.TTL.Seconds()}
	return e.run(ctx, g, s, observe)
}

// follow returns a stream that sees the jobs and copies of a fleet. The workers end each copy at once.
func follow(ctx context.Context, f *fleet.Fleet) (*stream, error) {
	l, err := load.New(f.Hub.API, measure.NewJobs(), []map[string]string{nil})
	if err != nil {
		return nil, err
	}
	s := newStream(f.Hub.API, l)
	if err := f.Hub.API.Watch(ctx, api.TrainJobs, s.onHub, s.fail); err != nil {
		return nil, err
	}
	for _, worker := range f.Workers {
		stub := stub.New(worker.API, new(atomic.Int64))
		observe := func(e *api.Event) {
			s.onWorker(e)
			stub.Observe(ctx, e, s.fail)
		}
		if err := worker.API.Watch(ctx, api.TrainJobs, observe, s.fail); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (e *Expiry) run(ctx context.Context, g *gauges, s Stream, observe func(*Expiry) error) error {
	g.began = time.Now()
	var err error
	if e.Before, err = g.read(ctx); err != nil {
		return err
	}
	used, err := measure.UsageOf(g.system.PID())
	if err != nil {
		return err
	}
	g.began = time.Now()
	if err := e.measure(ctx, g, s, observe); err != nil {
		return err
	}
	if err := e.drain(ctx, g, s.TTL); err != nil {
		return err
	}
	usage, err := measure.UsageOf(g.system.PID())
	if err != nil {
		return err
	}
	e.CPU = 1000 * (usage.CPU - used.CPU) / float64(e.Jobs)
	after, err := g.read(ctx)
	if err != nil {
		return err
	}
	e.After = &after
	if err := e.checkArchive(g); err != nil {
		return err
	}
	return observe(e)
}

// measure reads levels while jobs are created.
func (e *Expiry) measure(ctx context.Context, g *gauges, s Stream, observe func(*Expiry) error) error {
	streaming, stop := context.WithTimeout(ctx, s.Lasting)
	defer stop()
	ended := make(chan error, 1)
	perSecond := s.PerSecond
	if perSecond == 0 {
		perSecond = 1e9
	}
	go func() { ended <- g.stream.run(streaming, perSecond) }()
	ticker := time.NewTicker(max(s.Lasting/expiryLevels, minBetween))
	defer ticker.Stop()
	for {
		select {
		case err := <-ended:
			e.Seconds = time.Since(g.began).Seconds()
			return errors.Join(err, ctx.Err())
		case <-ticker.C:
		}
		level, err := g.read(ctx)
		if err != nil {
			stop()
			return errors.Join(err, <-ended)
		}
		e.Levels, e.Jobs, e.Seconds = append(e.Levels, level), level.Jobs, level.Seconds
		if err := observe(e); err != nil {
			stop()
			return errors.Join(err, <-ended)
		}
	}
}

// drainPatience is how long it may take, after the time of the last job, until nothing is left of all jobs.
const drainPatience = 3 * time.Minute

// drain waits until all jobs have ended, and until they, their Dispatches and their copies are gone.
func (e *Expiry) drain(ctx context.Context, g *gauges, ttl time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, ttl+drainPatience)
	defer cancel()
	for {
		left := 0
		for _, path := range []string{api.TrainJobs, dispatchesPath} {
			there, err := count(ctx, g.fleet.Hub.API, path)
			if err != nil {
				return err
			}
			left += there
		}
		finished, deleted, copies := g.stream.counts()
		if err := g.stream.failure(); err != nil {
			return err
		}
		if e.Jobs = finished; left+copies == 0 && deleted == finished {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d TrainJobs and Dispatches and %d copies are left after their time: %w", left, copies, ctx.Err())
		case <-time.After(settleTime):
		}
	}
}

// checkArchive counts the entries of the archive. It has to have one for each job at least; a job that changed between
// its archiving and its deletion has two.
func (e *Expiry) checkArchive(g *gauges) error {
	files, err := filepath.Glob(filepath.Join(g.archive, "*"))
	if err != nil {
		return err
	}
	e.Archived = 0
	for _, path := range files {
		lines, err := countLines(path)
		if err != nil {
			return err
		}
		e.Archived += lines
	}
	if e.Archived < e.Jobs {
		return fmt.Errorf("the archive has %d entries of %d deleted jobs", e.Archived, e.Jobs)
	}
	return nil
}

// countLines reads a file in parts: an archive may be larger than the memory.
func countLines(path string) (lines int, err error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	part := make([]byte, 1<<20)
	for {
		n, err := file.Read(part)
		lines += bytes.Count(part[:n], []byte("\n"))
		if errors.Is(err, io.EOF) {
			return lines, nil
		}
		if err != nil {
			return lines, err
		}
	}
}

// Growth compares two parts of a run.
type Growth struct {
	// Second and Last are the means of the second and the last quarter.
	Second, Last float64
	// SecondRange and LastRange are the least and the most of these quarters.
	SecondRange, LastRange [2]float64
	// PerJob is the difference of the means for each job that ended in between.
	PerJob float64
	// Adjusted is the growth for each job that has ended while the number of TrainJobs on the hub is the same. That number
	// depends on the speed of the machine at the time, and much depends on that number.
	Adjusted float64
}

// Growth of a figure. It is false if the run was too short to tell.
func (e *Expiry) Growth(figure string) (Growth, bool) {
	n := len(e.Levels)
	if n < 4 {
		return Growth{}, false
	}
	var g Growth
	var jobsBefore, jobsAfter float64
	g.Second, jobsBefore, g.SecondRange = mean(e.Levels[n/4:n/2], figure)
	g.Last, jobsAfter, g.LastRange = mean(e.Levels[n-n/4:], figure)
	if jobsAfter <= jobsBefore {
		return g, false
	}
	g.PerJob = (g.Last - g.Second) / (jobsAfter - jobsBefore)
	g.Adjusted = adjusted(e.Levels[n/4:], figure)
	return g, true
}

func mean(levels []Level, figure string) (of, jobs float64, within [2]float64) {
	within = [2]float64{levels[0].Figures[figure], levels[0].Figures[figure]}
	for i := range levels {
		value := levels[i].Figures[figure]
		of += value
		jobs += float64(levels[i].Jobs)
		within = [2]float64{min(within[0], value), max(within[1], value)}
	}
	return of / float64(len(levels)), jobs / float64(len(levels)), within
}

// adjusted fits a figure to a + b * TrainJobs on the hub + c * jobs that have ended, by least squares, and returns c.
func adjusted(levels []Level, figure string) float64 {
	there, _, _ := mean(levels, TrainJobs)
	value, jobs, _ := mean(levels, figure)
	var tt, tj, jj, tv, jv float64 // Sums of the products of the deviations from the means.
	for i := range levels {
		t, j, v := levels[i].Figures[TrainJobs]-there, float64(levels[i].Jobs)-jobs, levels[i].Figures[figure]-value
		tt, tj, jj, tv, jv = tt+t*t, tj+t*j, jj+j*j, tv+t*v, jv+j*v
	}
	if tt == 0 { // The number never changed.
		return jv / jj
	}
	return (tt*jv - tj*tv) / (tt*jj - tj*tj)
}
