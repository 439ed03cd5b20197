// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
)

// startTimeout is for the Set and what is made of it, on a machine that may be busy.
const startTimeout = 3 * time.Minute

// Shared has what the tests of a package share: a Set, and what they make of it.
type Shared[E any] struct {
	prepare func(context.Context, *Set) (E, error)
	workers []string

	once        sync.Once
	set         *Set
	environment E
	err         error
}

// Share returns a Shared with a hub and workers of these names. Set.Cleanup must end what prepare starts, even if
// prepare fails. Its context ends when prepare returns.
func Share[E any](prepare func(context.Context, *Set) (E, error), workers ...string) *Shared[E] {
	return &Shared[E]{prepare: prepare, workers: workers}
}

// Main is a TestMain: it runs the tests, stops the Set if one of them has started it, and exits.
func (s *Shared[E]) Main(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	code := m.Run()
	if s.set != nil {
		if err := s.set.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
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
	if s.set, err = Start(ctx, s.workers...); err != nil {
		return err
	}
	s.environment, err = s.prepare(ctx, s.set)
	return err
}
