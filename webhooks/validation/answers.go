// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/internal/answers"
)

const (
	ruleName   = "NameTooLong"
	ruleJobSet = "JobSet"
	rulePod    = "Pod"
	ruleQuota  = "Quota"
)

// Texts that the API server's answers have only in their messages.
var (
	deniedBy     = regexp.MustCompile(`^admission webhook "[^"]*" denied the request: `)
	forbidden    = regexp.MustCompile(`^.*? is forbidden: `)
	invalidValue = regexp.MustCompile(`(?s)^(Invalid value): .*: (.*)$`)
	quota        = regexp.MustCompile(`exceeded quota: ([^,]+), requested: (.*), used: (.*), limited: (.*)$`)
)

// longValue is the length from which a value hides the text after it. JobSet prints all of its replicated jobs.
const longValue = 300

// notAsApplied is the message for an apply with the same list element twice. The answer has no code for it.
const notAsApplied = "failed to create typed patch object"

// noDryRun is the message if another webhook has side effects: the API server does not call it in a dry run.
const noDryRun = "does not support dry run"

// statusOfError returns the API server's answer. false: the error is no answer.
func statusOfError(err error) (metav1.Status, bool) {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return metav1.Status{}, false
	}
	return answer.Status(), true
}

// isRefusal says whether the answer is about the object, and not about rights, a missing API, time or a broken webhook.
func isRefusal(err error) bool {
	status, ok := statusOfError(err)
	if !ok {
		return false
	}
	if strings.Contains(status.Message, notAsApplied) {
		return true
	}
	return answers.Of(err) == answers.Unacceptable && !strings.HasSuffix(status.Message, noDryRun)
}

// isOutage says whether an API server could not be reached or did not answer. Such an error is not about the request.
func isOutage(err error) bool {
	var unreachable *url.Error
	_, answered := statusOfError(err)
	return answered || meta.IsNoMatchError(err) || errors.As(err, &unreachable) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, context.Canceled)
}

// isImmutable is true for a refusal of immutable fields only. The controller then recreates the JobSet.
func isImmutable(err error) bool {
	status, ok := statusOfError(err)
	if !ok || !apierrors.IsInvalid(err) || status.Details == nil {
		return false
	}
	for _, cause := range status.Details.Causes {
		if cause.Type != metav1.CauseTypeFieldValueInvalid || !strings.Contains(cause.Message, apivalidation.FieldImmutableErrorMsg) {
			return false
		}
	}
	return len(status.Details.Causes) > 0
}

// words returns the API server's message without names of objects that the user does not know.
func words(err error) string {
	status, ok := statusOfError(err)
	if !ok {
		return err.Error()
	}
	var texts []string
	for _, c := range causesOf(status) {
		texts = append(texts, strings.TrimPrefix(c.Field+": "+c.Message, ": "))
	}
	return strings.Join(texts, "; ")
}

// causesOf returns the single faults of an answer. An answer without causes is one fault without a field.
func causesOf(status metav1.Status) (out []metav1.StatusCause) {
	if status.Details != nil {
		for _, cause := range status.Details.Causes {
			if cause.Field != "" {
				cause.Message = shortened(cause.Message)
				out = append(out, cause)
			}
		}
	}
	if len(out) > 0 {
		return out
	}
	message := deniedBy.ReplaceAllString(status.Message, "")
	return []metav1.StatusCause{{Message: shortened(forbidden.ReplaceAllString(message, ""))}}
}

func shortened(message string) string {
	if len(message) > longValue {
		return invalidValue.ReplaceAllString(message, "$1: $2")
	}
	return message
}

// jobSetResult turns the answer for a JobSet into the result for its TrainJob.
func jobSetResult(err error, job *trainer.TrainJob, jobSet *jobsetv1alpha2.JobSet) (found Result) {
	if !isRefusal(err) {
		found.Warn("cannot check the JobSet: %v", err)
		return found
	}
	status, _ := statusOfError(err)
	for _, cause := range causesOf(status) {
		switch {
		case strings.Contains(cause.Message, "name is too long"):
			found.Faults = append(found.Faults, nameFault(job, jobSet))
		case quota.MatchString(cause.Message):
			found.Faults = append(found.Faults, Fault{Rule: ruleQuota, Err: field.Forbidden(field.NewPath("metadata", "namespace"),
				"there is no room for one more JobSet: "+cause.Message)})
		default:
			text := strings.TrimPrefix(cause.Field+": "+cause.Message, ": ")
			found.Faults = append(found.Faults, Fault{Rule: ruleJobSet,
				Err: invalid(originInJobSet(job, jobSet, cause.Field), "the JobSet is refused: "+text)})
		}
	}
	return found
}

