// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/ports"
	"github.com/trainyard/trainyard/test/yard"
)

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
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
		if log := p.Log(t); t.Failed() {
			t.Logf("log of %s:\n%s", p.Name, log[max(0, len(log)-20_000):])
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	check.Must(t, yard.AwaitReady(ctx, process, health))
	return p
}

// Log returns what the program has logged so far.
func (p *Program) Log(t testing.TB) string {
	t.Helper()
	log, err := os.ReadFile(p.LogPath)
	check.Must(t, err)
	return string(log)
}
