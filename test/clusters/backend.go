// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"fmt"
	"os"
)

// newBackend returns the backend that $TRAINYARD_CLUSTERS names.
func newBackend(o Options) (backend, error) {
	switch kind := os.Getenv("TRAINYARD_CLUSTERS"); kind {
	case "", "process":
		return asBackend(newProcesses(o))
	case "kind":
		return asBackend(newKindCluster(o))
	default:
		return nil, fmt.Errorf("TRAINYARD_CLUSTERS=%q: want process or kind", kind)
	}
}

// asBackend keeps a nil pointer from becoming an interface that is not nil.
func asBackend[B backend](b B, err error) (backend, error) {
	if err != nil {
		return nil, err
	}
	return b, nil
}
