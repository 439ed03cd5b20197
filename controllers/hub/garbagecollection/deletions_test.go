// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/dispatch/judgement"
	"github.com/trainyard/trainyard/internal/copies"
	"github.com/trainyard/trainyard/internal/records"
)

// deleter counts the deletions that a worker accepts.
type deleter struct {
	client.Client
	accepted int
}

func (d *deleter) Delete(context.Context, client.Object, ...client.DeleteOption) error {
	d.accepted++
	return nil
}

// TestDeletionIsSentOnce: the cache shows a copy for a moment as it was before its deletion, and other events bring its
// key meanwhile.
func TestDeletionIsSentOnce(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Now())
	c := NewCollector(Options{Cluster: "west", Quarantine: NewQuarantine(QuarantineOptions{Clock: clock}), Clock: clock})
	worker := &deleter{}
	key := types.NamespacedName{Namespace: "n", Name: "job"}
	look := func(uid types.UID, want int, reason string) {
		t.Helper()
		copy := trainjobs.New()
		copy.SetNamespace(key.Namespace)
		copy.SetName(key.Name)
		copy.SetUID(uid)
		later, err := c.Collect(t.Context(), copies.Worker{Client: worker, Name: "west"}, key, copy, judgement.Seen{}, judgement.Outdated)
		if later != 0 || err != nil || worker.accepted != want {
			t.Errorf("%d deletions were sent (%s, %v), want %d: %s", worker.accepted, later, err, want, reason)
		}
	}
	look("a", 1, "it is the first look")
	look("a", 1, "the cache lags")
	look("b", 2, "it is another copy of the name")
	clock.Step(records.StartLag + time.Second)
	look("b", 3, "no cache lags so long: the worker may have been restored")
}
