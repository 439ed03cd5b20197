// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

func TestRetries(t *testing.T) {
	now := time.Date(2026, 11, 27, 11, 0, 0, 500, time.UTC)
	ago := func(value string, ago time.Duration) *v1alpha1.Dispatch {
		d := &v1alpha1.Dispatch{}
		noteRetry(d, retry{request: digest(value), at: now.Add(-ago)})
		return d
	}
	written := func(text string) *v1alpha1.Dispatch {
		d := &v1alpha1.Dispatch{}
		d.Annotations = map[string]string{annotationRetry: text}
		return d
	}
	placed := ago("a", time.Hour)
	placed.Spec.Cluster, placed.Spec.Attempt = "east", 1
	for name, test := range map[string]struct {
		reason   string
		asks     bool
		value    string
		dispatch *v1alpha1.Dispatch
		due      bool
		later    time.Duration
	}{
		"NotAsked":     {reason: "there is no annotation", dispatch: ago("a", time.Hour)},
		"NoDispatch":   {reason: "no worker was asked", asks: true, value: "a"},
		"First":        {reason: "any value", asks: true, value: "a", dispatch: &v1alpha1.Dispatch{}, due: true},
		"Empty":        {reason: "an empty value is a value", asks: true, dispatch: &v1alpha1.Dispatch{}, due: true},
		"Same":         {reason: "it was carried out", asks: true, value: "a", dispatch: ago("a", time.Hour)},
		"Other":        {reason: "another value", asks: true, value: "b", dispatch: ago("a", retryInterval), due: true},
		"TooEarly":     {reason: "it is not lost", asks: true, value: "b", dispatch: ago("a", 3*time.Second), later: 7 * time.Second},
		"Ahead":        {reason: "the clock of another machine was ahead", asks: true, value: "b", dispatch: ago("a", -time.Hour), due: true},
		"BeforeTheJob": {reason: "the job came with it", asks: true, value: "a", dispatch: written(digest("a"))},
		"Unreadable":   {reason: "somebody has edited it", asks: true, value: "a", dispatch: written("x,y"), due: true},
		"Placed":       {reason: "it has a worker", asks: true, value: "b", dispatch: placed},
	} {
		t.Run(name, func(t *testing.T) {
			job := &unstructured.Unstructured{Object: map[string]any{}}
			if test.asks {
				job.SetAnnotations(map[string]string{v1alpha1.AnnotationRetry: test.value})
			}
			due, later := (&observation{at: now, job: job, dispatch: test.dispatch}).retries()
			check.Equal(t, test.due, due, "due: %s", test.reason)
			check.Equal(t, test.later, later, "later: %s", test.reason)
		})
	}
}
