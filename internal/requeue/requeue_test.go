// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package requeue_test

import (
	"errors"
	"fmt"
	"net/url"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/internal/requeue"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
)

func TestAfterConflict(t *testing.T) {
	jobs := schema.GroupResource{Resource: "trainjobs"}
	conflict := fmt.Errorf("patch: %w", apierrors.NewConflict(jobs, "job", errors.New("it is newer")))
	exists := fmt.Errorf("create: %w", apierrors.NewAlreadyExists(jobs, "job"))
	other := errors.New("other")
	leaderless := fmt.Errorf("patch: %w", &url.Error{Op: "Patch", Err: remote.ErrNotLeading})
	given := reconcile.Result{RequeueAfter: time.Hour}
	again := reconcile.Result{RequeueAfter: requeue.ConflictDelay}
	for name, test := range map[string]struct {
		err                     error
		afterConflict, afterLag reconcile.Result
		fails                   bool
	}{
		"Nothing":  {afterConflict: given, afterLag: given},
		"Conflict": {err: conflict, afterConflict: again, afterLag: again},
		"Outdated": {err: requeue.Outdated("old"), afterConflict: again, afterLag: again},
		"NotLeading": {
			err: leaderless, afterConflict: reconcile.Result{RequeueAfter: time.Second}, afterLag: reconcile.Result{RequeueAfter: time.Second},
		},
		"Other": {err: other, afterConflict: given, afterLag: given, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := requeue.AfterConflict(given, test.err); got != test.afterConflict || (err != nil) != test.fails {
				t.Errorf("AfterConflict() = %v, %v", got, err)
			}
			if got, err := requeue.AfterLag(given, test.err); got != test.afterLag || (err != nil) != test.fails {
				t.Errorf("AfterLag() = %v, %v", got, err)
			}
		})
	}
	if _, err := requeue.AfterConflict(given, exists); !errors.Is(err, exists) {
		t.Errorf("AfterConflict() = %v, want the error", err)
	}
	if got, err := requeue.AfterLag(given, exists); got != again || err != nil {
		t.Errorf("AfterLag() = %v, %v", got, err)
	}
}

func TestZeroMeansNever(t *testing.T) {
	now := time.Now()
	for _, test := range []struct{ a, b, want time.Duration }{{0, 0, 0}, {0, 2, 2}, {1, 0, 1}, {1, 2, 1}, {2, 1, 1}} {
		check.Equal(t, test.want, requeue.Sooner(test.a, test.b), "Sooner(%d, %d)", test.a, test.b)
	}
	for _, test := range []struct{ a, b, want time.Time }{
		{time.Time{}, now, now}, {now, time.Time{}, now}, {now, now.Add(1), now}, {now.Add(1), now, now},
	} {
		if got := requeue.Earlier(test.a, test.b); !got.Equal(test.want) {
			t.Errorf("Earlier(%s, %s) = %s, want %s", test.a, test.b, got, test.want)
		}
	}
}
