// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workercluster

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/remote"
)

// watchOf returns the watch of a worker. The caller holds mu.
func (r *Reconciler) watchOf(name v1alpha1.ClusterName) *watch {
	if r.watched == nil {
		r.watched = map[v1alpha1.ClusterName]*watch{}
	}
	w := r.watched[name]
	if w == nil {
		w = &watch{}
		r.watched[name] = w
	}
	return w
}

// watchFile watches the worker's kubeconfig file, if it has one, in place of the file before.
func (r *Reconciler) watchFile(name v1alpha1.ClusterName, path string) {
	r.mu.Lock()
	w := r.watchOf(name)
	before := w.file
	w.file = path
	stillUsed := false
	for _, other := range r.watched {
		stillUsed = stillUsed || other.file == before
	}
	r.mu.Unlock()
	if before != "" && !stillUsed {
		r.Files.Remove(before)
	}
	if path != "" {
		r.Files.Add(path)
	}
}

func (r *Reconciler) watchInventory(name v1alpha1.ClusterName, cluster *remote.Cluster) {
	r.mu.Lock()
	w := r.watchOf(name)
	if w.cluster == cluster {
		r.mu.Unlock()
		return
	}
	cancel := w.cancelInventory
	w.cluster = cluster
	w.cancelInventory = cluster.Inventory().Subscribe(func() { r.enqueueLazily(name) })
	r.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

// disconnect ends everything that this controller does for a worker.
func (r *Reconciler) disconnect(name v1alpha1.ClusterName) {
	r.Members.Leave(name)
	r.watchFile(name, "")
	r.mu.Lock()
	cancel := r.watchOf(name).cancelInventory
	delete(r.watched, name)
	r.mu.Unlock()
	if cancel != nil {
		cancel()
	}
	r.Fleet.Remove(name)
}

// leave takes a worker out of the per-worker controllers.
func (r *Reconciler) leave(name v1alpha1.ClusterName) {
	r.Members.Leave(name)
	r.setJoined(name, membership{})
}

func (r *Reconciler) joined(name v1alpha1.ClusterName) membership {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.watchOf(name).joined
}

func (r *Reconciler) setJoined(name v1alpha1.ClusterName, joined membership) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watchOf(name).joined = joined
}

func (r *Reconciler) pinned(name v1alpha1.ClusterName, uid types.UID) types.UID {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.watchOf(name); w.pinnedFor == uid {
		return w.pinned
	}
	return ""
}

func (r *Reconciler) setPinned(name v1alpha1.ClusterName, uid, id types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.watchOf(name)
	w.pinned, w.pinnedFor = id, uid
}

// capacityDue returns how long until capacity may be written again, zero if now.
func (r *Reconciler) capacityDue(name v1alpha1.ClusterName, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	written := r.watchOf(name).capacityWritten
	if written.IsZero() {
		return 0
	}
	return max(0, r.CapacityInterval-now.Sub(written))
}

func (r *Reconciler) setCapacityWritten(name v1alpha1.ClusterName, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watchOf(name).capacityWritten = now
}
