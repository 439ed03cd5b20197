// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjobs

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

const (
	// MaxStatus is how many bytes of JSON the status of a copy may have on the hub. A job with a hundred steps has a fourth
	// of that. The limits of the CRD count characters, and allow a MiB for the messages of conditions alone.
	MaxStatus = 64 << 10
	// maxWords is how many bytes a condition's message may have in a status that is too large.
	maxWords = 4 << 10
)

// ShownStatus returns the status that the hub's TrainJob shows of a copy, nil if nothing is to be shown.
//
// A condition Suspended that is False is left out. Kubeflow Trainer keeps it on every job that was ever suspended, so
// on every job that a Kueue has admitted, and clients take it for a state: the column STATE says Suspended while the
// job runs, and the Python SDK never says Running.
//
// Otherwise a status of at most MaxStatus bytes is shown as it is. Of a larger status as much is shown as there is room
// for, what matters most first: the conditions of Trainer, the counters, other conditions, other fields. The result
// shares values with the copy, which it does not change. cut is true if something is missing.
func ShownStatus(copy *unstructured.Unstructured) (shown map[string]any, cut bool) {
	status, _ := copy.Object["status"].(map[string]any)
	status = WithoutCondition(status, trainer.TrainJobSuspended, metav1.ConditionFalse)
	if sizeOf(status) <= MaxStatus {
		return status, false
	}
	const jobs = "jobsStatus"
	left := room(MaxStatus)
	all, _ := status[conditions].([]any)
	chosen := make([]any, len(all)) // They keep their order.
	left.choose(all, chosen, isTrainers)
	counters, _ := status[jobs].([]any)
	counted := make([]any, len(counters))
	left.choose(counters, counted, func(string) bool { return true })
	left.choose(all, chosen, func(kind string) bool { return !isTrainers(kind) })

	shown = map[string]any{}
	for field, list := range map[string][]any{conditions: chosen, jobs: counted} {
		if list = slices.DeleteFunc(list, func(item any) bool { return item == nil }); len(list) > 0 {
			shown[field] = list
		}
	}
	for _, field := range slices.Sorted(maps.Keys(status)) {
		if field != conditions && field != jobs && left.takes(map[string]any{field: status[field]}) {
			shown[field] = status[field]
		}
	}
	return shown, true
}

// conditions is the field of a status that has the conditions.
const conditions = "conditions"

// WithoutCondition returns a status without a condition of this type that has one of these values. It does not change
// its argument, and returns it if there is no such condition. It returns nil if nothing is left: the CRD accepts no empty
// status.
func WithoutCondition(status map[string]any, kind string, values ...metav1.ConditionStatus) map[string]any {
	all, _ := status[conditions].([]any)
	unwanted := func(item any) bool {
		condition, _ := item.(map[string]any)
		value, _ := condition["status"].(string)
		return condition["type"] == kind && slices.Contains(values, metav1.ConditionStatus(value))
	}
	if !slices.ContainsFunc(all, unwanted) {
		return status
	}
	status = maps.Clone(status)
	if all = slices.DeleteFunc(slices.Clone(all), unwanted); len(all) > 0 {
		status[conditions] = all
	} else if delete(status, conditions); len(status) == 0 {
		return nil
	}
	return status
}

// isTrainers is true for the conditions that Kubeflow Trainer defines.
func isTrainers(kind string) bool {
	return kind == trainer.TrainJobComplete || kind == trainer.TrainJobFailed || kind == trainer.TrainJobSuspended
}

// room is how many bytes are left.
type room int

// takes takes the bytes of a value, if they are left.
func (r *room) takes(value any) bool {
	size := room(sizeOf(value)) + 1 // and a separator
	if size > *r {
		return false
	}
	*r -= size
	return true
}

// choose puts the objects of a list for which there is room into chosen, at the same places. A message is cut. Only
// objects of the wanted types are chosen.
func (r *room) choose(list, chosen []any, wanted func(kind string) bool) {
	for i := range list {
		fields, _ := list[i].(map[string]any)
		kind, _ := fields["type"].(string)
		if fields == nil || !wanted(kind) {
			continue
		}
		if message, _ := fields["message"].(string); len(message) > maxWords {
			fields = maps.Clone(fields)
			fields["message"] = Cut(message, maxWords)
		}
		if r.takes(fields) {
			chosen[i] = fields
		}
	}
}

// sizeOf is how many bytes of JSON a value has.
func sizeOf(value any) int {
	encoded, err := json.Marshal(value)
	if err != nil {
		return 0 // Not JSON, which no API server sends.
	}
	return len(encoded)
}

// Trouble is what keeps a TrainJob from making progress, as the agent of its cluster says it.
type Trouble struct {
	// Reason is a condition's reason, such as ImagePullFailed.
	Reason string
	// Message names the pod, its node and the cause.
	Message string
}

// maxTrouble is how many bytes the annotation may have. A condition of the Dispatch has its message.
const maxTrouble = 1024

var troubleReason = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,63}$`)

// String is the value of the annotation trainyard.dev/stalled.
func (t Trouble) String() string {
	return Cut(t.Reason+": "+t.Message, maxTrouble)
}

// Cut cuts a text to at most limit bytes. A text that was cut ends with dots. No letter is cut in half: the API server
// would replace it, and the stored text would always differ from this text.
func Cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-4], "") + " ..."
}

// TroubleOf returns the trouble in the annotation trainyard.dev/stalled of a copy, nil if there is none. A value that
// is not the agent's counts for nothing.
func TroubleOf(copy metav1.Object) *Trouble {
	value := copy.GetAnnotations()[v1alpha1.AnnotationStalled]
	reason, message, ok := strings.Cut(value, ": ")
	if !ok || message == "" || len(value) > maxTrouble || !troubleReason.MatchString(reason) {
		return nil
	}
	return &Trouble{Reason: reason, Message: message}
}
