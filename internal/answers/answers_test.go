// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package answers_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trainyard/trainyard/internal/answers"
)

func TestAnswers(t *testing.T) {
	jobs := schema.GroupResource{Group: "trainer.kubeflow.org", Resource: "trainjobs"}
	internal := func(message string) error {
		return fmt.Errorf("create: %w", &apierrors.StatusError{ErrStatus: metav1.Status{Code: 500, Message: message}})
	}
	for name, test := range map[string]struct {
		reason                  string
		err                     error
		isTooLarge, lacksRights bool
	}{
		"Nil": {reason: "no error is no answer"},
		"NoAnswer": {
			reason: "nobody has answered", err: errors.New(`etcdserver: request is too large: j is forbidden: User "a" cannot create`),
		},
		"TooLarge": {
			reason: "the API server reads no more", err: apierrors.NewRequestEntityTooLargeError("limit is 3145728"), isTooLarge: true,
		},
		"TooLargeForEtcd": {reason: "etcd says so", err: internal("etcdserver: request is too large"), isTooLarge: true},
		"TooLargeForClient": {
			reason: "the API server's client of etcd says so", isTooLarge: true,
			err: internal("rpc error: code = ResourceExhausted desc = trying to send message larger than max (3000000 vs. 2097152)"),
		},
		"OtherFault": {reason: "etcd has another fault", err: internal("etcdserver: mvcc: database space exceeded")},
		"Rights": {
			reason: "RBAC says so", lacksRights: true,
			err: fmt.Errorf("list: %w", apierrors.NewForbidden(jobs, "", errors.New(`User "hub" cannot list resource "trainjobs"`))),
		},
		"RightsOfALongName": {
			reason: "the text comes after what a condition shows", lacksRights: true,
			err: apierrors.NewForbidden(jobs, strings.Repeat("x", 5000), errors.New(`User "hub" cannot delete resource "trainjobs"`)),
		},
		"Webhook": {
			reason: "admission uses the word too",
			err:    apierrors.NewForbidden(jobs, "j", errors.New(`admission webhook "w" denied the request: you cannot delete jobs here`)),
		},
		"Quota":    {reason: "a quota forbids too", err: apierrors.NewForbidden(jobs, "j", errors.New("exceeded quota: q"))},
		"OtherSay": {reason: "the code counts", err: internal(`jobs is forbidden: User "hub" cannot list resource "jobs"`)},
	} {
		t.Run(name, func(t *testing.T) {
			if got := answers.IsTooLarge(test.err); got != test.isTooLarge {
				t.Errorf("IsTooLarge(%v) = %t: %s", test.err, got, test.reason)
			}
			if got := answers.LacksRights(test.err); got != test.lacksRights {
				t.Errorf("LacksRights(%v) = %t: %s", test.err, got, test.reason)
			}
		})
	}
}
