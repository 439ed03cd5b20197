// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package failover_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/laws"
	"github.com/trainyard/trainyard/test/stage"
)

// wrappedReader calls before, if it is set, before each read.
type wrappedReader struct {
	client.Reader
	before func()
}

func (r *wrappedReader) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if r.before != nil {
		r.before()
	}
	return r.Reader.Get(ctx, key, object, options...)
}

// startManager runs the controller in a manager, with the real clock, until the test ends.
func (s *scene) startManager(t *testing.T) {
	t.Helper()
	mgr := s.NewManager(t, s.Hub.Cluster.Config)
	s.options.Hub, s.options.HubReader, s.options.Clock = mgr.GetClient(), mgr.GetAPIReader(), clock.RealClock{}
	s.restart()
	must(t, s.reconciler.Add(mgr))
	stage.RunFor(t, mgr)
}

var errCrash = errors.New("the process is gone")

// crash is a process that dies at its nth write. The API server does the write, but the process does not see the
// answer. A death before the next write would be the same.
type crash struct {
	t     *testing.T
	scene *scene

	mu         sync.Mutex
	at, writes int
}

func (c *crash) around(object client.Object, write func() error) error {
	if d, ok := object.(*v1alpha1.Dispatch); ok {
		return c.checked(d, write)
	}
	return c.write(write)
}

// checked checks that a write to a Dispatch is a permitted transition.
func (c *crash) checked(d *v1alpha1.Dispatch, write func() error) error {
	key := client.ObjectKeyFromObject(d)
	before := c.scene.Dispatch(c.t, key.Name)
	err := c.write(write)
	if wrong := laws.Check(before, c.scene.Dispatch(c.t, key.Name)); wrong != nil {
		c.t.Error(wrong)
	}
	return err
}

func (c *crash) write(write func() error) error {
	c.mu.Lock()
	c.writes++
	n := c.writes
	c.mu.Unlock()
	switch {
	case n > c.at:
		return errCrash
	case n == c.at:
		_ = write()
		return errCrash
	default:
		return write()
	}
}

// A process may die between any two writes. The next process completes the work: the same end, and nothing done twice.
func TestCrash(t *testing.T) {
	for name, test := range map[string]struct {
		// writes is how many writes a process does that does not die.
		writes int
		play   func(t *testing.T, s *scene) (check func())
	}{
		"Immediate": {writes: 3, play: func(t *testing.T, s *scene) func() {
			key := s.place(t, "job", v1alpha1.FailoverImmediate)
			return func() { s.isMoved(t, key) }
		}},
		"Fenced": {writes: 4, play: func(t *testing.T, s *scene) func() {
			key := s.place(t, "job", v1alpha1.FailoverFenced)
			return func() { s.isMoved(t, key) }
		}},
		"Deletion": {writes: 4, play: func(t *testing.T, s *scene) func() {
			key := s.place(t, "job", v1alpha1.FailoverHold)
			record := s.Dispatch(t, key.Name)
			must(t, s.Hub.Admin.Delete(t.Context(), s.job(t, key)))
			return func() {
				if s.Dispatch(t, key.Name) != nil {
					t.Error("the Dispatch still waits")
				}
				s.checkTombstone(t, record)
			}
		}},
		"DeletedByHand": {writes: 4, play: func(t *testing.T, s *scene) func() {
			key := s.place(t, "job", v1alpha1.FailoverFenced)
			record := s.Dispatch(t, key.Name)
			must(t, s.Hub.Admin.Delete(t.Context(), record.DeepCopy()))
			return func() {
				if s.Dispatch(t, key.Name) != nil {
					t.Error("the Dispatch still waits")
				}
				s.checkTombstone(t, record)
				if status := s.job(t, key).Object["status"]; status != nil {
					t.Errorf("the TrainJob still says %v", status)
				}
			}
		}},
		"Pause": {writes: 6, play: func(t *testing.T, s *scene) func() {
			key := s.place(t, "job", v1alpha1.FailoverImmediate)
			s.lose(t, s.peer(), time.Minute)
			return func() { s.isMoved(t, key) }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			for at := 1; at <= test.writes+1; at++ {
				s := newScene(t)
				s.lose(t, s.worker, 10*time.Minute)
				s.Clock.Step(10 * time.Second)
				check := test.play(t, s)
				fault := &crash{t: t, scene: s, at: at}
				if dead := s.live(t, fault); dead != (at <= test.writes) {
					t.Fatalf("died: %t at write %d; a whole life has %d writes, expected were %d", dead, at, fault.writes, test.writes)
				}
				s.live(t, &crash{t: t, scene: s, at: math.MaxInt})
				if check(); t.Failed() {
					t.Fatalf("death at write %d", at)
				}
			}
		})
	}
}

// live reconciles until nothing is left to do. The other worker returns meanwhile. dead: the process has died.
func (s *scene) live(t *testing.T, fault *crash) (dead bool) {
	t.Helper()
	s.options.Hub = &wrapped{Client: s.Cached, around: fault.around}
	s.restart()
	for round := 0; ; round++ {
		before := fault.writes
		after, err := s.try(t)
		switch {
		case errors.Is(err, errCrash):
			return true
		case err != nil:
			t.Fatal(err)
		case round > 10:
			t.Fatal("there is no end of it")
		case after == 0 && fault.writes == before && round > 2:
			return false
		}
		if round == 1 {
			s.answer(t, s.peer())
		}
		s.Clock.Step(after)
	}
}

// wrapped is a client whose writes a test can observe and disturb.
type wrapped struct {
	client.Client
	// around is called instead of each write. It gets the object, and a function that does the write.
	around func(object client.Object, write func() error) error
	// stale is returned instead of the TrainJob of its name, as from a cache that lags.
	stale *unstructured.Unstructured
	// hidden is the key of a TrainJob that the cache does not show.
	hidden client.ObjectKey
}

func (w *wrapped) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if job, ok := object.(*unstructured.Unstructured); ok && w.stale != nil && key == client.ObjectKeyFromObject(w.stale) {
		w.stale.DeepCopyInto(job)
		return nil
	}
	if _, ok := object.(*unstructured.Unstructured); ok && key == w.hidden {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "trainjobs"}, key.Name)
	}
	return w.Client.Get(ctx, key, object, options...)
}

func (w *wrapped) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	return w.around(object, func() error { return w.Client.Create(ctx, object, options...) })
}

func (w *wrapped) Delete(ctx context.Context, object client.Object, options ...client.DeleteOption) error {
	return w.around(object, func() error { return w.Client.Delete(ctx, object, options...) })
}

func (w *wrapped) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	return w.around(object, func() error { return w.Client.Patch(ctx, object, patch, options...) })
}

func (w *wrapped) Status() client.SubResourceWriter {
	return wrappedStatus{SubResourceWriter: w.Client.Status(), around: w.around}
}

type wrappedStatus struct {
	client.SubResourceWriter
	around func(object client.Object, write func() error) error
}

func (w wrappedStatus) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
	return w.around(object, func() error { return w.SubResourceWriter.Patch(ctx, object, patch, options...) })
}

// meter counts writes, and how many are under way at a time.
type meter struct {
	mu                  sync.Mutex
	writes, under, most int
}

func (m *meter) around(_ client.Object, write func() error) error {
	m.mu.Lock()
	m.writes++
	m.under++
	m.most = max(m.most, m.under)
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		m.under--
		m.mu.Unlock()
	}()
	return write()
}
