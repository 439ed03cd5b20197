// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/trainyard/trainyard/internal/answers"
	"github.com/trainyard/trainyard/remote"
)

// refusal is the manager's own reason to create no copy. It counts as a refusal by the worker.
type refusal string

func (r refusal) Error() string { return string(r) }

// isRefusal is true if err is an answer about this object that will not change soon: the worker's admission, quota,
// RBAC or schema said no. Timeouts, throttling, server errors and expired credentials say nothing about the object.
func isRefusal(err error) bool {
	return isOwnRefusal(err) || answers.Of(err).IsRefusal()
}

// isOwnRefusal is true if err is the manager's own reason, which no cache of the worker can be late for.
func isOwnRefusal(err error) bool {
	var own refusal
	return errors.As(err, &own)
}

// isFault is true if the worker says that something is wrong with it: an admission webhook cannot be called, say.
func isFault(err error) bool {
	return answers.Of(err) == answers.Fault
}

// refusalWords are the worker's own words, without the words that we put around them.
func refusalWords(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Message != "" {
		return status.Status().Message
	}
	return err.Error()
}

// isAnswer is true if an error of a creation says that nothing was created, and that nothing will be.
func isAnswer(err error) bool {
	return remote.IsNotConnected(err) || errors.Is(err, remote.ErrNotLeading) || isRefusal(err) || answers.Of(err) >= answers.Fault
}
