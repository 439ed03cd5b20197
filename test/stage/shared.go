// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/ports"
)

// startTimeout is for clusters and what is made of them, on a machine that may be busy.
const startTimeout = 5 * time.Minute

// Shared has what the tests of a package share: a Stage or other clusters, and what the tests make of them.
type Shared[E any] struct {
	prepare func(ctx context.Context, cleanup func(func() error)) (E, error)

	once        sync.Once
	cleanups    []func() error
	environment E
	err         error
}

// Share returns a Shared with a hub and workers of these names. Stage.Cleanup must end what prepare starts, even if
// prepare fails. Its context ends when prepare returns.
func Share(prepare func(context.Context, *Stage) error, workers ...string) *Shared[*Stage] {
	return ShareWith(func(ctx context.Context, cleanup func(func() error)) (*Stage, error) {
		stage, err := Start(ctx, workers...)
		if err != nil {
			return nil, err
		}
		cleanup(stage.Stop)
		return stage, prepare(ctx, stage)
	})
}

// ShareWith returns a Shared with the clusters that prepare starts. cleanup must be given functions that end what
// prepare starts, even if prepare fails. They are called in reverse order. The context ends when prepare returns.
func ShareWith[E any](prepare func(ctx context.Context, cleanup func(func() error)) (E, error)) *Shared[E] {
	return &Shared[E]{prepare: prepare}
}

// Main is a TestMain: it runs the tests, stops what they have started, and exits.
func (s *Shared[E]) Main(m *testing.M) { Main(m, s) }

// Main is a TestMain for tests with several Shareds.
func Main(m *testing.M, all ...interface{ Stop() error }) {
	ctrl.SetLogger(logr.Discard())
	check.Parallel()
	code := m.Run()
	for _, s := range all {
		if err := s.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// Run runs a manager, or caches, until the returned function is called. That function returns how the run has ended.
func Run(mgr interface{ Start(context.Context) error }) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}
}

// Get returns the environment. The first call starts it. If it does not start, all tests fail.
func (s *Shared[E]) Get(t *testing.T) E {
	t.Helper()
	s.once.Do(func() { s.err = s.start() })
	if s.err != nil {
		t.Fatalf("these tests need real API servers (make controlplane builds them): %v", s.err)
	}
	return s.environment
}

func (s *Shared[E]) start() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	s.environment, err = s.prepare(ctx, func(f func() error) { s.cleanups = append(s.cleanups, f) })
	return err
}

// Stop ends what the tests have started, if a test has called Get. Call it once.
func (s *Shared[E]) Stop() error { return runBackward(s.cleanups) }

func runBackward(cleanups []func() error) error {
	var errs []error
	for _, cleanup := range slices.Backward(cleanups) {
		errs = append(errs, cleanup())
	}
	return errors.Join(errs...)
}

// startLimit is for a program on a machine that may be busy.
const startLimit = 90 * time.Second

// Program is a manager or an agent that runs beside a cluster.
type Program struct {
	*clusters.Process
	// Health is the address of its probes.
	Health string
}

var programs atomic.Int32

// RunProgram runs a program until the test ends, waits until it is ready, and shows its log if the test fails.
// Its lease is so long that the program does not end because a busy machine makes it renew the lease late.
func RunProgram(t testing.TB, cluster *clusters.Cluster, name, binary string, flags ...string) *Program {
	t.Helper()
	health, err := ports.Free()
	check.Must(t, err)
	process, err := cluster.Run(t.Context(), fmt.Sprintf("%s-%d", name, programs.Add(1)), binary, append([]string{
		"--health-probe-bind-address=" + health,
		"--leader-election-lease-duration=60s", "--leader-election-renew-deadline=50s", "--leader-election-retry-period=200ms",
	}, flags...)...)
	check.Must(t, err)
	p := &Program{Process: process, Health: health}
	t.Cleanup(func() {
		check.Must(t, p.Stop())
		if log := p.Log(t); t.Failed() {
			t.Logf("log of %s:\n%s", p.Name, log[max(0, len(log)-20_000):])
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	check.Must(t, process.AwaitReady(ctx, health))
	return p
}

// Log returns what the program has logged so far.
func (p *Program) Log(t testing.TB) string {
	t.Helper()
	log, err := os.ReadFile(p.LogPath)
	check.Must(t, err)
	return string(log)
}
