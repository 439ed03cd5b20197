// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/judgement"
	"github.com/trainyard/trainyard/internal/copies"
	"github.com/trainyard/trainyard/internal/hubcache"
)

const sweepPage = 500

// Sweep deletes the outdated copies on a worker before anything is created there: copies of attempts that have ended,
// and copies that Tombstones name. It asks the worker's API server, because after a time without connection the caches
// may lack copies. The quarantine holds the copies that the hub does not know, and the reconciler looks at them.
//
// If the worker refuses the sweep, its status says why until a sweep succeeds, and refused is true.
func Sweep(ctx context.Context, o Options) (refused bool, err error) {
	s := &sweep{
		here: o.here(), hubID: o.HubID, hub: hubReader{o.Hub}, known: o.unknownCopies(), found: map[types.NamespacedName]unknownCopy{},
	}
	err = s.run(ctx, o.Worker)
	o.Quarantine.sweepEnded(o.Cluster, err)
	_, refused = o.Quarantine.SweepRefused(o.Cluster)
	return refused, err
}

// sweep is one sweep of one worker.
type sweep struct {
	here  judgement.Worker
	hubID string
	// hub reads from the hub's caches.
	hub   hubReader
	known unknownCopies
	// found has the unknown copies that this sweep has found so far.
	found map[types.NamespacedName]unknownCopy
}

func (s *sweep) run(ctx context.Context, connection copies.Connection) error {
	worker, err := connect(s.here.Name, connection)
	if err != nil {
		return err
	}
	reader, err := connection.APIReader()
	if err != nil {
		return err
	}
	quarantine := s.known.quarantine
	if err := quarantine.recall(ctx, s.here.Name); err != nil { // The findings of an earlier process stay.
		return err
	}
	for next := ""; ; {
		listed := &metav1.PartialObjectMetadataList{}
		listed.SetGroupVersionKind(trainjobs.NewList().GroupVersionKind())
		err := reader.List(ctx, listed, client.MatchingLabels{v1alpha1.LabelHub: s.hubID}, client.Limit(sweepPage), client.Continue(next))
		if err != nil {
			return fmt.Errorf("list copies on worker %q: %w", s.here.Name, err)
		}
		for i := range listed.Items {
			if err := s.visit(ctx, worker, &listed.Items[i]); err != nil {
				return err
			}
		}
		if next = listed.Continue; next == "" {
			break
		}
	}
	quarantine.swept(s.here.Name, s.found)
	return s.enqueueTombstones(ctx)
}

// visit deletes one copy if it is outdated, and adds it to the unknown copies if the hub has no record of it.
func (s *sweep) visit(ctx context.Context, worker workerClient, copy *metav1.PartialObjectMetadata) error {
	seen, err := s.hub.see(hubcache.Patiently(ctx), s.here, copy)
	if hubcache.Await(ctx, err) { // The cache reads the Dispatches of finished jobs last. Asking for each would take longer.
		seen, err = s.hub.see(ctx, s.here, copy)
	}
	if err != nil {
		return err
	}
	copy.SetGroupVersionKind(trainjobs.GroupVersionKind) // The items of a list have no kind.
	switch judgement.Of(seen).Copy {
	case judgement.Outdated:
		return worker.deleteCopy(ctx, copy, "outdated")
	case judgement.Unknown, judgement.Orphaned, judgement.Adoptable, judgement.Postponed:
		s.found[client.ObjectKeyFromObject(copy)] = s.known.newCopy(copy)
	case judgement.Gone, judgement.Needed, judgement.Retained:
	}
	return nil
}

// enqueueTombstones enqueues all Tombstones of the cluster, also Tombstones without a copy.
func (s *sweep) enqueueTombstones(ctx context.Context) error {
	var tombstones v1alpha1.TombstoneList
	if err := s.hub.List(ctx, &tombstones, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list Tombstones: %w", err)
	}
	for i := range tombstones.Items {
		if tombstones.Items[i].Spec.ClusterID == s.here.ClusterID {
			s.known.quarantine.Enqueue(s.here.Name, keyOfTombstone(&tombstones.Items[i]))
		}
	}
	return nil
}
