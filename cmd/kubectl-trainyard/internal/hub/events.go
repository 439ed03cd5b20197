// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Warnings returns the Events of type Warning about an object.
func (h *Hub) Warnings(ctx context.Context, about client.Object) ([]corev1.Event, error) {
	var events corev1.EventList
	err := h.List(ctx, &events, client.InNamespace(about.GetNamespace()),
		client.MatchingFields{"involvedObject.uid": string(about.GetUID()), "type": corev1.EventTypeWarning})
	if err != nil {
		return nil, h.explain("list Events", err)
	}
	return events.Items, nil
}
