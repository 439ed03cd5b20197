// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
)

// awaitInterval is how often AwaitAPIs asks for missing CRDs. These requests end with the wait.
const awaitInterval = 2 * time.Second

// AwaitAPIs returns nil when the cluster has all required APIs, or when ctx ends. While a CRD is missing, the process
// is alive and not ready: the log and /readyz name the CRD and the command that installs it. A process that ended
// instead would be started again and again, with ever longer pauses.
func (o *Options) AwaitAPIs(
	ctx context.Context, config *rest.Config, log logr.Logger, requirements ...Requirement,
) error {
	missing, err := lacks(config, requirements)
	if err != nil || missing == "" {
		return err
	}
	probes, err := o.startProbes(ctx, log)
	if err != nil {
		return err
	}
	defer probes.stop()
	ticker := time.NewTicker(awaitInterval)
	defer ticker.Stop()
	for missing != "" {
		if probes.explain(missing) {
			log.Info("Waiting for CustomResourceDefinitions", "reason", missing)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		// An API server that restarts is no reason to end.
		if missing, err = lacks(config, requirements); err != nil {
			missing = err.Error()
		}
	}
	log.Info("The cluster has all CustomResourceDefinitions that this process needs")
	return nil
}

// waitingProbes answer probes until the controller manager does. Any goroutine may read the reason.
type waitingProbes struct {
	server *http.Server
	reason atomic.Pointer[string]
}

// startProbes listens at the address of the probes, if there is one.
func (o *Options) startProbes(ctx context.Context, log logr.Logger) (*waitingProbes, error) {
	probes := &waitingProbes{}
	if o.HealthAddress == "0" {
		return probes, nil
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", o.HealthAddress)
	if err != nil {
		return nil, fmt.Errorf("listen at --health-probe-bind-address %q: %w", o.HealthAddress, err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, *probes.reason.Load(), http.StatusServiceUnavailable)
	})
	reason := "the process is starting"
	probes.reason.Store(&reason)
	probes.server = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		if err := probes.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error(err, "Probes are no longer answered")
		}
	}()
	return probes, nil
}

// explain sets the answer of /readyz. It returns whether the answer is new.
func (p *waitingProbes) explain(reason string) bool {
	old := p.reason.Swap(&reason)
	return old == nil || *old != reason
}

// stop frees the address for the controller manager.
func (p *waitingProbes) stop() {
	if p.server != nil {
		_ = p.server.Close()
	}
}
