// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/remote"
)

// Inherited returns the attempts on a worker that have no copy on record. An earlier mirror, of this process or
// another, may have sent a creation for them and ended before the answer. The hub's cache must have the
// indexes of package records. The result lacks attempts that the cache does not show yet.
func Inherited(ctx context.Context, hub client.Reader, worker v1alpha1.ClusterName) (map[types.UID]int32, error) {
	dispatches, err := records.Live(ctx, hub, worker)
	if err != nil {
		return nil, err
	}
	inherited := map[types.UID]int32{}
	for i := range dispatches {
		if d := &dispatches[i]; record.LacksCopy(d) {
			inherited[d.Spec.TrainJob.UID] = d.Spec.Attempt
		}
	}
	return inherited, nil
}

// inheritedCreations is how many creations without an answer the mirror assumes of an inherited attempt: one that has
// made the copy that is there, and one that may make another copy when the first copy is gone.
const inheritedCreations = 2

// unanswered counts creations of the copy that got no answer. Each of them may still be carried out.
type unanswered struct {
	// count includes creations that an earlier mirror may have sent. last is when the last of them was given up.
	count int
	last  time.Time
	// copyAnswered is true if none of these creations has made the copy that the attempt has.
	copyAnswered bool
}

// note counts a creation that failed, unless the error says that there will be no copy.
func (u *unanswered) note(err error, now time.Time) {
	if !isAnswer(err) {
		u.count++
		u.last = now
	}
}

// mayArrive is for how long one of the creations may still be carried out, zero if none may. copied is true if the
// attempt has had a copy. If no other creation has made that copy, one of the unanswered creations has made it, and
// that creation cannot arrive again.
func (u *unanswered) mayArrive(copied bool, now time.Time) time.Duration {
	arrived := 0
	if copied && !u.copyAnswered {
		arrived = 1
	}
	if u.count <= arrived {
		return 0
	}
	return max(0, remote.CreationTimeout-now.Sub(u.last))
}
