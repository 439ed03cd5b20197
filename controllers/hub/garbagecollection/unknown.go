// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
)

// unknownCopies are the unknown copies of one worker, in the Quarantine that all workers share.
type unknownCopies struct {
	quarantine *Quarantine
	worker     v1alpha1.ClusterName
	clock      clock.PassiveClock
}

// newSuspect returns what a copy shows when this process sees it for the first time. It holds nothing.
func (s unknownCopies) newCopy(copy client.Object) unknownCopy {
	return unknownCopy{
		uid: copy.GetUID(), origin: record.OriginOn(copy), attempt: record.AttemptOn(copy),
		found: s.quarantine.isEarly(s.worker), since: s.clock.Now(),
	}
}

// get returns what is known of a copy, and false if the copy is not unknown.
func (s unknownCopies) get(key types.NamespacedName) (unknownCopy, bool) {
	return s.quarantine.registry.get(s.worker, key)
}

// see keeps the job of a copy from being placed. It keeps what is already known of the copy.
func (s unknownCopies) see(copy client.Object) unknownCopy {
	key := client.ObjectKeyFromObject(copy)
	held, known := s.get(key)
	if now := s.newCopy(copy); !known || held.uid != now.uid {
		held = now
	} else {
		held.origin, held.attempt = now.origin, now.attempt
	}
	s.hold(key, held)
	return held
}

// hold keeps what is known of a copy.
func (s unknownCopies) hold(key types.NamespacedName, held unknownCopy) {
	s.quarantine.hold(s.worker, key, held)
}

// release removes a copy that is known now, or gone.
func (s unknownCopies) release(key types.NamespacedName) { s.quarantine.release(s.worker, key) }

// otherAttempt is the highest attempt of unknown copies on other workers that may be the job of this origin, 0 if there
// is none.
func (s unknownCopies) otherAttempt(key types.NamespacedName, origin types.UID) int32 {
	return s.quarantine.registry.otherAttempt(key, origin, s.worker)
}

// refuse keeps why the decision on a copy is not carried out, and returns true if that has changed.
func (s unknownCopies) refuse(key types.NamespacedName, refusal string) bool {
	return s.quarantine.registry.refuse(s.worker, key, refusal)
}
