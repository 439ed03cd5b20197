// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trainyard/trainyard/test/check"
)

func TestIsRefusal(t *testing.T) {
	resource := schema.GroupResource{Group: "trainer.kubeflow.org", Resource: "trainjobs"}
	for name, test := range map[string]struct {
		reason string
		err    error
		want   bool
	}{
		"Webhook":     {reason: "an admission webhook said no", err: apierrors.NewForbidden(resource, "job", errors.New("denied")), want: true},
		"Invalid":     {reason: "the worker's CRD or webhook found the job wrong", err: apierrors.NewInvalid(schema.GroupKind{}, "job", nil), want: true},
		"Strict":      {reason: "the worker's CRD does not know a field", err: apierrors.NewBadRequest("strict decoding error: unknown field"), want: true},
		"NoNamespace": {reason: "the namespace went between looking and creating", err: apierrors.NewNotFound(resource, "job"), want: true},
		"Ours":        {reason: "what the policy forbids is as final", err: fmt.Errorf("propagate: %w", refusal("not allowed")), want: true},
		"TooLarge": {
			reason: "the request is more than the API server reads", want: true,
			err: apierrors.NewRequestEntityTooLargeError("limit is 3145728"),
		},
		"TooLargeForEtcd": {
			reason: "the API server does not give it a reason", want: true,
			err: &apierrors.StatusError{ErrStatus: metav1.Status{Code: 500, Message: "etcdserver: request is too large"}},
		},
		"Unavailable": {reason: "it will be there again", err: apierrors.NewServiceUnavailable("starting")},
		"Nil":         {reason: "no error is no refusal"},
		"Unauthorized": {
			reason: "credentials say nothing about the job", err: apierrors.NewUnauthorized("expired"),
		},
		"Throttled":  {reason: "the worker asks to come later", err: apierrors.NewTooManyRequests("slow down", 1)},
		"Timeout":    {reason: "the copy may exist", err: apierrors.NewTimeoutError("took too long", 1)},
		"Internal":   {reason: "a webhook that cannot be called is the worker's trouble", err: apierrors.NewInternalError(errors.New("failed calling webhook"))},
		"Conflict":   {reason: "somebody wrote at the same time", err: apierrors.NewConflict(resource, "job", errors.New("changed"))},
		"Connection": {reason: "the worker was not heard", err: fmt.Errorf("post: %w", context.DeadlineExceeded)},
	} {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, test.want, isRefusal(test.err), "isRefusal(%v): %s", test.err, test.reason)
		})
	}
}
