// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package yard

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/ports"
)

// handOver is how long a manager may take after a pause to see that it does not lead any more, and to end.
const handOver = time.Minute

// Managers keep a manager running, as its Deployment does. They start a manager again that has ended, for example
// because it could not renew its lease. Their methods are safe for concurrent use. On kind there is a real Deployment,
// and only the URLs are for use.
type Managers struct {
	yard *Yard
	kept sync.WaitGroup

	mu      sync.Mutex
	current *clusters.Process // under mu; nil: none is to run
	more    []string          // arguments of the next one; under mu
	version Version           // of the next one; under mu
	// health and metrics are addresses of the latest manager; under mu.
	health, metrics string
	// webhooks and gateway are the arguments of a manager that answers webhooks and serves the gateway. Only one manager at
	// a time can. Another manager tries again.
	webhooks, gateway []string
}

// startManagers starts a manager, and keeps one running until the yard stops.
func (y *Yard) startManagers(ctx context.Context) error {
	y.Managers = &Managers{yard: y, version: y.options.Version}
	if clusters.OnKind() {
		return y.deployManager(ctx)
	}
	if err := y.installHub(ctx); err != nil {
		return err
	}
	server, err := y.hubWebhooks()
	if err != nil {
		return err
	}
	if err := y.reserveGateway(); err != nil {
		return err
	}
	if err := y.Managers.Back(); err != nil {
		return err
	}
	y.Managers.kept.Go(y.Managers.keep)
	if server == nil {
		return nil
	}
	return applyHubWebhooks(ctx, y.Hub, server, y.options.Version)
}

// hubWebhooks reserves an address for the webhooks of managers, nil if there are to be none.
func (y *Yard) hubWebhooks() (*clusters.WebhookServer, error) {
	if !y.options.HubWebhooks {
		return nil, nil
	}
	server, err := y.Hub.NewWebhookServer("manager")
	if err != nil {
		return nil, err
	}
	y.Managers.webhooks = []string{
		"--webhook-bind-address=" + net.JoinHostPort(server.Host, strconv.Itoa(server.Port)), "--webhook-cert-dir=" + server.CertDir,
	}
	return server, nil
}

// applyHubWebhooks applies config/webhook-hub with the server in the place of the Service. The webhooks fail open, so
// tests wait for what they ask of them.
func applyHubWebhooks(ctx context.Context, hub *clusters.Cluster, server *clusters.WebhookServer, version Version) error {
	objects, err := clusters.ReadObjects(filepath.Join(version.Root, "config/webhook-hub"))
	if err != nil {
		return err
	}
	if err := clusters.WebhookURLs(server, objects...); err != nil {
		return err
	}
	return hub.ApplyObjects(ctx, objects...)
}

func (m *Managers) keep() {
	for {
		select {
		case <-m.yard.stopped:
			return
		case <-time.After(restartDelay):
		}
		m.mu.Lock()
		if m.current != nil {
			select {
			case <-m.current.Done():
				_ = m.start(context.Background()) // An error comes from the machine, so the start is tried again.
			default:
			}
		}
		m.mu.Unlock()
	}
}

// start starts a manager, which is the current one. The context limits only the start. The caller holds mu.
func (m *Managers) start(ctx context.Context) error {
	health, err := ports.Free()
	if err != nil {
		return err
	}
	metrics, err := ports.Free()
	if err != nil {
		return err
	}
	y := m.yard
	args := slices.Concat([]string{
		"--kubeconfig=" + y.managerKubeconfig, "--namespace=" + managerNamespace, "--v=1",
		"--health-probe-bind-address=" + health, "--metrics-bind-address=" + metrics, "--worker-probe-interval=2s",
	}, m.webhooks, m.gateway, y.options.Lease, y.options.ManagerArgs, m.more)
	process, err := y.Hub.Run(ctx, "manager", m.version.Program("manager"), args...)
	if err != nil {
		return err
	}
	m.current, m.health, m.metrics = process, health, metrics
	return nil
}

// HealthURL is the URL of the latest manager's probes, without a path.
func (m *Managers) HealthURL() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return "http://" + m.health
}

// MetricsURL is the URL of the latest manager's metrics.
func (m *Managers) MetricsURL() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return "https://" + m.metrics + "/metrics"
}

// PID is the process ID of the latest manager.
func (m *Managers) PID() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.current.PID()
}

// Use makes managers that start from now on be of a version. The manager that runs goes on.
func (m *Managers) Use(version Version) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.version = version
}

// Ended is closed when the present manager has ended.
func (m *Managers) Ended() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.current.Done()
}

// Kill ends the manager with SIGKILL, and starts another manager.
func (m *Managers) Kill() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.current.Kill(); err != nil {
		return err
	}
	return m.start(context.Background())
}

// Away ends the manager with SIGKILL. There is no manager until Back.
func (m *Managers) Away() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	current := m.current
	m.current = nil
	return current.Kill()
}

// Back starts a manager. The arguments override the arguments in the yard's options, for this manager and later
// managers.
func (m *Managers) Back(more ...string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.more = more
	return m.start(context.Background())
}

// Replace starts another manager beside the present one, and stops the present one when the other is ready, as a
// rolling update of the Deployment does.
func (m *Managers) Replace(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.current
	if err := m.start(ctx); err != nil {
		return err
	}
	if err := m.current.AwaitReady(ctx, m.health); err != nil {
		return err
	}
	return before.Stop()
}

// Pause stops the manager without ending it, and starts another manager. That manager leads when the first has not
// renewed its lease for long enough. resume lets the first manager continue, and waits until it has noticed that it
// does not lead any more, and has ended.
func (m *Managers) Pause() (resume func(context.Context) error, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	first := m.current
	if err := first.Signal(syscall.SIGSTOP); err != nil {
		return nil, err
	}
	resume = func(ctx context.Context) error {
		if err := first.Signal(syscall.SIGCONT); err != nil {
			return err
		}
		select {
		case <-first.Done():
			return nil
		case <-time.After(handOver):
			return first.Kill() // It waits for the lease, as any other would.
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return resume, m.start(context.Background())
}
