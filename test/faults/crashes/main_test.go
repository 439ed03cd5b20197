// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package crashes

import (
	"context"
	"flag"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/trainyard/trainyard/test/faults/world"
	"github.com/trainyard/trainyard/test/yard"
)

const (
	// west is what is lost, and south where jobs go then.
	west, south = "west", "south"

	poll = 100 * time.Millisecond
)

// timeout is for a whole batch of jobs, with a start of the manager for each.
var timeout time.Duration

func init() {
	flag.DurationVar(&timeout, "patience", 4*time.Minute, "How long to wait for a batch of jobs.")
}

var (
	w *world.World
	// armed counts writes, and mended is how often the manager was started again.
	armed  *trap
	mended mender
)

func TestMain(m *testing.M) { yard.Main(m, start) }

func start(ctx context.Context) (stop func() error, err error) {
	w, err = world.Start(ctx, world.Options{
		Timeout: timeout, Poll: poll,
		Dir: os.Getenv("FAULTS_DIR"), Workers: []string{west, south}, GPUs: 16, GracePeriod: 6 * time.Second,
		// The agent stops thirty copies at a time. The manager would not delete copies that the agent had to delete.
		FenceAfter: map[string]time.Duration{west: 2 * world.FenceAfter},
		// A killed manager holds no lease for which the next manager would have to wait.
		ManagerArgs: []string{"--leader-elect=false", "--worker-probe-interval=250ms", "--worker-timeout=1s", "--fence-margin=1s"},
		Progress:    yard.Print,
	})
	if err != nil {
		return nil, err
	}
	armed = newTrap(mended.kill)
	for name, link := range w.Links {
		link.Always(armed.on(name))
	}
	return w.Stop, nil
}

// mender kills the manager and starts it again.
type mender struct {
	mu    sync.Mutex
	kills int // under mu
}

// kill ends the manager. When kill returns, the next manager runs.
func (m *mender) kill() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kills++
	if err := w.Managers.Kill(); err != nil {
		panic(err)
	}
}
