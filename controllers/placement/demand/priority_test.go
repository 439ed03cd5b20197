// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"testing"

	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

func TestPriority(t *testing.T) {
	class := func(name string, value int32) schedulingv1.PriorityClass {
		return schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}
	}
	usual := class("usual", 10)
	usual.GlobalDefault = true
	classes := Priorities{class("high", 100), class("low", -5), usual}
	for name, test := range map[string]struct {
		reason  string
		classes Priorities
		class   string
		ofPods  []string
		want    int32
		err     string
	}{
		"Annotation": {reason: "it says it for the hub", classes: classes, class: "low", ofPods: []string{"high"}, want: -5},
		"Pods":       {reason: "the highest of them", classes: classes, ofPods: []string{"low", "high"}, want: 100},
		"LowPods":    {reason: "their class counts even if it is below the usual", classes: classes, ofPods: []string{"low"}, want: -5},
		"Elsewhere":  {reason: "a worker may have classes that the hub has not", classes: classes, ofPods: []string{"theirs"}, want: 10},
		"Usual":      {reason: "the default class of the hub", classes: classes, want: 10},
		"None":       {reason: "there are no classes", want: 0},
		"Misspelled": {
			reason: "the nearest is named", classes: classes, class: "hihg",
			err: `annotation trainyard.dev/priority-class: the hub has no PriorityClass "hihg"; did you mean "high"?`,
		},
		"Unknown": {
			reason: "all are named", classes: classes, class: "production",
			err: `annotation trainyard.dev/priority-class: the hub has no PriorityClass "production"; it has: high, low, usual`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			annotations := map[string]string{}
			if test.class != "" {
				annotations[v1alpha1.AnnotationPriorityClass] = test.class
			}
			got, err := test.classes.Of(annotations, test.ofPods)
			message := ""
			if err != nil {
				message = err.Error()
			}
			if got != test.want || message != test.err {
				t.Errorf("Of() = %d, %q, want %d, %q: %s", got, message, test.want, test.err, test.reason)
			}
		})
	}
}
