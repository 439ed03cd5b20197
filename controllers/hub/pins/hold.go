// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package pins

import (
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// holds are the pinned runtimes for which copies are being created, and those that are being deleted.
type holds struct {
	mu sync.Mutex
	// held counts the creations, and deleting has the UID of a runtime until no cache shows it. Both are under mu.
	held     map[types.NamespacedName]int
	deleting map[types.NamespacedName]types.UID
}

// Hold keeps a runtime until release is called. ok is false if it is being deleted.
func (h *holds) Hold(key types.NamespacedName) (release func(), ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, goes := h.deleting[key]; goes {
		return nil, false
	}
	h.held[key]++
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.held[key]--; h.held[key] == 0 {
			delete(h.held, key)
		}
	}, true
}

// begin notes that a runtime is being deleted. It returns false for a runtime that is held.
func (h *holds) begin(key types.NamespacedName, uid types.UID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held[key] > 0 {
		return false
	}
	h.deleting[key] = uid
	return true
}

// end notes that a runtime is not being deleted.
func (h *holds) end(key types.NamespacedName) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.deleting, key)
}

// settle ends the deletions in a namespace whose runtimes the cache does not show any more, or shows as being deleted.
func (h *holds) settle(namespace string, shown []metav1.PartialObjectMetadata) {
	live := map[types.UID]bool{}
	for i := range shown {
		if shown[i].DeletionTimestamp == nil {
			live[shown[i].UID] = true
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, uid := range h.deleting {
		if key.Namespace == namespace && !live[uid] {
			delete(h.deleting, key)
		}
	}
}
