// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"fmt"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/test/check"
)

// at returns a minute of the hour in which the tests write all statuses.
func at(minute int) metav1.Time {
	return metav1.NewTime(time.Date(2026, time.May, 4, 10, minute, 0, 0, time.UTC))
}

func condition(kind string, status metav1.ConditionStatus, minute int) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: kind + string(status), Message: "so it is", LastTransitionTime: at(minute)}
}

func conditions(all ...metav1.Condition) trainer.TrainJobStatus {
	return trainer.TrainJobStatus{Conditions: all}
}

func report(minute int) trainer.TrainJobStatus {
	return trainer.TrainJobStatus{TrainerStatus: &trainer.TrainerStatus{LastUpdatedTime: at(minute)}}
}

func counters(succeeded int32) []trainer.JobStatus {
	return []trainer.JobStatus{{Name: "node", Succeeded: &succeeded}}
}

func TestStatusRules(t *testing.T) {
	complete, failed := condition("Complete", "True", 5), condition("Failed", "True", 5)
	changed := func(c metav1.Condition, change func(*metav1.Condition)) metav1.Condition {
		change(&c)
		return c
	}
	cases := map[string]struct {
		reason    string
		elsewhere bool
		old, new  trainer.TrainJobStatus
		// refused lists the broken rules. want is the whole message, if the test compares it.
		refused []string
		want    string
	}{
		"Complete": {
			reason: "A job ends.",
			old:    conditions(condition("Suspended", "False", 3)),
			new:    conditions(condition("Suspended", "False", 3), complete),
		},
		"CompleteAndFailed": {
			reason:  "A job ends in one way. Both conditions are named, as neither was there.",
			new:     conditions(complete, failed),
			refused: []string{"CompleteXorFailed", "CompleteXorFailed"},
		},
		"FailedAfterComplete": {
			reason:  "The condition that comes second is the wrong one.",
			old:     conditions(complete),
			new:     conditions(complete, failed),
			refused: []string{"CompleteXorFailed"},
			want: `status.conditions[Failed].status: Invalid value: "True": rule CompleteXorFailed: was not there; ` +
				`a TrainJob cannot be both Complete and Failed: leave out one of the two conditions`,
		},
		"CompleteAfterFailed": {
			reason:  "A condition that was False is no end, and becomes one.",
			old:     conditions(failed, condition("Complete", "False", 1)),
			new:     conditions(failed, complete),
			refused: []string{"CompleteXorFailed"},
			want: `status.conditions[Complete].status: Invalid value: "True": rule CompleteXorFailed: was "False"; ` +
				`a TrainJob cannot be both Complete and Failed: leave out one of the two conditions`,
		},
		"FailedInsteadOfComplete": {
			reason:  "The end is not exchanged for another one.",
			old:     conditions(complete),
			new:     conditions(failed),
			refused: []string{"EndIsFinal"},
			want: `status.conditions[Complete]: Required value: rule EndIsFinal: was "True"; ` +
				`the end of a TrainJob and its reason cannot change: write the condition as it was`,
		},
		"BothWereThere": {
			reason: "A status that was wrong before the webhook was there can still get its last counters.",
			old:    conditions(complete, failed),
			new:    trainer.TrainJobStatus{Conditions: []metav1.Condition{complete, failed}, JobsStatus: counters(2)},
		},
		"StatusGone": {
			reason:  "An empty status takes the end with it.",
			old:     conditions(failed),
			refused: []string{"EndIsFinal"},
		},
		"EndTakenBack": {
			reason:  "Terminal never turns False.",
			old:     conditions(complete),
			new:     conditions(changed(complete, func(c *metav1.Condition) { c.Status = metav1.ConditionFalse })),
			refused: []string{"EndIsFinal"},
			want: `status.conditions[Complete].status: Invalid value: "False": rule EndIsFinal: was "True"; ` +
				`the end of a TrainJob and its reason cannot change: write the condition as it was`,
		},
		"EndDoubted": {
			reason:  "Nor Unknown.",
			old:     conditions(failed),
			new:     conditions(changed(failed, func(c *metav1.Condition) { c.Status = metav1.ConditionUnknown })),
			refused: []string{"EndIsFinal"},
		},
		"OtherReason": {
			reason:  "Why a job ended does not change.",
			old:     conditions(failed),
			new:     conditions(changed(failed, func(c *metav1.Condition) { c.Reason = "DeadlineExceeded" })),
			refused: []string{"EndIsFinal"},
			want: `status.conditions[Failed].reason: Invalid value: "DeadlineExceeded": rule EndIsFinal: was "FailedTrue"; ` +
				`the end of a TrainJob and its reason cannot change: write the condition as it was`,
		},
		"OtherMessage": {
			reason:  "Nor in which words.",
			old:     conditions(failed),
			new:     conditions(changed(failed, func(c *metav1.Condition) { c.Message = "" })),
			refused: []string{"EndIsFinal"},
			want: `status.conditions[Failed].message: Invalid value: "": rule EndIsFinal: was "so it is"; ` +
				`the end of a TrainJob and its reason cannot change: write the condition as it was`,
		},
		"OtherTime": {
			reason:  "Nor when, which a TTL counts from. A time that goes back is one fault here, not two.",
			old:     conditions(complete),
			new:     conditions(changed(complete, func(c *metav1.Condition) { c.LastTransitionTime = at(4) })),
			refused: []string{"EndIsFinal"},
			want: `status.conditions[Complete].lastTransitionTime: Invalid value: "2026-05-04T10:04:00Z": rule EndIsFinal: ` +
				`was "2026-05-04T10:05:00Z"; the end of a TrainJob and its reason cannot change: write the condition as it was`,
		},
		"AllOfTheEnd": {
			reason:  "All faults come at once.",
			old:     conditions(failed),
			new:     conditions(metav1.Condition{Type: "Failed", Status: "False", Reason: "Retry", Message: "again", LastTransitionTime: at(9)}),
			refused: []string{"EndIsFinal", "EndIsFinal", "EndIsFinal", "EndIsFinal"},
		},
		"SameTimeInAnotherZone": {
			reason: "Times are compared, not texts.",
			old:    conditions(complete),
			new: conditions(changed(complete, func(c *metav1.Condition) {
				c.LastTransitionTime = metav1.NewTime(c.LastTransitionTime.In(time.FixedZone("CEST", 7200)))
			})),
		},
		"ObservedGenerationOfTheEnd": {
			reason: "It says which spec a controller has looked at, not how the job ended.",
			old:    conditions(complete),
			new:    conditions(changed(complete, func(c *metav1.Condition) { c.ObservedGeneration = 7 })),
		},
		"EndIsFinalElsewhere": {
			reason:    "That holds for whoever manages the job.",
			elsewhere: true,
			old:       conditions(complete),
			new:       conditions(failed),
			refused:   []string{"EndIsFinal"},
		},
		"NoEndYet": {
			reason:    "A dispatcher gives a job to another cluster, where its status begins anew.",
			elsewhere: true,
			old:       conditions(condition("Suspended", "False", 8), condition("Complete", "False", 8)),
			new:       conditions(condition("Suspended", "True", 2)),
		},
		"CountersAfterTheEnd": {
			reason: "The last counters of the JobSet come after its end.",
			old:    trainer.TrainJobStatus{Conditions: []metav1.Condition{complete}, JobsStatus: counters(1)},
			new:    trainer.TrainJobStatus{Conditions: []metav1.Condition{complete}, JobsStatus: counters(2)},
		},
		"ReportAfterTheEnd": {
			reason: "The trainer's last report can be slower than the end of its pod.",
			old:    conditions(complete),
			new:    trainer.TrainJobStatus{Conditions: []metav1.Condition{complete}, TrainerStatus: report(6).TrainerStatus},
		},
		"SuspendedAfterTheEnd": {
			reason:  "What has ended cannot be suspended.",
			old:     conditions(complete),
			new:     conditions(complete, condition("Suspended", "True", 6)),
			refused: []string{"EndedIsNotSuspended"},
			want: `status.conditions[Suspended].status: Invalid value: "True": rule EndedIsNotSuspended: was not there; ` +
				`a TrainJob that has ended cannot be suspended: leave the condition as it was`,
		},
		"SuspendedAgainAfterTheEnd": {
			reason:    "Nor a second time, wherever it ran.",
			elsewhere: true,
			old:       conditions(failed, condition("Suspended", "False", 3)),
			new:       conditions(failed, condition("Suspended", "True", 6)),
			refused:   []string{"EndedIsNotSuspended"},
			want: `status.conditions[Suspended].status: Invalid value: "True": rule EndedIsNotSuspended: was "False"; ` +
				`a TrainJob that has ended cannot be suspended: leave the condition as it was`,
		},
		"EndsSuspended": {
			reason: "A suspended job can end: Suspended stays what it was.",
			old:    conditions(condition("Suspended", "True", 3)),
			new:    conditions(condition("Suspended", "True", 3), failed),
		},
		"SuspendedAndEndedAtOnce": {
			reason: "Who suspends a job in the moment in which its JobSet completes gets both with one write.",
			old:    conditions(condition("Suspended", "False", 3)),
			new:    conditions(condition("Suspended", "True", 5), complete),
		},
		"ResumedAfterTheEnd": {
			reason: "To say that a finished job is not suspended is harmless.",
			old:    conditions(complete, condition("Suspended", "True", 3)),
			new:    conditions(complete, condition("Suspended", "False", 6)),
		},
		"TransitionGoesBack": {
			reason:  "An old status must not replace a newer one.",
			old:     conditions(condition("Suspended", "True", 4)),
			new:     conditions(condition("Suspended", "False", 3)),
			refused: []string{"TransitionTimeDoesNotGoBack"},
			want: `status.conditions[Suspended].lastTransitionTime: Invalid value: "2026-05-04T10:03:00Z": ` +
				`rule TransitionTimeDoesNotGoBack: was "2026-05-04T10:04:00Z"; ` +
				`the time of a change cannot be earlier than that of the last change: write the time of this change, or leave the condition as it was`,
		},
		"TransitionInTheSameSecond": {
			reason: "Times have seconds.",
			old:    conditions(condition("Suspended", "True", 4)),
			new:    conditions(condition("Suspended", "False", 4)),
		},
		"TransitionGoesBackElsewhere": {
			reason:    "The clocks of two clusters are not compared.",
			elsewhere: true,
			old:       conditions(condition("Suspended", "True", 4)),
			new:       conditions(condition("Suspended", "False", 3)),
		},
		"EndBeforeAnotherCondition": {
			reason: "The JobSet's end, by its controller's clock, may lie before what ours wrote last.",
			old:    conditions(condition("Suspended", "False", 6)),
			new:    conditions(condition("Suspended", "False", 6), complete),
		},
		"ReportGoesBack": {
			reason:  "A report that was held up must not replace a later one.",
			old:     report(4),
			new:     report(3),
			refused: []string{"ProgressDoesNotGoBack"},
			want: `status.trainerStatus.lastUpdatedTime: Invalid value: "2026-05-04T10:03:00Z": rule ProgressDoesNotGoBack: ` +
				`was "2026-05-04T10:04:00Z"; a report must not replace a later report: send the current report, with the time at which it was made`,
		},
		"ReportWithoutTime": {
			reason:  "A report without a time could hide anything.",
			old:     report(4),
			new:     trainer.TrainJobStatus{TrainerStatus: &trainer.TrainerStatus{}},
			refused: []string{"ProgressDoesNotGoBack"},
		},
		"ReportGoesBackElsewhere": {
			reason:    "A job that starts anew on another cluster reports by another clock.",
			elsewhere: true,
			old:       report(4),
			new:       report(3),
		},
		"ReportGone": {
			reason: "No report is not an older one.",
			old:    report(4),
			new:    conditions(condition("Suspended", "False", 5)),
		},
	}
	seen := map[string]bool{}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			faults := statusFaults(transition{old: &tc.old, new: &tc.new, elsewhere: tc.elsewhere})
			var rules, texts []string
			for _, f := range faults {
				rules, texts = append(rules, f.Rule), append(texts, f.Err.Error())
				seen[f.Rule] = true
			}
			check.Diff(t, tc.refused, rules, fmt.Sprintf("%s\nbroken rules", tc.reason))
			if tc.want != "" {
				check.Diff(t, tc.want, strings.Join(texts, "\n"), fmt.Sprintf("%s\ntext", tc.reason))
			}
			for _, status := range []trainer.TrainJobStatus{tc.old, tc.new} {
				if faults := statusFaults(transition{old: &status, new: status.DeepCopy()}); len(faults) > 0 {
					t.Errorf("the same status again is refused: %v", faults[0].Err)
				}
			}
		})
	}
	for _, rule := range statusRules {
		if !seen[rule.name] {
			t.Errorf("no case breaks rule %s", rule.name)
		}
	}
}
