// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/copies"
	"github.com/trainyard/trainyard/test/check"
)

// A worker with errors of its own has not refused the copy. If it says when to try again, the mirror tries then.
func TestTroubleIsNoRefusal(t *testing.T) {
	resource := schema.GroupResource{Group: "trainer.kubeflow.org", Resource: "trainjobs"}
	for name, test := range map[string]struct {
		err error
		// after is when the creation is tried again, zero if the back-off of the queue decides.
		after time.Duration
	}{
		"Throttled":     {err: apierrors.NewTooManyRequests("slow down", 7), after: 7 * time.Second},
		"ServerTimeout": {err: apierrors.NewServerTimeout(resource, "create", 3), after: 3 * time.Second},
		"Unavailable":   {err: apierrors.NewServiceUnavailable("starting")},
		"Timeout":       {err: apierrors.NewTimeoutError("took too long", 0)},
		"BadGateway":    {err: apierrors.NewGenericServerResponse(502, "post", resource, "job", "no upstream", 0, true)},
		"NoAnswer":      {err: context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, setting{})
			s.failCreations(test.err)
			before := s.dispatch(t)
			for range 10 {
				result, err := s.mirror.Reconcile(t.Context(), reconcile.Request{NamespacedName: s.key})
				if result.RequeueAfter != test.after || (err == nil) != (test.after > 0) {
					t.Fatalf("Reconcile() = %+v, %v, want another try after %s", result, err, test.after)
				}
				s.Clock.Step(time.Minute)
			}
			check.Diff(t, before, s.dispatch(t), "the Dispatch was written")
		})
	}
}

// If a worker says many times, and for a long time, that it cannot create the copy, the mirror stops trying.
func TestBrokenWorkerIsLeft(t *testing.T) {
	s := newScene(t, setting{})
	s.failCreations(apierrors.NewInternalError(errors.New("failed calling webhook")))
	before := s.dispatch(t)
	for range 10 { // As when the worker's store changes its leader: often, and not for long.
		if _, err := s.mirror.Reconcile(t.Context(), reconcile.Request{NamespacedName: s.key}); err == nil {
			t.Fatal("it was not to be tried again")
		}
	}
	check.Diff(t, before, s.dispatch(t), "the attempt was given up after a moment")
	s.Clock.Step(20 * time.Second)
	s.reconcile(t)
	s.expectEnd(t, v1alpha1.OutcomeRejected, "failed calling webhook")
}

// The copy of a job of the largest size is larger than the job, because of our annotations. If the worker refuses it,
// that is a refusal too.
func TestCopyThatIsTooLarge(t *testing.T) {
	const limit = 256 << 10 // Of the API, for all annotations of an object.
	s := newScene(t, setting{annotations: map[string]string{"note": strings.Repeat("x", limit-len("note"))}})
	s.reconcile(t)
	s.expectEnd(t, v1alpha1.OutcomeRejected, "metadata.annotations: Too long")
}

// A copy whose status changes a hundred times a second costs the hub one write a second.
func TestStatusStorm(t *testing.T) {
	s := newScene(t, setting{})
	s.getUnderWay(t)
	storm, writes := s.copy(t), 0
	worker, err := s.worker.Connection.Client()
	must(t, err)
	s.options.Worker = stuckWorker{live: s.worker.Admin, cached: interceptor.NewClient(watchless{worker}, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if job, ok := object.(*unstructured.Unstructured); ok && job.GetKind() == storm.GetKind() {
				storm.DeepCopyInto(job)
				return nil
			}
			return c.Get(ctx, key, object, options...)
		},
	})}
	s.options.Hub = interceptor.NewClient(s.Hub.Admin, interceptor.Funcs{
		SubResourcePatch: func(
			ctx context.Context, c client.Client, name string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption,
		) error {
			writes++
			return c.SubResource(name).Patch(ctx, object, patch, options...)
		},
	})
	s.restart()
	const seconds = 3
	for change := range seconds * 100 {
		storm.Object["status"] = map[string]any{"jobsStatus": []any{map[string]any{
			"name": "node", "active": int64(change % 7), "ready": int64(0), "succeeded": int64(change), "failed": int64(0), "suspended": int64(0),
		}}}
		_, err := s.mirror.Reconcile(t.Context(), reconcile.Request{NamespacedName: s.key})
		must(t, err)
		s.Clock.Step(10 * time.Millisecond)
	}
	if writes == 0 || writes > seconds {
		t.Errorf("%d changes in %d s led to %d writes, want one a second", seconds*100, seconds, writes)
	}
}

// A Dispatch that somebody has deleted, finalizer and all, leaves a copy that no record speaks of. A new Dispatch of
// the job does not count that copy as its own, and no other copy is created beside it.
func TestNothingRunsBesideAForgottenCopy(t *testing.T) {
	s := newScene(t, setting{})
	s.reconcile(t)
	s.edit(t, func(copy *unstructured.Unstructured) {
		copy.SetAnnotations(map[string]string{v1alpha1.AnnotationAttempt: "3"}) // The job had moved before.
	})
	forgotten := s.copy(t)
	s.restart()
	for range 3 {
		s.expectQuiet(t, "the copy may run")
	}
	check.Diff(t, forgotten, s.copy(t), "the copy was touched")
}

// failCreations makes the worker answer each creation of a copy with this error.
func (s *scene) failCreations(answer error) {
	s.options.Worker = brokenWorker{Connection: s.options.Worker, err: answer}
	s.restart()
}

// brokenWorker is a connection to a worker that cannot create TrainJobs.
type brokenWorker struct {
	copies.Connection
	err error
}

func (w brokenWorker) Client() (client.Client, error) {
	c, err := w.Connection.Client()
	if err != nil {
		return nil, err
	}
	return interceptor.NewClient(watchless{c}, interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return w.err },
	}), nil
}
