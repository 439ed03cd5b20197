// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package answers

import (
	"errors"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

var lacksRights = regexp.MustCompile(`is forbidden: User "[^"]*" cannot `)

// IsTooLarge is true if the API server or its store does not take an object of this size. The answer for an object that
// is too large for etcd is an error 500 without a reason.
func IsTooLarge(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	message := status.Status().Message
	return apierrors.IsRequestEntityTooLargeError(err) || strings.Contains(message, "etcdserver: request is too large") ||
		strings.Contains(message, "trying to send message larger than max")
}

// LacksRights is true if authorization has forbidden the request. Admission and quotas forbid with the same code and
// reason.
func LacksRights(err error) bool {
	var status apierrors.APIStatus
	return apierrors.IsForbidden(err) && errors.As(err, &status) && lacksRights.MatchString(status.Status().Message)
}
