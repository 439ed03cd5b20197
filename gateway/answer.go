// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// status makes the answer of a request that is refused here.
func status(code int32, reason metav1.StatusReason, message string) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: code, Reason: reason, Message: message,
	}
}

// unavailable is the answer when hub or worker do not answer. It has no Retry-After: kubectl would be silent for ten
// seconds.
func unavailable(format string, values ...any) *metav1.Status {
	return status(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, fmt.Sprintf(format, values...))
}

// tooMany is the answer to a stream more than there may be.
func tooMany(user string) *metav1.Status {
	return status(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, fmt.Sprintf(
		"user %q has %d watches and streams open, or all users together have %d: close some", user, maxStreamsOfUser, maxStreams))
}

// fail answers with a status. kubectl does not show the message of a 401, but a warning.
func fail(w http.ResponseWriter, s *metav1.Status) {
	if s.Code == http.StatusUnauthorized {
		warn(w, s.Message)
	}
	w.Header().Set("Content-Type", typeJSON)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(int(s.Code))
	_ = json.NewEncoder(w).Encode(s) // The client may have gone.
}

const (
	// maxWarnings is how many warnings an answer may have, and maxWarning how many characters each. Clients bound headers:
	// Python's takes 100 of 64 KiB each, and would fail with the whole answer.
	maxWarnings, maxWarning = 64, 1000
	moreWarnings            = "there are more warnings, which are left out"
)

// warn adds a header that kubectl prints. The words can be those of a worker.
func warn(w http.ResponseWriter, words string) {
	switch before := len(w.Header()["Warning"]); {
	case before >= maxWarnings:
		return
	case before == maxWarnings-1:
		words = moreWarnings
	}
	// A character that is not printed can end the header or control the terminal. A warning with one would be left out.
	words = strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) {
			return ' '
		}
		return r
	}, words)
	words = cut(words, maxWarning)
	if header, err := utilnet.NewWarningHeader(299, userAgent, words); err == nil {
		w.Header().Add("Warning", header)
	}
}

// cut cuts a text after so many characters.
func cut(text string, characters int) string {
	if runes := []rune(text); len(runes) > characters {
		return string(runes[:characters]) + " ..."
	}
	return text
}

// relay answers with what the hub has answered.
func relay(w http.ResponseWriter, res *http.Response) {
	defer func() { _ = res.Body.Close() }()
	for _, name := range []string{"Content-Type", "Warning", "Www-Authenticate"} {
		if values := res.Header.Values(name); len(values) > 0 {
			w.Header()[name] = values
		}
	}
	w.WriteHeader(res.StatusCode)
	_, _ = io.Copy(w, res.Body) // The client may have gone.
}

// refusedError says that a worker has refused a request.
type refusedError struct{ status *metav1.Status }

// Error returns the worker's words.
func (e *refusedError) Error() string { return e.status.Message }

// refusal makes an error of a worker's answer.
func refusal(s *metav1.Status) error {
	if s.Code == http.StatusGone || s.Reason == metav1.StatusReasonExpired {
		return &expiredError{}
	}
	return &refusedError{status: s}
}

func isRefused(err error) (*metav1.Status, bool) {
	var refused *refusedError
	if errors.As(err, &refused) {
		return refused.status, true
	}
	return nil, false
}
