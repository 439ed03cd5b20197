// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"fmt"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	trainjobutil "github.com/kubeflow/trainer/v2/pkg/util/trainjob"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/trainyard/trainyard/webhooks/validation"
)

// statusWebhook is the webhook's name in metrics.
const statusWebhook = "trainjob-status"

// transition is a change of one TrainJob's status.
type transition struct {
	old, new *trainer.TrainJobStatus
	// elsewhere: another controller manages the job. It runs elsewhere, and its status is copied from there.
	elsewhere bool
}

// statusRule is one thing that a status must not do.
type statusRule struct {
	name string
	// why follows the finding in a message, and says what is right.
	why string
	// oneClock: the rule compares times. It holds only if all times come from one cluster.
	oneClock bool
	check    func(transition) []finding
}

// finding is where a transition breaks a rule.
type finding struct {
	path *field.Path
	// old and new are the strings before and after. nil: there was or is none.
	old, new any
}

// statusRules are all rules of a status. They allow, on purpose:
//
//   - jobsStatus and trainerStatus may change after the end. The last counters of a JobSet and the last report of a
//     trainer can come late, and nothing is decided by them.
//   - A job may end while Suspended is True, also in the same write. A user may suspend a job at the moment when it
//     ends, and a mirror gathers several changes into one write.
//   - Suspended may become False or be removed after the end. Other conditions may change in any way.
//   - Conditions that were not True may be removed: the status of a copy on another cluster starts new with each copy.
//   - A fault of the old status may stay. Otherwise one fault that nobody checked would block all later writes.
var statusRules = []statusRule{
	{
		name:  "CompleteXorFailed",
		why:   "a TrainJob cannot be both Complete and Failed: leave out one of the two conditions",
		check: bothEnds,
	},
	{
		name:  "EndIsFinal",
		why:   "the end of a TrainJob and its reason cannot change: write the condition as it was",
		check: changedEnds,
	},
	{
		name:  "EndedIsNotSuspended",
		why:   "a TrainJob that has ended cannot be suspended: leave the condition as it was",
		check: suspendedAfterEnd,
	},
	{
		name: "TransitionTimeDoesNotGoBack",
		why: "the time of a change cannot be earlier than that of the last change: write the time of this change, or " +
			"leave the condition as it was",
		oneClock: true,
		check:    earlierTransitions,
	},
	{
		name:     "ProgressDoesNotGoBack",
		why:      "a report must not replace a later report: send the current report, with the time at which it was made",
		oneClock: true,
		check:    earlierReport,
	},
}

// statusValidator validates updates of trainjobs/status by statusRules.
type statusValidator struct{}

// ValidateCreate refuses nothing: a new TrainJob has no status.
func (statusValidator) ValidateCreate(context.Context, *trainer.TrainJob) (admission.Warnings, error) {
	return nil, nil
}

// ValidateUpdate refuses a status that breaks rules, and names all of them.
func (statusValidator) ValidateUpdate(_ context.Context, old, job *trainer.TrainJob) (admission.Warnings, error) {
	t := transition{old: &old.Status, new: &job.Status, elsewhere: trainjobutil.IsManagedByExternalController(job)}
	return nil, validation.Refuse(statusWebhook, trainer.TrainJobKind, job.Name, statusFaults(t))
}

// ValidateDelete refuses nothing.
func (statusValidator) ValidateDelete(context.Context, *trainer.TrainJob) (admission.Warnings, error) {
	return nil, nil
}

// statusFaults returns the faults of a transition in the order of the rules.
func statusFaults(t transition) (faults []validation.Fault) {
	for _, rule := range statusRules {
		if rule.oneClock && t.elsewhere {
			continue
		}
		for _, f := range rule.check(t) {
			faults = append(faults, validation.Fault{Rule: rule.name, Err: f.error(rule)})
		}
	}
	return faults
}

// error says which rule was broken, the values before and after, and what is right.
func (f finding) error(rule statusRule) *field.Error {
	was := "was not there"
	if f.old != nil {
		was = fmt.Sprintf("was %q", f.old)
	}
	detail := fmt.Sprintf("rule %s: %s; %s", rule.name, was, rule.why)
	if f.new == nil {
		return field.Required(f.path, detail)
	}
	return field.Invalid(f.path, f.new, detail)
}

