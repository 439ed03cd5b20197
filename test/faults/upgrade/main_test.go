// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/trainyard/trainyard/test/faults/world"
	"github.com/trainyard/trainyard/test/yard"
)

const (
	// east is cheaper than west, so jobs that may go to both go to east while there is room.
	east, west = "east", "west"
	// fenceAfter is longer than any part of an upgrade for which a worker gets no answers, on a busy machine too.
	fenceAfter = 15 * time.Minute

	// timeout is for conditions that come in seconds on an idle machine.
	timeout = 10 * time.Minute
	poll    = 50 * time.Millisecond
)

// patientLease lets processes keep their leases on a busy machine too: this test is not about losing them. A process
// that is stopped gives its lease back, so the next one leads at once.
var patientLease = []string{
	"--leader-election-lease-duration=90s", "--leader-election-renew-deadline=60s", "--leader-election-retry-period=1s",
}

// w is the world of the test. It starts with the older version.
var w *world.World

// older and newer are the versions. newer is this one.
var older, newer yard.Version

func TestMain(m *testing.M) { yard.Main(m, start) }

func start(ctx context.Context) (stop func() error, err error) {
	dir := os.Getenv("TRAINYARD_UPGRADE_FROM")
	if dir == "" {
		return nil, errors.New("TRAINYARD_UPGRADE_FROM does not name the older version: run make test-upgrade")
	}
	older = yard.Version{Root: filepath.Join(dir, "source"), Programs: filepath.Join(dir, "programs")}
	w, err = world.Start(ctx, world.Options{
		Timeout: timeout, Poll: poll,
		Dir: os.Getenv("FAULTS_DIR"), Workers: []string{east, west}, Agents: 2, Version: older,
		ManagerArgs: []string{"--worker-timeout=30s"}, Lease: patientLease,
		FenceAfter: map[string]time.Duration{east: fenceAfter, west: fenceAfter}, Progress: yard.Print,
	})
	if err != nil {
		return nil, err
	}
	return w.Stop, nil
}
