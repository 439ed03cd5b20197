// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package explorer

import (
	"os"
	"runtime/debug"
	"testing"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	debug.SetGCPercent(800) // The worlds are small, and short-lived.
	os.Exit(m.Run())
}
