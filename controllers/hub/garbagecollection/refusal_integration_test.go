// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/garbagecollection"
	"github.com/trainyard/trainyard/dispatch/judgement"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
)

// The status of a worker says once why it refused a sweep, in its words, and what to do, until a sweep succeeds.
func TestRefusedSweepIsTold(t *testing.T) {
	resource := schema.GroupResource{Group: "trainer.kubeflow.org", Resource: "trainjobs"}
	rights := apierrors.NewForbidden(resource, jobName, errors.New(`User "hub" cannot delete resource "trainjobs"`))
	for name, test := range map[string]struct {
		err    error
		reason string
		words  []string
	}{
		"Rights":  {rights, v1alpha1.ReasonForbidden, []string{`User "hub" cannot delete resource "trainjobs"`, "list and delete on trainjobs.trainer.kubeflow.org"}},
		"Webhook": {apierrors.NewForbidden(resource, jobName, errors.New(`admission webhook "w" denied the request`)), v1alpha1.ReasonRefused, []string{`webhook "w" denied`}},
		"Endless": {fmt.Errorf("list trainjobs: %w", remote.ErrEndlessList), v1alpha1.ReasonRefused, []string{"list trainjobs: the worker's list does not end"}},
		"Passing": {apierrors.NewTimeoutError("busy", 1), "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.place(t, "origin", otherName, 3)
			s.createCopy(t, "origin", "2")
			s.options[workerName].Worker = refusing{Cluster: s.Worker(workerName).Connection, err: test.err}
			for range 2 {
				if refused, err := garbagecollection.Sweep(t.Context(), *s.options[workerName]); err == nil || refused != (test.reason != "") {
					t.Fatalf("the sweep is refused: %t, %v", refused, err)
				}
			}
			s.expectHold(t, test.reason == "")
			told := s.report(t, workerName)
			condition := meta.FindStatusCondition(told.Status.Conditions, v1alpha1.WorkerClusterSweepRefused)
			if test.reason == "" {
				check.Equal(t, nil, condition, "what passes is told")
				return
			}
			if condition == nil || condition.Status != metav1.ConditionTrue || condition.Reason != test.reason {
				t.Fatalf("condition is %+v, want True by %s", condition, test.reason)
			}
			for _, words := range test.words {
				if !strings.Contains(condition.Message, words) {
					t.Errorf("message is %q, want %q in it", condition.Message, words)
				}
			}
			check.Equal(t, told.ResourceVersion, s.report(t, workerName).ResourceVersion, "the same was written again")
			s.options[workerName].Worker = s.Worker(workerName).Connection
			s.sweep(t, workerName)
			if condition := meta.FindStatusCondition(s.report(t, workerName).Status.Conditions, v1alpha1.WorkerClusterSweepRefused); condition != nil {
				t.Errorf("the sweep works, and the worker still has %+v", condition)
			}
		})
	}
}

// A worker that gives sweeps only errors is reported after a time. A worker that is not connected is not.
func TestFailingSweepIsTold(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"Errors":       {err: apierrors.NewInternalError(errors.New("etcdserver: no leader")), want: true},
		"NotConnected": {err: remote.ErrNotConnected},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.place(t, "origin", otherName, 3)
			s.createCopy(t, "origin", "2")
			s.options[workerName].Worker = refusing{Cluster: s.Worker(workerName).Connection, err: test.err}
			for _, after := range []time.Duration{0, 29 * time.Second} {
				s.Clock.Step(after)
				if _, err := garbagecollection.Sweep(t.Context(), *s.options[workerName]); err == nil {
					t.Fatal("the sweep has worked")
				}
				if words, refused := s.quarantine.SweepRefused(workerName); refused {
					t.Fatalf("told too early: %s", words)
				}
			}
			s.Clock.Step(time.Second)
			_, _ = garbagecollection.Sweep(t.Context(), *s.options[workerName])
			if words, refused := s.quarantine.SweepRefused(workerName); refused != test.want || refused && !strings.Contains(words, "no leader") {
				t.Errorf("SweepRefused() = %q, %t, want %t", words, refused, test.want)
			}
			condition := meta.FindStatusCondition(s.report(t, workerName).Status.Conditions, v1alpha1.WorkerClusterSweepRefused)
			if (condition != nil) != test.want || condition != nil && condition.Reason != v1alpha1.ReasonFailing {
				t.Errorf("the condition is %+v", condition)
			}
		})
	}
}

// expectHold checks whether a job that is placed on a worker that was not swept has to wait. Where the sweep is
// refused, it does not, so that it can be given back.
func (s *scene) expectHold(t *testing.T, waits bool) {
	t.Helper()
	options := *s.options[workerName]
	options.Swept = func() bool { return false }
	seen := judgement.Seen{Dispatch: &v1alpha1.Dispatch{Spec: v1alpha1.DispatchSpec{Cluster: otherName, Attempt: 1}}}
	must(t, garbagecollection.NewCollector(options).See(t.Context(), &seen))
	if (seen.Hold != judgement.Open) != waits {
		t.Errorf("the job waits: %t, want %t", !waits, waits)
	}
}
