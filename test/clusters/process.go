// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/trainyard/trainyard/test/ports"
)

const (
	// stopGrace is how long Stop waits after SIGTERM before it kills.
	stopGrace = 15 * time.Second
	// readyPoll is how often a process that starts is asked whether it is ready.
	readyPoll = 50 * time.Millisecond
)

// Process is a program that runs beside a cluster. It ends when the cluster or this process ends, in whatever way.
type Process struct {
	// Name is the name that was given to Run.
	Name string
	// LogPath is the file with its standard output and error. Another run under the same name appends to it.
	LogPath string

	cmd   *exec.Cmd
	alive io.Closer // write end of the child's standard input
	done  chan struct{}
	err   error // of cmd.Wait; read after done is closed
}

// command is what startProcess starts.
type command struct {
	name   string
	dir    string // working directory, and where the log goes: logs/<name>.log
	path   string
	args   []string
	env    []string // added to this process's
	runner string   // the controlplane binary, if there is one and path is not it
}

func startProcess(c command) (*Process, error) {
	p := &Process{Name: c.name, LogPath: filepath.Join(c.dir, "logs", c.name+".log"), done: make(chan struct{})}
	path, args := c.path, c.args
	if !selfEnding && c.runner != "" {
		path, args = c.runner, append([]string{"run", "--", c.path}, c.args...)
	}
	p.cmd = exec.Command(path, args...)
	p.cmd.Dir = c.dir
	p.cmd.Env = append(append(os.Environ(), "TRAINYARD_END_WITH_STDIN=1"), c.env...)
	if err := p.start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.name, err)
	}
	return p, nil
}

func (p *Process) start() error {
	if err := os.MkdirAll(filepath.Dir(p.LogPath), 0o750); err != nil {
		return err
	}
	log, err := os.OpenFile(p.LogPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	stdin, alive, err := os.Pipe()
	if err != nil {
		return errors.Join(err, log.Close())
	}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr, p.alive = stdin, log, log, alive
	err = spawn(p.cmd)
	// The child has its own copies.
	err = errors.Join(err, stdin.Close(), log.Close())
	if err != nil {
		return errors.Join(err, alive.Close())
	}
	go p.wait()
	return nil
}

func (p *Process) wait() {
	p.err = p.cmd.Wait()
	_ = p.alive.Close()
	close(p.done)
}

// PID returns the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits for the end. It returns nil for exit code 0, otherwise an *exec.ExitError, or ctx's error if ctx ends
// first.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return fmt.Errorf("wait for %s: %w", p.Name, ctx.Err())
	}
}

// AwaitReady returns when the process answers readiness probes at an address with success.
func (p *Process) AwaitReady(ctx context.Context, address string) error {
	for ports.Ready(ctx, address) != nil {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s to be ready, see %s: %w", p.Name, p.LogPath, ctx.Err())
		case <-p.done:
			return fmt.Errorf("wait for %s to be ready: %w", p.Name, p.Ended())
		case <-time.After(readyPoll):
		}
	}
	return nil
}

// Signal sends a signal. After SIGSTOP it waits until the process has stopped. A process that has ended is no error.
func (p *Process) Signal(s os.Signal) error {
	err := p.cmd.Process.Signal(s)
	if err == nil && s == syscall.SIGSTOP {
		err = awaitStop(p.PID())
	}
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", p.Name, err)
	}
	return nil
}

// Kill sends SIGKILL and waits for the end.
func (p *Process) Kill() error {
	if err := p.Signal(os.Kill); err != nil {
		return err
	}
	<-p.done
	return nil
}

// Stop sends SIGTERM and waits for the end. After 15 s it sends SIGKILL. A process that ends with an exit code is no
// error: Wait returns that error.
func (p *Process) Stop() error {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	timer := time.NewTimer(stopGrace)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
		return p.Kill()
	}
}

func (p *Process) hasEnded() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Ended describes the end of a process that should be running, with the last lines of its log.
func (p *Process) Ended() error {
	return fmt.Errorf("%s has ended (%s); the end of %s:\n%s", p.Name, p.cmd.ProcessState, p.LogPath, tail(p.LogPath))
}

