// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package explanation

import (
	"errors"
	"fmt"
	"strings"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/views/jobs"
)

// Retry says what comes of a request to ask the workers again that have refused the job. It returns an error if nothing
// does, because the job does not wait for a worker.
func (f Observation) Retry() (string, error) {
	switch f.State() {
	case Waiting:
		if reason := jobs.Reason(f.Dispatch); reason != "" && !v1alpha1.ReasonKindOf(reason).IsForRoom() {
			return "", f.notRetried("it waits for something that no worker decides")
		}
	case Returned:
	case Ended:
		return "", f.notRetried("it has ended; create it again to run it again")
	case Suspended:
		return "", f.notRetried("it is suspended; the workers are asked when it is resumed")
	case Placed, Queued, Running, Evicting, Lost:
		return "", f.notRetried("it has a worker")
	case Unmanaged, Deleting, Unseen, Succeeding:
		return "", f.notRetried("it does not wait for a worker")
	}
	refusers := record.Refusers(f.Dispatch)
	if len(refusers) == 0 {
		return fmt.Sprintf("no worker has refused it, it waits for room (%s)", jobs.Reason(f.Dispatch)), nil
	}
	names := make([]string, len(refusers))
	for i, name := range refusers {
		names[i] = string(name)
	}
	return "asked again: " + strings.Join(names, ", "), nil
}

// notRetried is an error with the state of the job, and with the words that explain has for it.
func (f Observation) notRetried(why string) error {
	text := fmt.Sprintf("TrainJob %q is not retried: %s: %s", f.Job.GetName(), why, f.Headline())
	if message := oneLine(f.message()); message != "" {
		text += ": " + message
	}
	return errors.New(text)
}