func nameFault(job *trainer.TrainJob, jobSet *jobsetv1alpha2.JobSet) Fault {
	renamed := jobSet.DeepCopy()
	renamed.Name = job.Name
	most, longest := maxNameLength(renamed)
	return Fault{Rule: ruleName, Err: &field.Error{
		Type: field.ErrorTypeTooLong, Field: field.NewPath("metadata", "name").String(), BadValue: job.Name,
		Detail: fmt.Sprintf("may have at most %d characters with the runtime %q, and has %d: names of Jobs and pods are "+
			"made of it (%s), and may have at most %d", most, job.Spec.RuntimeRef.Name, len(job.Name), longest, maxLabel),
	}}
}

// admittedPod turns the answer for a pod into what admission makes of it. nil: the answer says nothing about that.
func admittedPod(err error, pod *corev1.Pod, step *jobsetv1alpha2.ReplicatedJob) *trainjobs.AdmittedPod {
	if err == nil {
		return &trainjobs.AdmittedPod{Name: step.Name, Spec: trainjobs.SchedulingSpec(&pod.Spec)}
	}
	if isRefusal(err) {
		status, _ := statusOfError(err)
		for _, cause := range causesOf(status) {
			if roomLater(cause.Message) {
				return &trainjobs.AdmittedPod{Name: step.Name, Later: cause.Message}
			}
		}
	}
	return nil
}

// podResult turns the answer for a pod into the result for its TrainJob.
func podResult(err error, job *trainer.TrainJob, step *jobsetv1alpha2.ReplicatedJob) (found Result) {
	if err == nil {
		return found
	}
	if !isRefusal(err) {
		found.Warn("cannot check pods of replicated job %q: %v", step.Name, err)
		return found
	}
	status, _ := statusOfError(err)
	for _, cause := range causesOf(status) {
		switch {
		case roomLater(cause.Message):
			found.Warn("replicated job %q: %s: its pods wait until there is room", step.Name, cause.Message)
		case strings.HasSuffix(cause.Message, `serviceaccount "default" not found`):
			found.Warn("replicated job %q: %s: its pods wait until it exists", step.Name, cause.Message)
		default:
			found.Faults = append(found.Faults, podFault(cause, job, step))
		}
	}
	return found
}

func podFault(cause metav1.StatusCause, job *trainer.TrainJob, step *jobsetv1alpha2.ReplicatedJob) Fault {
	rule := rulePod
	if quota.MatchString(cause.Message) {
		rule = ruleQuota
	}
	at := strings.TrimPrefix(cause.Field, "spec.")
	if at == "" {
		at = guessedField(cause.Message)
	}
	text := strings.TrimPrefix(cause.Field+": "+cause.Message, ": ")
	detail := fmt.Sprintf("pods of replicated job %q are refused: %s", step.Name, text)
	return Fault{Rule: rule, Err: invalid(origin(job, step, at), detail)}
}

// roomLater says whether a quota that refuses a pod may have room for it later: no request exceeds the limit itself.
func roomLater(message string) bool {
	parts := quota.FindStringSubmatch(message)
	if parts == nil {
		return false
	}
	limits := quantities(parts[4])
	for name, requested := range quantities(parts[2]) {
		if limit, ok := limits[name]; ok && requested.Cmp(limit) > 0 {
			return false
		}
	}
	return true
}

// quantities reads "pods=1,requests.cpu=2".
func quantities(text string) map[string]resource.Quantity {
	out := map[string]resource.Quantity{}
	for _, pair := range strings.Split(text, ",") {
		name, value, _ := strings.Cut(pair, "=")
		if quantity, err := resource.ParseQuantity(value); err == nil {
			out[strings.TrimSpace(name)] = quantity
		}
	}
	return out
}
