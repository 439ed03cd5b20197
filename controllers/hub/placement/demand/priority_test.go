// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"strings"
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
	systems := append(Priorities{class("system-cluster-critical", 2000000000), class("renamed", 2000000001)}, classes...)
	allowing := func(names ...string) *v1alpha1.DispatchPolicy {
		return &v1alpha1.DispatchPolicy{ObjectMeta: metav1.ObjectMeta{Name: "team"}, Spec: v1alpha1.DispatchPolicySpec{PriorityClasses: names}}
	}
	for name, test := range map[string]struct {
		reason  string
		classes Priorities
		class   string
		ofPods  []string
		ofKueue *int32
		ofQueue string
		policy  *v1alpha1.DispatchPolicy
		want    int32
		err     string
	}{
		"Annotation":        {reason: "it says it for the hub", classes: classes, class: "low", ofPods: []string{"high"}, want: -5},
		"Pods":              {reason: "the highest of them", classes: classes, ofPods: []string{"low", "high"}, want: 100},
		"LowPods":           {reason: "their class counts even if it is below the usual", classes: classes, ofPods: []string{"low"}, want: -5},
		"Elsewhere":         {reason: "a worker may have classes that the hub has not", classes: classes, ofPods: []string{"theirs"}, want: 10},
		"Usual":             {reason: "the default class of the hub", classes: classes, want: 10},
		"None":              {reason: "there are no classes", want: 0},
		"Workload":          {reason: "Kueue orders jobs by it", classes: classes, ofPods: []string{"low"}, ofKueue: new(int32(70)), want: 70},
		"LowWorkload":       {reason: "Kueue orders jobs by it", classes: classes, ofPods: []string{"high"}, ofKueue: new(int32(-7)), want: -7},
		"WorkloadAnnotated": {reason: "the annotation is for Trainyard", classes: classes, class: "low", ofKueue: new(int32(70)), want: -5},
		"WorkloadLimited": {
			reason: "anybody may give a Workload any class", classes: classes, ofKueue: new(int32(5000)), policy: allowing("low", "high"), want: 100,
		},
		"WorkloadOfUsualJob": {
			reason: "the job would have it without Kueue", classes: classes, ofKueue: new(int32(10)), policy: allowing("low"), want: 10,
		},
		"WorkloadOfSystem": {reason: "users have no such priority", classes: systems, ofKueue: new(int32(2000000000)), want: 1_000_000_000},
		"WorkloadWithoutClass": {
			reason: "the hub has none of the policy's classes", classes: classes, ofKueue: new(int32(5000)), policy: allowing("theirs"), want: 10,
		},
		"Misspelled": {
			reason: "the nearest is named", classes: classes, class: "hihg",
			err: `annotation trainyard.dev/priority-class: the hub has no PriorityClass "hihg"; did you mean "high"?`,
		},
		"Unknown": {
			reason: "all are named", classes: classes, class: "production",
			err: `annotation trainyard.dev/priority-class: the hub has no PriorityClass "production"; it has: high, low, usual`,
		},
		"System": {
			reason: "nobody names the system's classes unless a policy says so", classes: systems, class: "system-cluster-critical",
			err: `annotation trainyard.dev/priority-class: PriorityClass "system-cluster-critical" is the system's, and no spec.priorityClasses of a ` +
				`DispatchPolicy lets the job name it`,
		},
		"SystemValue": {
			reason: "whatever its name is", classes: systems, class: "renamed", policy: allowing(),
			err: `annotation trainyard.dev/priority-class: PriorityClass "renamed" is the system's, and no spec.priorityClasses of a ` +
				`DispatchPolicy lets the job name it`,
		},
		"SystemOfPods": {
			reason: "in the pods neither, also if the hub has no such class", classes: classes, class: "low", ofPods: []string{"system-node-critical"},
			err: `priorityClassName of replicated job "node", in the runtime or spec.runtimePatches: PriorityClass "system-node-critical" is the ` +
				`system's, and no spec.priorityClasses of a DispatchPolicy lets the job name it`,
		},
		"SystemAllowed": {reason: "the policy says so", classes: systems, class: "system-cluster-critical", policy: allowing("system-cluster-critical"), want: 2000000000},
		"Allowed":       {reason: "it is one of those", classes: classes, class: "high", ofPods: []string{"low"}, policy: allowing("low", "high"), want: 100},
		"NotNamed":      {reason: "a job that names none has the usual one", classes: classes, policy: allowing("low"), want: 10},
		"NotAllowed": {
			reason: "it is not one of those", classes: classes, class: "high", policy: allowing("low", "usual"),
			err: `annotation trainyard.dev/priority-class: DispatchPolicy team (spec.priorityClasses) does not let the job name PriorityClass "high"; ` +
				`it may name: low, usual`,
		},
		"NotAllowedOfPods": {
			reason: "their class has others stopped on the worker", classes: classes, ofPods: []string{"theirs"}, policy: allowing("low"),
			err: `priorityClassName of replicated job "node", in the runtime or spec.runtimePatches: DispatchPolicy team (spec.priorityClasses) does ` +
				`not let the job name PriorityClass "theirs"; it may name: low`,
		},
		"ForQueue":        {reason: "a worker's Kueue may have any class", classes: classes, ofQueue: "urgent", want: 10},
		"ForQueueAllowed": {reason: "it is one of those", classes: classes, ofQueue: "low", policy: allowing("low"), want: 10},
		"ForQueueNotAllowed": {
			reason: "their class has other Workloads stopped on the worker", classes: classes, ofQueue: "urgent", policy: allowing("low", "high"),
			err: `label kueue.x-k8s.io/priority-class: DispatchPolicy team (spec.priorityClasses) does not let the job name WorkloadPriorityClass ` +
				`"urgent"; it may name: low, high`,
		},
		"Long": {
			reason: "it is a user's text", classes: classes, class: strings.Repeat("x", 100_000),
			err: `annotation trainyard.dev/priority-class: the hub has no PriorityClass "` + strings.Repeat("x", 253) + `..."; it has: high, low, usual`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			annotations := map[string]string{}
			if test.class != "" {
				annotations[v1alpha1.AnnotationPriorityClass] = test.class
			}
			var ofPods []PriorityClass
			for _, name := range test.ofPods {
				ofPods = append(ofPods, PriorityClass{ReplicatedJob: "node", Name: name})
			}
			got, err := test.classes.Of(Named{Annotations: annotations, OfPods: ofPods, OfWorkload: test.ofKueue, OfQueue: test.ofQueue}, test.policy)
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
