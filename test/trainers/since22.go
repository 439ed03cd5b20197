// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !before22

package main

import (
	"context"

	"github.com/kubeflow/trainer/v2/pkg/runtime"
	"github.com/kubeflow/trainer/v2/pkg/runtime/core"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// newRuntimes makes the runtime framework of the release.
func newRuntimes(ctx context.Context, c client.Client, indexer client.FieldIndexer) (map[string]runtime.Runtime, error) {
	return core.New(ctx, c, indexer, nil)
}
