// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
)

// Log formats.
const (
	LogText = "text"
	LogJSON = "json"
)

// syncCheckTimeout is how long a readiness check waits for the caches. A kubelet waits for a second by default.
const syncCheckTimeout = 500 * time.Millisecond

// SetUpLog logs to standard error, also for controller-runtime and client-go.
func (o *Options) SetUpLog() logr.Logger {
	options := &slog.HandlerOptions{Level: slog.Level(-o.LogVerbosity)}
	var handler slog.Handler = slog.NewTextHandler(os.Stderr, options)
	if o.LogFormat == LogJSON {
		handler = slog.NewJSONHandler(os.Stderr, options)
	}
	log := logr.FromSlogHandler(handler)
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	return log
}

// Run answers probes and runs the manager until ctx ends. Then it returns nil.
func Run(ctx context.Context, mgr ctrl.Manager) error {
	// Caches fill before the process holds the lease, so a standby replica is ready too.
	synced := func(request *http.Request) error {
		ctx, cancel := context.WithTimeout(request.Context(), syncCheckTimeout)
		defer cancel()
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return errors.New("caches are not filled yet")
		}
		return nil
	}
	if err := errors.Join(mgr.AddHealthzCheck("healthz", healthz.Ping), mgr.AddReadyzCheck("readyz", synced)); err != nil {
		return fmt.Errorf("add health checks: %w", err)
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("run: %w", err)
	}
	return nil
}
