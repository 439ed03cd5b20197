// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"

	"k8s.io/utils/clock"

	hubtraces "github.com/trainyard/trainyard/controllers/hub/traces"
	"github.com/trainyard/trainyard/internal/traces"
)

// addTraces exports the traces of jobs, if the environment says where to.
func (w *wiring) addTraces(ctx context.Context) error {
	exporter, err := traces.FromEnvironment(ctx, "trainyard-manager", w.log)
	if exporter == nil || err != nil {
		return err
	}
	return errors.Join(w.mgr.Add(exporter), w.mgr.Add(&hubtraces.Follower{Cache: w.mgr.GetCache(), Exporter: exporter, Clock: clock.RealClock{}}))
}
