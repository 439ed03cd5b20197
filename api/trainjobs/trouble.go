// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjobs

import (
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

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
