// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"

	trainerruntime "github.com/kubeflow/trainer/v2/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// NewRuntimes makes the runtime framework of the trainer module.
type NewRuntimes func(context.Context, client.Client, client.FieldIndexer) (map[string]trainerruntime.Runtime, error)

// Options configures the webhooks.
type Options struct {
	// NewRuntimes makes the runtime framework, by "Kind.group": NewRuntimes of controllers/worker/trainjob. It gets its
	// own client and indexer, so it does not disturb a controller of the same manager. Required.
	NewRuntimes NewRuntimes
	// Clock stamps runtime patches. nil: the real clock.
	Clock clock.PassiveClock
}