// Panicked returns an error with the panic that stands in the log, if there is one, of this run or an earlier one under
// the same name.
func (p *Process) Panicked() error {
	log, err := os.ReadFile(p.LogPath)
	if err != nil {
		return fmt.Errorf("read the log of %s: %w", p.Name, err)
	}
	found := goPanic.FindIndex(log)
	if found == nil {
		return nil
	}
	return fmt.Errorf("%s has panicked, see %s:\n%s", p.Name, p.LogPath, log[found[0]:min(len(log), found[0]+2048)])
}

// goPanic is what the runtime of Go writes before a program ends because of a panic, or of a fault like a concurrent
// write.
var goPanic = regexp.MustCompile(`(?m)^(panic|fatal error): `)

// tail returns the last 2 KiB of a file.
func tail(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = f.Close() }()
	if size, err := f.Seek(0, io.SeekEnd); err == nil {
		_, _ = f.Seek(max(0, size-2048), io.SeekStart)
	}
	data, err := io.ReadAll(f)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// Run runs a program beside the cluster, in Dir, with KUBECONFIG set to the admin's kubeconfig. A program without a
// slash is searched in the options' BinDir, and then in PATH. Stop ends the program before the cluster. The context
// limits nothing after Run has returned.
func (c *Cluster) Run(ctx context.Context, name, program string, args ...string) (*Process, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("run %s: %w", name, err)
	}
	path, err := c.lookPath(program)
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", name, err)
	}
	process, err := startProcess(command{
		name:   name,
		dir:    c.Dir,
		path:   path,
		args:   args,
		env:    []string{"KUBECONFIG=" + c.KubeconfigPath},
		runner: runner(c.options.BinDir),
	})
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.beside = append(c.beside, process)
	return process, nil
}

// Process returns the latest process of a name. Run has started it, or it is a part of the cluster: etcd,
// kube-apiserver, kube-controller-manager, kube-scheduler, jobset-manager, kwok. It returns nil if there is none. For
// the API server use KillAPIServer and similar methods: they know that its end is intended.
func (c *Cluster) Process(name string) *Process {
	return lastNamed(c.started(), name)
}

// Processes returns the processes that run: the parts of the cluster, and what Run has started. On kind the parts are
// not among them.
func (c *Cluster) Processes() []*Process {
	return slices.DeleteFunc(c.started(), (*Process).hasEnded)
}

// started returns the parts of the cluster, and then what Run has started.
func (c *Cluster) started() []*Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append(c.backend.parts(), c.beside...)
}

func (c *Cluster) lookPath(program string) (string, error) {
	if strings.ContainsRune(program, filepath.Separator) {
		return filepath.Abs(program)
	}
	if path, err := binary(c.options.BinDir, program); err == nil {
		return path, nil
	}
	return exec.LookPath(program)
}

// Kubectl runs kubectl with the admin's kubeconfig, and returns its standard output. The error has its standard error.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) ([]byte, error) {
	path, err := kubectl(c.options.BinDir)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.KubeconfigPath)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return out, fmt.Errorf("kubectl %s on cluster %q: %w: %s", strings.Join(args, " "), c.Name, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}

// Metrics returns the API server's metrics in Prometheus' text format. apiserver_request_total counts all requests by
// verb, resource, subresource and code. AuditLog also has the users.
func (c *Cluster) Metrics(ctx context.Context) ([]byte, error) {
	data, err := c.kubernetes.CoreV1().RESTClient().Get().AbsPath("/metrics").Do(ctx).Raw()
	if err != nil {
		return nil, fmt.Errorf("read metrics of cluster %q: %w", c.Name, err)
	}
	return data, nil
}

// AuditLog returns the path of the API server's audit log. The log has a line of JSON for each answered request (an
// audit.k8s.io/v1 Event without bodies), with user, user agent, verb, object and code. It is written only with
// Options.Audit. A long-running request, such as a watch, is logged when it ends.
func (c *Cluster) AuditLog() string {
	return filepath.Join(c.Dir, auditLogFile)
}
