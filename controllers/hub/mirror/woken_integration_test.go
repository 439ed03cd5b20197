// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror_test

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
)

// withoutJobs is a cache that does not show TrainJobs yet.
type withoutJobs struct{ client.Client }

// Get implements client.Reader.
func (c withoutJobs) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if _, isJob := object.(*unstructured.Unstructured); isJob && object.GetObjectKind().GroupVersionKind() == trainjobs.GroupVersionKind {
		return apierrors.NewNotFound(schema.GroupResource{Group: trainjobs.GroupVersionKind.Group, Resource: "trainjobs"}, key.Name)
	}
	return c.Client.Get(ctx, key, object, options...)
}

// Fault: this process was paused while another process led. It goes on before it knows that it does not lead any more.
// Its caches catch up one by one, so for a moment they show a Dispatch and not its TrainJob. The API server says that
// the TrainJob is there.
func TestWokenManagerDoubtsThatAJobIsGone(t *testing.T) {
	s := newScene(t, setting{})
	s.getUnderWay(t)
	whole := s.options.Hub
	s.options.Hub = withoutJobs{whole}
	s.restart()
	s.Clock.Step(time.Minute) // It has been leading for long.
	if result := s.reconcile(t); result.RequeueAfter == 0 {
		t.Error("it was not to be looked at again")
	}
	if copy := s.copy(t); copy == nil || copy.GetDeletionTimestamp() != nil {
		t.Fatalf("the copy of a job that lives was deleted: %v", copy)
	}

	must(t, s.Hub.Admin.Delete(t.Context(), s.job(t)))
	s.reconcile(t)
	if copy := s.copy(t); copy != nil && copy.GetDeletionTimestamp() == nil {
		t.Error("the copy of a job that is gone was not deleted")
	}
}
