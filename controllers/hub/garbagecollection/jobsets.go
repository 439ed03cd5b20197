// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/dispatch/judgement"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/records"
)

// leftoverTime is how long the worker's garbage collector has to delete the JobSet of a deleted finished copy. An API
// server that has restarted answers for a moment that there are no JobSets. A garbage collector that asks at that
// moment forgets the JobSets that it has to delete.
const leftoverTime = 20 * time.Second

// leftovers deletes the JobSets on one worker whose copy no longer exists.
type leftovers struct {
	here judgement.Worker
	hub  hubReader
	// jobSets are the worker's caches.
	jobSets client.Reader
	clock   clock.PassiveClock

	mu sync.Mutex
	// since has the time from which the copy was missing, by the JobSet's key. Under mu.
	since map[types.NamespacedName]time.Time
}

// wait returns how long the garbage collector still has for a JobSet.
func (l *leftovers) wait(key types.NamespacedName, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	since, known := l.since[key]
	if !known {
		if l.since == nil {
			l.since = map[types.NamespacedName]time.Time{}
		}
		since = now
		l.since[key] = now
	}
	return since.Add(leftoverTime).Sub(now)
}

// disconnected returns when to look at a key while the worker is not connected: later if its JobSet waits, else never.
func (l *leftovers) disconnected(key types.NamespacedName) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.since[key]; known {
		return leftoverTime
	}
	return 0
}

func (l *leftovers) forget(key types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.since, key)
}

// clear deletes the JobSet of a deleted finished copy if the worker's garbage collector has not deleted it. The
// finished Dispatch is the record that permits this: it names the UID of the copy.
func (l *leftovers) clear(ctx context.Context, worker workerClient, key types.NamespacedName) (time.Duration, error) {
	jobSet, owner, err := l.find(ctx, key)
	if err != nil || jobSet == nil {
		l.forget(key)
		return 0, err
	}
	if left := l.wait(key, l.clock.Now()); left > 0 {
		return left, nil
	}
	l.forget(key)
	existing, err := worker.Find(ctx, key)
	if err != nil || existing != nil && existing.GetUID() == owner {
		return 0, err // The cache will show it.
	}
	uid := jobSet.GetUID()
	background := client.PropagationPolicy(metav1.DeletePropagationBackground)
	err = worker.Delete(ctx, jobSet, background, client.Preconditions{UID: &uid})
	if client.IgnoreNotFound(err) != nil {
		failed := fmt.Errorf("delete JobSet %s, which a finished copy has left on worker %q: %w", key, worker.Name, err)
		if apierrors.IsForbidden(err) { // Another try would not help. "kubectl trainyard join" grants the permission.
			failed = reconcile.TerminalError(failed)
		}
		return 0, failed
	}
	log.FromContext(ctx).Info("Deleted JobSet that a finished copy has left", "uid", uid)
	return 0, nil
}

// find returns the JobSet of the finished copy that had this key, and the copy's UID. It returns nil if there is no
// such JobSet, and if the worker does not permit the hub to read JobSets.
func (l *leftovers) find(
	ctx context.Context, key types.NamespacedName,
) (*unstructured.Unstructured, types.UID, error) {
	jobSet := trainjobs.NewJobSet()
	if err := l.jobSets.Get(ctx, key, jobSet); err != nil {
		return nil, "", nil //nolint:nilerr // It is gone, or not to be read.
	}
	owner := metav1.GetControllerOfNoCopy(jobSet)
	if owner == nil || owner.Kind != trainjobs.GroupVersionKind.Kind {
		return nil, "", nil
	}
	d, err := records.Dispatch(ctx, l.hub, key)
	if d == nil || err != nil {
		return nil, "", err
	}
	here := d.Spec.Cluster == l.here.Name && (d.Spec.ClusterID == "" || d.Spec.ClusterID == l.here.ClusterID)
	if !here || record.AttemptOf(d) != record.Finished || d.RecordedCopy() != owner.UID {
		return nil, "", nil
	}
	return jobSet, owner.UID, nil
}
