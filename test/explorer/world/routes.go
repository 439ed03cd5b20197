// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/executionlease/protocol"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/explorer/memory"
)

// This file says which event wakes which controller, as the watches of the controllers do.

func (m *Manager) workerSeen(change memory.Change) {
	m.workers.Add(change.Key)
	m.failover.Add(change.Key)
	for _, c := range m.connections {
		if !c.connected() {
			m.failover.Add(c.key())
		}
	}
	if change.Before == nil {
		m.report.Add(change.Key)
	}
	if change.Before != nil && change.After != nil && !equality.Semantic.DeepEqual(change.Before.Object.GetAnnotations(), change.After.Object.GetAnnotations()) {
		for _, c := range m.connections {
			for _, copy := range c.known() {
				m.enqueue(c.worker.name, copy)
			}
		}
	}
	m.wakeAll()
}

// known are the copies that the cache of a worker shows.
func (c *connection) known() []types.NamespacedName {
	if c.client == nil {
		return nil
	}
	var keys []types.NamespacedName
	for _, version := range c.client.Views[memory.TrainJob].List() {
		keys = append(keys, client.ObjectKeyFromObject(version.Object))
	}
	return keys
}

func (m *Manager) jobSeen(change memory.Change) {
	before, after := change.Before, change.After
	if after != nil && trainjobs.Terminal(after.Object.(*unstructured.Unstructured)) != nil {
		m.lookAgain(change.Key)
	}
	if before != nil && after != nil && before.Object.GetGeneration() == after.Object.GetGeneration() &&
		before.Object.GetUID() == after.Object.GetUID() &&
		(before.Object.GetDeletionTimestamp() == nil) == (after.Object.GetDeletionTimestamp() == nil) {
		return // Its status is our own doing.
	}
	m.placement.Add(change.Key)
	m.lookAgain(change.Key)
	version := m.hub.Views[memory.Dispatch]
	if version == nil || before == nil {
		return
	}
	if d := version.Get(change.Key); d != nil {
		m.dispatched(d.Object.(*v1alpha1.Dispatch))
		m.lost(d.Object.(*v1alpha1.Dispatch))
	}
}

func (m *Manager) dispatchSeen(change memory.Change) {
	m.lookAgain(change.Key)
	for _, version := range []*memory.Version{change.Before, change.After} {
		if version == nil {
			continue
		}
		d := version.Object.(*v1alpha1.Dispatch)
		m.dispatched(d)
		m.lost(d)
		if version == change.Before && (change.After == nil || change.After.Object.GetUID() != d.UID) {
			m.placer.lose(d)
			m.placement.Add(change.Key)
		}
		if version == change.After && (d.Spec.Cluster == "" || d.DeletionTimestamp != nil || d.AttemptEnded()) {
			m.placement.Add(change.Key)
		}
	}
}

// dispatched brings a Dispatch to the controllers of its worker.
func (m *Manager) dispatched(d *v1alpha1.Dispatch) {
	m.enqueue(d.Spec.Cluster, client.ObjectKeyFromObject(d))
}

// lost brings the worker of a Dispatch to failover, if that is away.
func (m *Manager) lost(d *v1alpha1.Dispatch) {
	for _, c := range m.connections {
		if c.worker.name == d.Spec.Cluster && !c.connected() {
			m.failover.Add(c.key())
		}
	}
}

func (m *Manager) tombstoneSeen(change memory.Change) {
	if change.Before != nil || change.After == nil {
		return
	}
	tombstone := change.After.Object.(*v1alpha1.Tombstone)
	for _, k := range m.world.workers {
		if k.id == tombstone.Spec.ClusterID {
			m.enqueue(k.name, change.Key)
		}
	}
}

// lookAgain wakes the copies of a name on all workers, and the Tombstones of their cluster.
func (m *Manager) lookAgain(key types.NamespacedName) {
	for _, c := range m.connections {
		m.enqueue(c.worker.name, key)
	}
	if tombstones := m.hub.Views[memory.Tombstone]; tombstones != nil {
		for _, version := range tombstones.List() {
			m.tombstoneSeen(memory.Change{Key: client.ObjectKeyFromObject(version.Object), After: version})
		}
	}
}

// enqueueLive brings the controllers of a worker its jobs and copies.
func (m *Manager) enqueueLive(c *connection) {
	for _, version := range m.hub.Views[memory.Dispatch].List() {
		if d := version.Object.(*v1alpha1.Dispatch); d.Spec.Cluster == c.worker.name {
			m.dispatched(d)
		}
	}
	for _, key := range c.known() {
		m.enqueue(c.worker.name, key)
	}
}

// wake has a job placed, or all if the key is empty.
func (m *Manager) wake(key types.NamespacedName) {
	if key.Name == "" {
		m.wakeAll()
		for _, c := range m.connections {
			m.report.addAfter(c.key(), time.Second)
		}
		return
	}
	m.placement.Add(key)
	for _, c := range m.connections {
		m.report.addAfter(c.key(), time.Second)
	}
}

// wakeAll has all jobs looked at that wait.
func (m *Manager) wakeAll() {
	jobs := m.hub.Views[memory.TrainJob]
	if jobs == nil {
		return
	}
	for _, version := range jobs.List() {
		m.placement.Add(client.ObjectKeyFromObject(version.Object))
	}
}

// register writes the state of the connection into the status of a WorkerCluster.
func (m *Manager) register(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	worker := &v1alpha1.WorkerCluster{}
	if err := m.hub.Get(ctx, key, worker); err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	updated := worker.DeepCopy()
	for _, c := range m.connections {
		if string(c.worker.name) == worker.Name {
			m.show(c, updated)
		}
	}
	if equality.Semantic.DeepEqual(updated.Status, worker.Status) {
		return probeInterval, nil
	}
	err := m.hub.Status().Patch(ctx, updated, client.MergeFromWithOptions(worker, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return 0, fmt.Errorf("patch status of WorkerCluster %q: %w", worker.Name, err)
	}
	return probeInterval, nil
}

// show is what package workercluster says of a connection and an agent.
func (m *Manager) show(c *connection, worker *v1alpha1.WorkerCluster) {
	status, now := &worker.Status, metav1.NewTime(m.clock.Now())
	set := func(kind, reason string, value bool) {
		condition := metav1.Condition{
			Type: kind, Status: metav1.ConditionFalse, Reason: reason, ObservedGeneration: worker.Generation, LastTransitionTime: now,
		}
		if value {
			condition.Status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&status.Conditions, condition)
	}
	switch c.status.State {
	case remote.Connected:
		set(v1alpha1.WorkerClusterReady, v1alpha1.ReasonConnected, true)
		status.LastSeenTime = nil
	case remote.Unreachable:
		set(v1alpha1.WorkerClusterReady, v1alpha1.ReasonUnreachable, false)
		if status.LastSeenTime == nil && !c.status.LastSeen.IsZero() {
			seen := metav1.NewTime(c.status.LastSeen)
			status.LastSeenTime = &seen
		}
	default:
		set(v1alpha1.WorkerClusterReady, v1alpha1.ReasonConnecting, false)
	}
	if c.status.State != remote.Connected {
		return
	}
	switch state, _ := m.answerer.Agents().Agent(c.worker.name, c.worker.id); state {
	case protocol.AgentAlive:
		set(v1alpha1.WorkerClusterAgentReady, v1alpha1.ReasonAgentAnswers, true)
	case protocol.AgentUnknown:
	default:
		set(v1alpha1.WorkerClusterAgentReady, v1alpha1.ReasonAgentSilent, false)
	}
}
