// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package answers

import (
	"errors"
	"net/http"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Answer is what an error says about a request: the later ones of the list say more. Which answers end an attempt,
// permit another try, or blame the object is for the caller to say.
type Answer int

const (
	// None says: no API server has answered, or there is no error. The request may have been carried out.
	None Answer = iota
	// Unclear says: the API server took too long, or cannot work now. The request may have been carried out.
	Unclear
	// Fault says: something is wrong with the API server. An admission webhook cannot be called, say. Nothing was done,
	// like in all answers after this one.
	Fault
	// Later says: the credentials are not valid now, or there are too many requests.
	Later
	// Conflict says: the object has changed, or it exists already.
	Conflict
	// Missing says: the object is not there, or its namespace or kind.
	Missing
	// Terminating says: the namespace is being deleted.
	Terminating
	// NoRights says: authorization has forbidden the request. Admission and quotas forbid with the same code and reason.
	NoRights
	// Unacceptable says: the schema, admission, a quota or the limit of sizes does not permit this object.
	Unacceptable
	// Refused says: the API server does not carry out such a request.
	Refused
)

// String names the answer, for logs and tests.
func (a Answer) String() string {
	return [...]string{
		"None", "Unclear", "Fault", "Later", "Conflict", "Missing", "Terminating", "NoRights", "Unacceptable", "Refused",
	}[a]
}

// IsRefusal is true for an answer that would be the same at the next try.
func (a Answer) IsRefusal() bool { return a >= Missing }

// Of returns the answer that an error has, or wraps.
func Of(err error) Answer {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return None
	}
	switch code, message := status.Status().Code, status.Status().Message; {
	case isTooLarge(message):
		return Unacceptable
	case code == http.StatusInternalServerError && apierrors.IsInternalError(err):
		return Fault
	case code < 400, code >= 500, code == http.StatusRequestTimeout:
		return Unclear
	case code == http.StatusUnauthorized, code == http.StatusTooManyRequests:
		return Later
	case code == http.StatusConflict:
		return Conflict
	case code == http.StatusNotFound:
		return Missing
	case code == http.StatusForbidden && apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return Terminating
	case code == http.StatusForbidden && lacksRights.MatchString(message):
		return NoRights
	case code == http.StatusForbidden, code == http.StatusBadRequest, code == http.StatusUnprocessableEntity,
		code == http.StatusRequestEntityTooLarge:
		return Unacceptable
	}
	return Refused
}

// Words returns the API server's own words in an error, or else the error's. Of a patch with unknown fields it leaves out
// the whole object, which the API server quotes first.
func Words(err error) string {
	words := err.Error()
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Message != "" {
		words = status.Status().Message
	}
	if at := strings.LastIndex(words, "strict decoding error:"); at > 0 {
		return words[at:]
	}
	return words
}

var lacksRights = regexp.MustCompile(`is forbidden: User "[^"]*" cannot `)

// isTooLarge is true for the words of etcd, and of the API server's client of etcd. They come as an error 500 without a
// reason.
func isTooLarge(message string) bool {
	return strings.Contains(message, "etcdserver: request is too large") || strings.Contains(message, "trying to send message larger than max")
}
