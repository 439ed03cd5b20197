// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trainyard/trainyard/test/faults/world"
	"github.com/trainyard/trainyard/test/yard"
)

var (
	seed     = flag.Uint64("seed", 0, "What happens follows from it. 0: drawn.")
	duration = flag.Duration("duration", 2*time.Minute, "For how long things break.")
	rate     = flag.Float64("rate", 5, "Jobs per second, as long as not too many live.")
)

const (
	// shortSeed and shortDuration are for a soak with -short, which CI runs. They were searched for: with this seed more
	// kinds of things break in this time than with others (TestShortPlan).
	shortSeed     = 28858
	shortDuration = 45 * time.Second

	startTimeout = 5 * time.Minute
	// endTimeout is for all jobs to end when nothing is broken any more.
	endTimeout = 4 * time.Minute
	// recoverTimeout is for what was broken.
	recoverTimeout = 2 * time.Minute
	// fenceMargin covers changes of leader of agents that are killed while they are cut off.
	fenceMargin = 16 * time.Second
)

var workers = []string{"west", "east", "south"}

// Random faults under load: no job runs twice, none is lost, and nothing is left.
func TestSoak(t *testing.T) {
	if testing.Short() {
		*seed, *duration = shortSeed, shortDuration
	}
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d, for %v", *seed, *duration)
	fmt.Printf("soak: -seed %d -duration %v\n", *seed, *duration)
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	w, err := world.Start(ctx, world.Options{
		Dir: os.Getenv("FAULTS_DIR"), Workers: workers, Agents: 2, ManagerArgs: []string{"--fence-margin=" + fenceMargin.String()},
		Progress: yard.Print,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
	})
	run := &run{T: t, world: w, crew: &crew{world: w}, began: time.Now()}
	run.all()
}

// run is one soak.
type run struct {
	*testing.T
	world *world.World
	crew  *crew
	began time.Time

	mu         sync.Mutex
	faults     []string      // what has happened, in order; under mu
	longest    time.Duration // recovery; under mu
	longestOf  string        // under mu
	broken     int           // faults that were made; under mu
	unrepaired []string      // under mu
}

func (r *run) all() {
	var lanes sync.WaitGroup
	for number, name := range append(slices.Clone(workers), string(hubLane)) {
		faults := faultsOf(*seed, lane(name), uint64(number), *duration)
		lanes.Go(func() { r.lane(faults) })
	}
	load := newLoad(r)
	load.come(*duration)
	lanes.Wait()
	quiet := time.Now()
	load.end(endTimeout)
	took := time.Since(quiet)
	load.check()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, text := range r.unrepaired {
		r.Error(text)
	}
	r.Logf("soak: seed %d: %d jobs (%s), %d faults, longest recovery %v (%s); all jobs had ended %v after the last fault",
		*seed, load.count, load.outcomes(), r.broken, r.longest.Round(10*time.Millisecond), r.longestOf, took.Round(100*time.Millisecond))
	if r.Failed() {
		r.Logf("again: go test ./soak -run TestSoak -seed %d -duration %v\nwhat happened:\n%s", *seed, *duration, strings.Join(r.faults, "\n"))
	}
}

// lane makes one fault after the other.
func (r *run) lane(faults []fault) {
	ctx := context.Background()
	for _, f := range faults {
		<-time.After(time.Until(r.began.Add(f.at))) // The plan's time: a fault comes at any moment of the jobs' lives.
		r.note("%s begins", f)
		end, err := r.crew.begin(ctx, f)
		if err != nil {
			r.note("%s cannot begin: %v", f, err) // For example a process that was to be killed does not run.
		}
		if end == nil {
			continue
		}
		<-time.After(f.last) // How long it lasts was drawn.
		if err := end(ctx); err != nil {
			r.repair("%s cannot end: %v", f, err)
			continue
		}
		r.recover(ctx, f)
	}
}

// recover waits until a lane works again.
func (r *run) recover(ctx context.Context, f fault) {
	began := time.Now()
	if !eventually(50*time.Millisecond, recoverTimeout, func() bool { return r.crew.ready(ctx, f.lane) }) {
		r.repair("%s: %s does not recover", f, f.lane)
		return
	}
	took := time.Since(began)
	r.note("%s is over, and recovered from after %v", f, took.Round(10*time.Millisecond))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broken++
	if took > r.longest {
		r.longest, r.longestOf = took, fmt.Sprintf("%s of %s", f.kind, f.lane)
	}
}

// eventually calls check until it is true, at most for the timeout. It says whether it was.
func eventually(interval, timeout time.Duration, check func() bool) bool {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for deadline := time.Now().Add(timeout); !check(); <-ticker.C {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

func (r *run) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, fmt.Sprintf("%7.2fs ", time.Since(r.began).Seconds())+fmt.Sprintf(format, args...))
}

func (r *run) repair(format string, args ...any) {
	r.note(format, args...)
	fmt.Printf(format+"\n", args...) // The messages of the end may come long after it.
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unrepaired = append(r.unrepaired, fmt.Sprintf(format, args...))
}
