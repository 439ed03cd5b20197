// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
)

var begin = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestStopwatch(t *testing.T) {
	var s stopwatch
	for _, step := range []struct {
		reset    bool
		at, want time.Duration
	}{{at: time.Second}, {at: 3 * time.Second, want: 2 * time.Second}, {reset: true, at: 4 * time.Second}} {
		if step.reset {
			s.reset()
		}
		check.Equal(t, step.want, s.elapsed(begin.Add(step.at)), "after %s it has measured", step.at)
	}
}

// A creation that got no answer may be carried out for 65 s, unless it has made the copy already.
func TestMayArrive(t *testing.T) {
	refused := apierrors.NewForbidden(schema.GroupResource{}, "job", nil)
	for name, test := range map[string]struct {
		reason               string
		errs                 []error
		copied, copyAnswered bool
		after, want          time.Duration
	}{
		"None":        {reason: "no creation was sent"},
		"Refused":     {reason: "a refusal is an answer", errs: []error{refused}},
		"Unanswered":  {reason: "it may be on its way", errs: []error{context.DeadlineExceeded}, after: 5 * time.Second, want: time.Minute},
		"Late":        {reason: "no API server works on it any more", errs: []error{context.DeadlineExceeded}, after: 65 * time.Second},
		"Arrived":     {reason: "it has made the copy", errs: []error{context.DeadlineExceeded}, copied: true},
		"OneArrived":  {reason: "one of two has made the copy", errs: []error{errors.New("reset"), errors.New("reset")}, copied: true, want: remote.CreationTimeout},
		"OtherCopied": {reason: "another has made the copy", errs: []error{errors.New("reset")}, copied: true, copyAnswered: true, want: remote.CreationTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			u := unanswered{copyAnswered: test.copyAnswered}
			for _, err := range test.errs {
				u.note(err, begin)
			}
			check.Equal(t, test.want, u.mayArrive(test.copied, begin.Add(test.after)), "mayArrive(): %s", test.reason)
		})
	}
}

// A worker is given up after six faults in at least 20 s, or when its creations have hung for 45 s.
func TestFailures(t *testing.T) {
	var faulty failures
	fault := apierrors.NewInternalError(errors.New("webhook"))
	for range faultLimit {
		faulty.noteFault(fault, begin)
		faulty.noteFault(errors.New("no fault"), begin)
	}
	if faulty.faults != faultLimit || faulty.tooManyFaults(begin.Add(faultTime-1)) || !faulty.tooManyFaults(begin.Add(faultTime)) {
		t.Errorf("%d faults are too many before %s, or not after it", faulty.faults, faultTime)
	}
	var hangs failures
	for _, step := range []struct {
		err    error
		took   time.Duration
		gaveUp bool
	}{
		{err: apierrors.NewForbidden(schema.GroupResource{}, "job", nil), took: time.Hour},
		{err: context.DeadlineExceeded, took: hangLimit - 1},
		{err: context.DeadlineExceeded, took: 1, gaveUp: true},
	} {
		if hangs.noteHang("here", step.err, step.took); (hangs.gaveUp != nil) != step.gaveUp {
			t.Errorf("after %v, which took %s, the worker is given up: %v", step.err, step.took, hangs.gaveUp)
		}
	}
}

// For a minute the mirror assumes that a copy exists which the cache does not show. A copy that the cache shows counts
// instead.
func TestKnownCopy(t *testing.T) {
	made := testCopy("origin", "2")
	for name, test := range map[string]struct {
		cached   *unstructured.Unstructured
		after    time.Duration
		believed bool
		uid      string
	}{
		"Unseen":   {after: createLag - 1, believed: true, uid: "copy"},
		"Gone":     {after: createLag, uid: "copy"},
		"Seen":     {cached: made, uid: "copy"},
		"Second":   {cached: testCopy("origin", "2", withUID("second")), uid: "copy"},
		"NotOurs":  {cached: testJob("x"), uid: "copy"},
		"OldCopy":  {cached: testCopy("origin", "1", withUID("old")), uid: "copy"},
		"LateCopy": {cached: made, after: time.Hour, uid: "copy"},
	} {
		t.Run(name, func(t *testing.T) {
			var k knownCopy
			k.believe(made, begin)
			f := observation{hubID: "hub", dispatch: testDispatch(), copy: test.cached}
			k.complete(&f, begin.Add(test.after))
			if f.believed != test.believed || string(f.uid) != test.uid || !f.copied || (f.copy != nil) != (test.cached != nil || test.believed) {
				t.Errorf("believed %t, uid %q, copied %t, copy %v", f.believed, f.uid, f.copied, f.copy)
			}
		})
	}
}

// A job is moved when its copy was changed back five times, with less than an hour between two corrections.
func TestRestoredTooOften(t *testing.T) {
	r := restored{count: restoreLimit, last: begin}
	if !r.tooOften(begin.Add(restoreWindow)) || r.tooOften(begin.Add(restoreWindow+1)) {
		t.Error("what was changed back counts for another time than an hour")
	}
	r = restored{count: restoreLimit - 1, last: begin}
	if r.tooOften(begin) {
		t.Errorf("%d times are too often", restoreLimit-1)
	}
}

// What the mirror knows of an attempt does not count for the next attempt. The mirror assumes that the creation of an
// inherited attempt was sent before the mirror started.
func TestAttemptOf(t *testing.T) {
	options := Options{Clock: clocktesting.NewFakeClock(begin), Inherited: map[types.UID]int32{"origin": 3}}
	r := &reconciler{options: options, started: begin}
	key := types.NamespacedName{Namespace: "default", Name: "job"}
	first, again := r.attemptOf(key, testDispatch()), r.attemptOf(key, testDispatch())
	next := r.attemptOf(key, testDispatch(func(d *v1alpha1.Dispatch) { d.Spec.Attempt = 3 }))
	if first != again || next == first {
		t.Error("the mirror has forgotten an attempt, or takes the next attempt for it")
	}
	if first.creation.unanswered.count != 0 || next.creation.unanswered.count != inheritedCreations {
		t.Errorf("creations that got no answer: %d and %d", first.creation.unanswered.count, next.creation.unanswered.count)
	}
}
