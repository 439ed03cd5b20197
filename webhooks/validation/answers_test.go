// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/test/check"
)

func answered(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Reason: reason, Message: message}}
}

func TestOnlyAnswersAboutTheObjectRefuse(t *testing.T) {
	cases := map[string]struct {
		err  error
		want bool
	}{
		"Invalid":          {answered(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, `JobSet "a" is invalid`), true},
		"Strict":           {answered(http.StatusBadRequest, metav1.StatusReasonBadRequest, `unknown field "spec.x"`), true},
		"PodSecurity":      {answered(http.StatusForbidden, metav1.StatusReasonForbidden, `pods "a" is forbidden: violates PodSecurity "x"`), true},
		"Duplicates":       {answered(http.StatusInternalServerError, "", "failed to create typed patch object (ns/a): duplicate"), true},
		"Wrapped":          {errors.Join(errors.New("x"), answered(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "")), true},
		"NoRights":         {apierrors.NewForbidden(corev1.Resource("pods"), "", errors.New(`User "a" cannot create resource "pods"`)), false},
		"WebhookDown":      {answered(http.StatusInternalServerError, metav1.StatusReasonInternalError, "failed calling webhook"), false},
		"NoDryRun":         {answered(http.StatusBadRequest, metav1.StatusReasonBadRequest, `admission webhook "x" does not support dry run`), false},
		"TooManyRequests":  {answered(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, ""), false},
		"Timeout":          {answered(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, ""), false},
		"NoCRD":            {answered(http.StatusNotFound, metav1.StatusReasonNotFound, ""), false},
		"Expired":          {answered(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, ""), false},
		"OwnDeadline":      {context.DeadlineExceeded, false},
		"ConnectionBroken": {errors.New("connection refused"), false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, tc.want, isRefusal(tc.err), "isRefusal(%v)", tc.err)
		})
	}
}

func TestRoomLater(t *testing.T) {
	cases := map[string]struct {
		reason  string
		message string
		want    bool
	}{
		"Used": {"The room is in use.", "exceeded quota: q, requested: pods=1, used: pods=10, limited: pods=10", true},
		"TooLarge": {
			"The pod is larger than the limit.",
			"exceeded quota: q, requested: requests.cpu=2, used: requests.cpu=0, limited: requests.cpu=1", false,
		},
		"OneOfTwo": {
			"One of two resources can never do.",
			"exceeded quota: q, requested: limits.memory=2Gi,pods=1, used: limits.memory=0,pods=5, limited: limits.memory=1Gi,pods=5", false,
		},
		"Units": {"Amounts are not compared as text.", "exceeded quota: q, requested: cpu=900m, used: cpu=1, limited: cpu=1", true},
		"Zero":  {"Nothing is ever allowed.", "exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0", false},
		"Other": {"It is not about room.", "failed quota: q: must specify limits.cpu for: node", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, tc.want, roomLater(tc.message), "%s: roomLater(%q)", tc.reason, tc.message)
		})
	}
}

func TestLongValuesAreLeftOut(t *testing.T) {
	list := `[{"name":"node: a"},` + strings.Repeat("x", 2*longValue) + "]"
	if got, want := shortened("Invalid value: "+list+": field is immutable"), "Invalid value: field is immutable"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if short := `Invalid value: "a": must be b`; shortened(short) != short {
		t.Errorf("a short value was left out: %q", shortened(short))
	}
}

func TestMaxNameLength(t *testing.T) {
	step := func(name string, replicas, completions int32, mode *batchv1.CompletionMode) jobsetv1alpha2.ReplicatedJob {
		s := jobsetv1alpha2.ReplicatedJob{Name: name, Replicas: replicas}
		s.Template.Spec.Completions, s.Template.Spec.CompletionMode = &completions, mode
		return s
	}
	cases := map[string]struct {
		reason  string
		steps   []jobsetv1alpha2.ReplicatedJob
		want    int
		longest string
	}{
		"Pod": {
			"The pod's name is longer than its Job's.",
			[]jobsetv1alpha2.ReplicatedJob{step("node", 1, 2, nil)}, 63 - len("-node-0-1-abcde"), "js-node-0-1-abcde",
		},
		"Digits": {
			"The largest index has the longest name.",
			[]jobsetv1alpha2.ReplicatedJob{step("node", 11, 101, nil)}, 63 - len("-node-10-100-abcde"), "js-node-10-100-abcde",
		},
		"Worst": {
			"The replicated job with the longest names decides.",
			[]jobsetv1alpha2.ReplicatedJob{step("node", 1, 1, nil), step("dataset-initializer", 1, 1, nil), step("launcher", 1, 1, nil)},
			63 - len("-dataset-initializer-0-0-abcde"), "js-dataset-initializer-0-0-abcde",
		},
		"NotIndexed": {
			"Pods of a Job that is not indexed have no hostnames.",
			[]jobsetv1alpha2.ReplicatedJob{step("node", 1, 1, new(batchv1.NonIndexedCompletion))}, 63 - len("-node-0"), "js-node-0",
		},
		"NoReplicas": {
			"Not defaulted yet.",
			[]jobsetv1alpha2.ReplicatedJob{step("node", 0, 1, nil)}, 63 - len("-node-0-0-abcde"), "js-node-0-0-abcde",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			js := &jobsetv1alpha2.JobSet{ObjectMeta: metav1.ObjectMeta{Name: "js"}}
			js.Spec.ReplicatedJobs = tc.steps
			if most, longest := maxNameLength(js); most != tc.want || longest != tc.longest {
				t.Errorf("%s\ngot %d by %q, want %d by %q", tc.reason, most, longest, tc.want, tc.longest)
			}
		})
	}
}

func TestStandInHasTheSameLength(t *testing.T) {
	for _, name := range []string{"a", "job", strings.Repeat("a", 63)} {
		if got := standIn(name); len(got) != len(name) || got == name || got[0] != 'x' {
			t.Errorf("standIn(%q) = %q", name, got)
		}
	}
}
