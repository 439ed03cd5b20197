// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror_test

import (
	"context"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/stage"
)

// countingReader counts what is read from the hub's API server.
type countingReader struct {
	client.Reader
	reads int
}

// Get implements client.Reader.
func (r *countingReader) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	r.reads++
	return r.Reader.Get(ctx, key, object, options...)
}

// A job that lives long enough to be shown as Running costs no read, even if its copy says nothing before its end. A
// process that has found the copy asks once: the process before may have said something that was taken back since.
func TestNothingIsReadOnTheWayOfAJob(t *testing.T) {
	for name, tc := range map[string]struct {
		// age is how old the job is when it ends.
		age time.Duration
		// speaks: the copy says something in between. restarted: another process sees the end.
		speaks, restarted bool
		want              int
	}{
		"Short":         {age: 5 * time.Second},
		"Silent":        {age: 25 * time.Second},
		"Speaking":      {age: 25 * time.Second, speaks: true},
		"OtherProcess":  {age: 25 * time.Second, restarted: true, want: 1},
		"OtherSpeaking": {age: 25 * time.Second, speaks: true, restarted: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, setting{})
			reader := &countingReader{Reader: s.Hub.Admin}
			s.options.HubReader = reader
			s.restart()
			s.Clock.Step(time.Minute) // The hub's caches are believed.
			s.reconcile(t)
			s.Clock.Step(tc.age)
			s.reconcile(t) // It says Running, or not yet.
			if tc.speaks {
				stage.Report(t, s.worker.Admin, s.copy(t), "", 1)
				s.settle(t)
				s.reconcile(t)
				s.Clock.Step(2 * time.Second)
				s.reconcile(t)
			}
			if tc.restarted {
				s.restart()
				s.Clock.Step(time.Minute)
			}
			stage.Report(t, s.worker.Admin, s.copy(t), "Complete", 0)
			s.settle(t)
			s.reconcile(t)
			if !s.dispatch(t).IsFinished() {
				t.Fatal("the Dispatch does not say that the job has finished")
			}
			check.Equal(t, tc.want, reader.reads, "how often the hub's API server was asked")
		})
	}
}
