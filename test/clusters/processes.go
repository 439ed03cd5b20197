// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/trainyard/trainyard/test/ports"
)

// processes is a cluster of local processes.
type processes struct {
	options  Options
	programs programs
	ca       *authority
	port     *ports.Reservation
	lock     *os.File // of the directory

	mu      sync.Mutex
	running []*Process // in the order in which they were started; under mu
	api     *Process   // the API server that was started last; under mu
}

// newProcesses makes the directory, the port and the credentials of a cluster.
func newProcesses(o Options) (*processes, error) {
	found, err := findPrograms(o.BinDir, o.Release)
	if err != nil {
		return nil, err
	}
	p := &processes{options: o, programs: found}
	if err := p.prepare(); err != nil {
		return nil, errors.Join(err, p.release())
	}
	return p, nil
}

func (p *processes) prepare() (err error) {
	if p.lock, err = lockDir(p.options.Dir); err != nil {
		return err
	}
	for _, old := range []string{etcdDir, "pki", "webhooks", "logs", auditLogFile} {
		if err := os.RemoveAll(filepath.Join(p.options.Dir, old)); err != nil {
			return err
		}
	}
	if p.port, err = ports.Reserve(loopback); err != nil {
		return err
	}
	if p.ca, err = newAuthority(p.options.Name); err != nil {
		return fmt.Errorf("make certificate authority: %w", err)
	}
	if err := p.ca.writePKI(filepath.Join(p.options.Dir, "pki")); err != nil {
		return fmt.Errorf("write credentials: %w", err)
	}
	return nil
}

// release gives back what prepare has taken.
func (p *processes) release() error {
	var errs []error
	if p.port != nil {
		errs = append(errs, p.port.Release())
	}
	if p.lock != nil {
		errs = append(errs, p.lock.Close())
	}
	return errors.Join(errs...)
}

// server is the URL of the API server.
func (p *processes) server() string {
	return fmt.Sprintf("https://%s:%d", loopback, p.port.Port)
}

// startControlPlane starts etcd and the API server and writes the admin's kubeconfig.
func (p *processes) startControlPlane(ctx context.Context, kubeconfig string) error {
	if err := p.writeKubeconfig(kubeconfig, identity{user: "admin", group: "system:masters"}); err != nil {
		return err
	}
	if p.options.Audit {
		if err := writeFile(filepath.Join(p.options.Dir, auditPolicyFile), []byte(auditPolicy)); err != nil {
			return err
		}
	}
	if err := p.copyBaseline(ctx); err != nil {
		return err
	}
	if err := p.startEtcd(ctx); err != nil {
		return err
	}
	return p.startAPIServer(ctx)
}

// startEtcd starts etcd and waits until it listens. An API server that finds
// nobody listening would try again only a second later.
func (p *processes) startEtcd(ctx context.Context) error {
	socket := filepath.Join(p.options.Dir, etcdSocketFile)
	if err := os.RemoveAll(socket); err != nil {
		return err
	}
	if _, err := p.startPart("etcd", etcdArgs()); err != nil {
		return err
	}
	return waitFor(ctx, p, "etcd", func(context.Context) error {
		_, err := os.Stat(socket)
		return err
	})
}

func (p *processes) startAPIServer(_ context.Context) error {
	args := append(p.programs.apiServerArgs(p.options), apiServerArgs(p.options, p.port.Port)...)
	api, err := p.startPart("kube-apiserver", args)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.api = api
	return nil
}

// startControllers starts the controller manager and the scheduler, each with
// credentials of its own, so that audit logs tell them apart.
func (p *processes) startControllers() error {
	if p.options.ControllerManager || p.options.GarbageCollector {
		if err := p.startClient("kube-controller-manager", controllerManagerArgs(p.options)); err != nil {
			return err
		}
	}
	if p.options.Scheduler {
		if err := writeFile(filepath.Join(p.options.Dir, schedulerConfigFile), []byte(schedulerConfig)); err != nil {
			return err
		}
		return p.startClient("kube-scheduler", schedulerArgs(p.options))
	}
	return nil
}

// startClient starts a part of the control plane that uses the API server.
func (p *processes) startClient(part string, args []string) error {
	path := filepath.Join(p.options.Dir, componentKubeconfig(part))
	// The user is upstream's, the group is not: upstream's RBAC for these parts needs a service account for each
	// controller, and these take longer to start.
	if err := p.writeKubeconfig(path, identity{user: "system:" + part, group: "system:masters"}); err != nil {
		return err
	}
	_, err := p.startPart(part, args)
	return err
}

func (p *processes) startPart(part string, args []string) (*Process, error) {
	path, args := p.programs.command(part, args)
	c := command{name: part, dir: p.options.Dir, path: path, args: args, env: lessGarbageCollection(p.options)}
	if p.programs.release != nil {
		c.runner = runner(p.options.BinDir)
	}
	return p.run(c)
}

// run starts a process and keeps it, to be ended with the cluster.
func (p *processes) run(c command) (*Process, error) {
	process, err := startProcess(c)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = append(p.running, process)
	return process, nil
}

func (p *processes) parts() []*Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.running)
}

func lastNamed(all []*Process, name string) *Process {
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].Name == name {
			return all[i]
		}
	}
	return nil
}

func (p *processes) apiServer() *Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.api
}

// exited returns the first of the processes that has ended although nobody ended it.
func (p *processes) exited() *Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, process := range p.running {
		if process.hasEnded() {
			return process
		}
	}
	return nil
}

// killPart also forgets the process, so that its end is no error.
func (p *processes) killPart(name string) error {
	p.mu.Lock()
	part := lastNamed(p.running, name)
	p.running = slices.DeleteFunc(p.running, func(r *Process) bool { return r == part })
	p.mu.Unlock()
	if part == nil {
		return fmt.Errorf("kill %s: it does not run", name)
	}
	return part.Kill()
}

func (p *processes) killAPIServer() error { return p.killPart("kube-apiserver") }

func (p *processes) hostAddress() (string, error) { return loopback, nil }

func (p *processes) signalAPIServer(s syscall.Signal) error { return p.apiServer().Signal(s) }

// stop ends all parts of the control plane, the last started first. The cluster has already stopped what Run has
// started. Only etcd has data to lose.
func (p *processes) stop() error {
	p.mu.Lock()
	running := p.running
	p.running = nil
	p.mu.Unlock()
	var errs []error
	for i := len(running) - 1; i >= 0; i-- {
		if running[i].Name == "etcd" {
			errs = append(errs, running[i].Stop())
		} else {
			errs = append(errs, running[i].Kill())
		}
	}
	return errors.Join(append(errs, p.release())...)
}
