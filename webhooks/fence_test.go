// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks_test

import (
	"maps"
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// resume is what a Kueue does to a suspended job that it has admitted.
func resume(j *trainer.TrainJob) { j.Spec.Suspend = new(false) }

// unfence is what a hub does to a copy that may go on.
var unfence = with(nil, map[string]string{v1alpha1.AnnotationFenced: ""})

// TestFencedCopyStaysSuspended: nobody can resume a copy that the agent has stopped. Everything else of the copy can be
// written.
func TestFencedCopyStaysSuspended(t *testing.T) {
	e, ns := withMarks(t)
	fenced := job(ns, "fenced", suspended, with(copyLabels, copyAnnotations))
	check.Must(t, e.as(t, theHub).Create(t.Context(), fenced))
	for _, who := range []string{aUser, theHub, theAgent} {
		err := e.patch(t, e.as(t, who), fenced, resume)
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "it stays suspended until the hub removes the annotation") {
			t.Errorf("%s resumes a copy that is fenced: %v", who, err)
		}
	}
	for name, change := range map[string]func(*trainer.TrainJob){
		"Kueue's entry": func(j *trainer.TrainJob) {
			j.Spec.RuntimePatches = append(j.Spec.RuntimePatches, trainer.RuntimePatch{Manager: "kueue.x-k8s.io/manager"})
		},
		"finalizers": func(j *trainer.TrainJob) { j.Finalizers = []string{"test.dev/hold"} },
		"no longer":  func(j *trainer.TrainJob) { j.Finalizers = nil },
	} {
		if err := e.patch(t, e.as(t, aUser), fenced, change); err != nil {
			t.Errorf("a change of %s is refused: %v", name, err)
		}
	}
}

// TestFencedCopyGoesOn: the hub resumes a copy in one write, or takes the mark off and leaves the rest to Kueue.
func TestFencedCopyGoesOn(t *testing.T) {
	e, ns := withMarks(t)
	hub, user := e.as(t, theHub), e.as(t, aUser)
	for _, name := range []string{"of-the-hub", "of-kueue"} {
		copied := job(ns, name, suspended, with(copyLabels, copyAnnotations))
		check.Must(t, hub.Create(t.Context(), copied))
		steps := []func() error{func() error {
			return e.patch(t, hub, copied, func(j *trainer.TrainJob) { unfence(j); resume(j) })
		}}
		if name == "of-kueue" {
			steps = []func() error{
				func() error { return e.patch(t, hub, copied, unfence) },
				func() error { return e.patch(t, user, copied, resume) },
			}
		}
		for i, step := range steps {
			if err := step(); err != nil {
				t.Errorf("%s: write %d is refused: %v", name, i, err)
			}
		}
	}
}

// TestMarkedCopyThatIsNotSuspended: if the rule was installed after the copy got the mark, the copy can still be
// written.
func TestMarkedCopyThatIsNotSuspended(t *testing.T) {
	e, ns := withMarks(t)
	annotations := maps.Clone(copyAnnotations)
	delete(annotations, v1alpha1.AnnotationFenced)
	copied := job(ns, "marked", with(copyLabels, annotations))
	check.Must(t, e.as(t, theHub).Create(t.Context(), copied))
	for _, change := range []func(*trainer.TrainJob){
		with(nil, map[string]string{v1alpha1.AnnotationFenced: "1.1"}),
		func(j *trainer.TrainJob) { j.Finalizers = []string{"test.dev/hold"} },
		func(j *trainer.TrainJob) { j.Finalizers = nil },
		func(j *trainer.TrainJob) { j.Spec.Suspend = new(true) },
	} {
		if err := e.patch(t, e.as(t, theAgent), copied, change); err != nil {
			t.Errorf("a write is refused: %v", err)
		}
	}
}
