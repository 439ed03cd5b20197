// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package answers_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trainyard/trainyard/internal/answers"
	"github.com/trainyard/trainyard/test/check"
)

func TestOf(t *testing.T) {
	jobs := schema.GroupResource{Group: "trainer.kubeflow.org", Resource: "trainjobs"}
	internal := func(message string) error {
		return fmt.Errorf("create: %w", &apierrors.StatusError{ErrStatus: metav1.Status{Code: 500, Message: message}})
	}
	forbidden := func(name, message string) error {
		return fmt.Errorf("create: %w", apierrors.NewForbidden(jobs, name, errors.New(message)))
	}
	terminating := apierrors.NewForbidden(jobs, "j", errors.New("the namespace is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, test := range map[string]struct {
		reason string
		err    error
		want   answers.Answer
	}{
		"Nil":        {reason: "no error is no answer", want: answers.None},
		"Connection": {reason: "nobody was heard", err: fmt.Errorf("post: %w", context.DeadlineExceeded), want: answers.None},
		"NoAnswer": {
			reason: "nobody has answered", want: answers.None,
			err: errors.New(`etcdserver: request is too large: j is forbidden: User "a" cannot create`),
		},
		"Timeout":         {reason: "it may have been done", err: apierrors.NewTimeoutError("took too long", 1), want: answers.Unclear},
		"RequestTimeout":  {reason: "it may have been done", err: &apierrors.StatusError{ErrStatus: metav1.Status{Code: 408}}, want: answers.Unclear},
		"Unavailable":     {reason: "it will be there again", err: apierrors.NewServiceUnavailable("starting"), want: answers.Unclear},
		"OtherFault":      {reason: "etcd has another fault", err: internal("etcdserver: mvcc: database space exceeded"), want: answers.Fault},
		"WebhookNotThere": {reason: "it is the server's trouble", err: apierrors.NewInternalError(errors.New("failed calling webhook")), want: answers.Fault},
		"Unauthorized":    {reason: "credentials say nothing about the object", err: apierrors.NewUnauthorized("expired"), want: answers.Later},
		"Throttled":       {reason: "the server asks to come later", err: apierrors.NewTooManyRequests("slow down", 1), want: answers.Later},
		"Changed":         {reason: "somebody wrote at the same time", err: apierrors.NewConflict(jobs, "j", errors.New("changed")), want: answers.Conflict},
		"Exists":          {reason: "the name is taken", err: apierrors.NewAlreadyExists(jobs, "j"), want: answers.Conflict},
		"NotFound":        {reason: "the namespace went", err: apierrors.NewNotFound(jobs, "j"), want: answers.Missing},
		"Terminating":     {reason: "the namespace is about to go", err: terminating, want: answers.Terminating},
		"Rights": {
			reason: "RBAC says so", err: forbidden("", `User "hub" cannot list resource "trainjobs"`), want: answers.NoRights,
		},
		"RightsOfALongName": {
			reason: "the text comes after what a condition shows", want: answers.NoRights,
			err: forbidden(strings.Repeat("x", 5000), `User "hub" cannot delete resource "trainjobs"`),
		},
		"Webhook": {
			reason: "admission uses the word too", want: answers.Unacceptable,
			err: forbidden("j", `admission webhook "w" denied the request: you cannot delete jobs here`),
		},
		"Quota":    {reason: "a quota forbids too", err: forbidden("j", "exceeded quota: q"), want: answers.Unacceptable},
		"OtherSay": {reason: "the code counts", err: internal(`jobs is forbidden: User "hub" cannot list resource "jobs"`), want: answers.Fault},
		"Invalid":  {reason: "the CRD says so", err: apierrors.NewInvalid(schema.GroupKind{}, "j", nil), want: answers.Unacceptable},
		"Strict":   {reason: "a field is unknown", err: apierrors.NewBadRequest("strict decoding error: unknown field"), want: answers.Unacceptable},
		"TooLarge": {
			reason: "the API server reads no more", err: apierrors.NewRequestEntityTooLargeError("limit is 3145728"), want: answers.Unacceptable,
		},
		"TooLargeForEtcd": {reason: "etcd says so", err: internal("etcdserver: request is too large"), want: answers.Unacceptable},
		"TooLargeForClient": {
			reason: "the API server's client of etcd says so", want: answers.Unacceptable,
			err: internal("rpc error: code = ResourceExhausted desc = trying to send message larger than max (3000000 vs. 2097152)"),
		},
		"NotAllowed": {reason: "the kind has no such verb", err: apierrors.NewMethodNotSupported(jobs, "patch"), want: answers.Refused},
	} {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, test.want, answers.Of(test.err), "Of(%v): %s", test.err, test.reason)
		})
	}
}