// ends has the types of the conditions that end a TrainJob.
var ends = []string{trainer.TrainJobComplete, trainer.TrainJobFailed}

func bothEnds(t transition) (found []finding) {
	if !isTrue(t.new, ends[0]) || !isTrue(t.new, ends[1]) {
		return nil
	}
	for _, end := range ends {
		if !isTrue(t.old, end) {
			found = append(found, finding{path: conditionPath(end).Child("status"), old: statusOf(t.old, end), new: string(metav1.ConditionTrue)})
		}
	}
	return found
}

func changedEnds(t transition) (found []finding) {
	for _, end := range ends {
		if !isTrue(t.old, end) {
			continue
		}
		before, after := meta.FindStatusCondition(t.old.Conditions, end), meta.FindStatusCondition(t.new.Conditions, end)
		if after == nil {
			found = append(found, finding{path: conditionPath(end), old: string(before.Status)})
			continue
		}
		found = append(found, differences(before, after)...)
	}
	return found
}

// differences returns the differences of two versions of a condition, without observedGeneration.
func differences(before, after *metav1.Condition) (found []finding) {
	path := conditionPath(before.Type)
	add := func(name, old, new string) {
		if old != new {
			found = append(found, finding{path: path.Child(name), old: old, new: new})
		}
	}
	add("status", string(before.Status), string(after.Status))
	add("reason", before.Reason, after.Reason)
	add("message", before.Message, after.Message)
	add("lastTransitionTime", timeText(before.LastTransitionTime), timeText(after.LastTransitionTime))
	return found
}

func suspendedAfterEnd(t transition) []finding {
	ended := isTrue(t.old, trainer.TrainJobComplete) || isTrue(t.old, trainer.TrainJobFailed)
	if !ended || isTrue(t.old, trainer.TrainJobSuspended) || !isTrue(t.new, trainer.TrainJobSuspended) {
		return nil
	}
	return []finding{{
		path: conditionPath(trainer.TrainJobSuspended).Child("status"),
		old:  statusOf(t.old, trainer.TrainJobSuspended), new: string(metav1.ConditionTrue),
	}}
}

// earlierTransitions checks conditions other than the ends. changedEnds checks the ends.
func earlierTransitions(t transition) (found []finding) {
	for _, after := range t.new.Conditions {
		before := meta.FindStatusCondition(t.old.Conditions, after.Type)
		if before == nil || isEnd(before) || !after.LastTransitionTime.Before(&before.LastTransitionTime) {
			continue
		}
		found = append(found, finding{
			path: conditionPath(after.Type).Child("lastTransitionTime"),
			old:  timeText(before.LastTransitionTime), new: timeText(after.LastTransitionTime),
		})
	}
	return found
}

func earlierReport(t transition) []finding {
	before, after := t.old.TrainerStatus, t.new.TrainerStatus
	if before == nil || after == nil || !after.LastUpdatedTime.Before(&before.LastUpdatedTime) {
		return nil
	}
	return []finding{{
		path: field.NewPath("status", "trainerStatus", "lastUpdatedTime"),
		old:  timeText(before.LastUpdatedTime), new: timeText(after.LastUpdatedTime),
	}}
}

func isTrue(status *trainer.TrainJobStatus, kind string) bool {
	return meta.IsStatusConditionTrue(status.Conditions, kind)
}

func isEnd(c *metav1.Condition) bool {
	return c.Status == metav1.ConditionTrue && (c.Type == trainer.TrainJobComplete || c.Type == trainer.TrainJobFailed)
}

// statusOf returns a condition's status, or nil if there is no such condition.
func statusOf(status *trainer.TrainJobStatus, kind string) any {
	if c := meta.FindStatusCondition(status.Conditions, kind); c != nil {
		return string(c.Status)
	}
	return nil
}

// conditionPath names a condition by its type, because the order of the list may change.
func conditionPath(kind string) *field.Path {
	return field.NewPath("status", "conditions").Key(kind)
}

func timeText(t metav1.Time) string {
	return t.UTC().Format(time.RFC3339)
}
