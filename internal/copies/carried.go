// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package copies

import (
	"slices"
	"strings"

	"github.com/trainyard/trainyard/api/kueues"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// ofHubKueue are labels and annotations that the hub's Kueue writes. The worker's Kueue would look for the Workload that
// they name, or wait for whoever gates the admission on the hub.
var ofHubKueue = []string{kueues.KeyPrebuilt, kueues.KeyOrigin, kueues.KeyJobUID, kueues.KeyGatedBy}

// Carried returns the labels or annotations of a hub's object that its copy, or the same runtime or dependency on a worker, gets. What
// tools track the hub's object by stays on the hub: the worker's tools would delete the copy. So do names under
// trainyard.dev/: the user writes them, and the worker's agent obeys them. A TTL would be wrong on the worker, because a
// copy that is gone before the hub has seen its end is taken for lost.
func Carried(all map[string]string, unsent func(key string) bool) map[string]string {
	kept := map[string]string{}
	for key, value := range all {
		stays := strings.HasPrefix(key, v1alpha1.KeyPrefix) || slices.Contains(ofHubKueue, key) || v1alpha1.IsTrackingName(key)
		if stays = stays || unsent != nil && unsent(key); !stays {
			kept[key] = value
		}
	}
	return kept
}
