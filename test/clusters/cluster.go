// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/trainyard/trainyard/test/ports"
)

const (
	// pollInterval is the interval of all waits for a cluster to reach a state.
	pollInterval = 50 * time.Millisecond
	// startTimeout is for each step of a start, on a machine with other work.
	startTimeout = 10 * time.Minute
)

// Cluster is a running cluster. Its methods are safe for concurrent use.
type Cluster struct {
	// Name is the name from the options.
	Name string
	// Config is the admin's config, with a rate limit so high that tests do not notice it. Copy it before you change it.
	Config *rest.Config
	// KubeconfigPath is the path of the admin's kubeconfig, which needs no other files.
	KubeconfigPath string
	// Dir holds state and logs.
	Dir string

	options    Options
	removeDir  bool
	backend    backend
	kubernetes kubernetes.Interface
	dynamic    dynamic.Interface

	mu     sync.Mutex
	beside []*Process           // what Run has started; under mu
	ports  []*ports.Reservation // of webhook servers; under mu

	kwokMu  sync.Mutex // held while kwok is started
	kwok    *Process   // under kwokMu
	kubelet *kubelet   // under kwokMu; nil: there is none
}

// backend is where the control plane runs.
type backend interface {
	// startControlPlane brings up an API server and writes the admin's kubeconfig to the path.
	startControlPlane(ctx context.Context, kubeconfig string) error
	// hasFirstCRDs is true if a control plane that was just started has Options.firstCRDs.
	hasFirstCRDs() bool
	// startControllers starts what the options ask for and is not running yet.
	startControllers() error
	// parts returns the parts that are processes of this machine, in the order in which they were started.
	parts() []*Process
	// exited returns a part that ended by itself, or nil.
	exited() *Process
	// hostAddress is the address of this machine that the API server reaches.
	hostAddress() (string, error)
	startAPIServer(ctx context.Context) error
	killAPIServer() error
	signalAPIServer(s syscall.Signal) error
	stop() error
}

// Start starts a cluster, and returns when it can be used: the API server is ready, the default service account exists
// if there is a controller manager, JobSet's webhooks answer, and the nodes are schedulable. The context limits only
// the start. The cluster runs until Stop, or until this process ends.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	o, removeDir, err := o.complete()
	if err != nil {
		return nil, fmt.Errorf("start cluster: %w", err)
	}
	c := &Cluster{Name: o.Name, Dir: o.Dir, KubeconfigPath: filepath.Join(o.Dir, "kubeconfig"), options: o, removeDir: removeDir}
	if err := c.start(ctx); err != nil {
		err = fmt.Errorf("start cluster %q: %w", o.Name, err)
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) (err error) {
	if err := c.options.readFirstCRDs(ctx); err != nil {
		return err
	}
	if c.backend, err = newBackend(c.options); err != nil {
		return err
	}
	if err := c.backend.startControlPlane(ctx, c.KubeconfigPath); err != nil {
		return err
	}
	if err := c.connect(); err != nil {
		return err
	}
	if err := c.waitReady(ctx); err != nil {
		return err
	}
	if err := c.waitOwnObjects(ctx); err != nil {
		return err
	}
	// Kinds come before the controllers: see Options.CRDs.
	if err := c.installFirstCRDs(ctx); err != nil {
		return err
	}
	if err := c.backend.startControllers(); err != nil {
		return err
	}
	if c.options.JobSet {
		if err := c.startJobSet(ctx); err != nil {
			return err
		}
	}
	if c.options.ControllerManager {
		if err := c.waitServiceAccount(ctx); err != nil {
			return err
		}
	}
	return c.AddNodes(ctx, c.options.Nodes...)
}

func (c *Cluster) connect() (err error) {
	if c.Config, err = loadConfig(c.KubeconfigPath); err != nil {
		return err
	}
	if c.kubernetes, err = kubernetes.NewForConfig(c.Config); err != nil {
		return err
	}
	c.dynamic, err = dynamic.NewForConfig(c.Config)
	return err
}

// StartAll starts clusters at the same time, but clusters of kind one after the other: a node takes the CPU time that
// the kubelets of other nodes need. If a cluster does not start, it stops all.
func StartAll(ctx context.Context, options ...Options) ([]*Cluster, error) {
	all := make([]*Cluster, len(options))
	errs := make([]error, len(options))
	var wg sync.WaitGroup
	for i, o := range options {
		if OnKind() {
			if all[i], errs[i] = Start(ctx, o); errs[i] != nil {
				break
			}
			continue
		}
		wg.Go(func() { all[i], errs[i] = Start(ctx, o) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, errors.Join(err, StopAll(all...))
	}
	return all, nil
}

// StopAll stops clusters at the same time. It skips nil clusters.
func StopAll(all ...*Cluster) error {
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, c := range all {
		if c != nil {
			wg.Go(func() { errs[i] = c.Stop() })
		}
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Stop ends the processes that Run has started, in reverse order and with time to shut down. Then it ends the cluster.
// It deletes Dir if Dir is a temporary directory.
func (c *Cluster) Stop() error {
	c.mu.Lock()
	beside, reserved := c.beside, c.ports
	c.beside, c.ports = nil, nil
	c.mu.Unlock()
	var errs []error
	for i := len(beside) - 1; i >= 0; i-- {
		errs = append(errs, beside[i].Stop())
	}
	c.kwokMu.Lock()
	errs = append(errs, c.kubelet.stop())
	c.kwokMu.Unlock()
	if c.backend != nil {
		errs = append(errs, c.backend.stop())
	}
	for _, p := range reserved {
		errs = append(errs, p.Release())
	}
	if c.removeDir {
		errs = append(errs, os.RemoveAll(c.Dir))
	}
	return errors.Join(errs...)
}

// Version returns the version of the API server, like v1.36.3.
func (c *Cluster) Version() (string, error) {
	found, err := c.kubernetes.Discovery().ServerVersion()
	if err != nil {
		return "", fmt.Errorf("ask cluster %q for its version: %w", c.Name, err)
	}
	return found.GitVersion, nil
}

// KubeconfigBytes returns the admin's kubeconfig.
func (c *Cluster) KubeconfigBytes() ([]byte, error) {
	return os.ReadFile(c.KubeconfigPath)
}

// KillAPIServer ends the API server with SIGKILL. Its port stays reserved, and etcd keeps running.
func (c *Cluster) KillAPIServer() error { return c.backend.killAPIServer() }

// StartAPIServer starts a killed API server again on the same port and waits until it is ready.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	if err := c.backend.startAPIServer(ctx); err != nil {
		return err
	}
	return c.waitServing(ctx)
}

// waitServing waits until the API server is ready again, and then lets kwok go on.
func (c *Cluster) waitServing(ctx context.Context) error {
	if err := c.waitReady(ctx); err != nil {
		return err
	}
	return c.wakeKwok(ctx)
}

// PauseAPIServer stops the API server with SIGSTOP: connections stay open, and nothing answers.
func (c *Cluster) PauseAPIServer() error { return c.backend.signalAPIServer(syscall.SIGSTOP) }

// ResumeAPIServer undoes PauseAPIServer.
func (c *Cluster) ResumeAPIServer() error {
	return errors.Join(c.backend.signalAPIServer(syscall.SIGCONT), c.wakeKwok(context.Background()))
}

// waitReady waits for /readyz.
func (c *Cluster) waitReady(ctx context.Context) error {
	return c.waitFor(ctx, "API server to be ready", func(ctx context.Context) error {
		return c.kubernetes.CoreV1().RESTClient().Get().AbsPath("/readyz").Timeout(time.Second).Do(ctx).Error()
	})
}

// waitOwnObjects waits for what an API server creates after it is ready: see ownKeys.
func (c *Cluster) waitOwnObjects(ctx context.Context) error {
	return c.waitFor(ctx, "objects of kube-system", func(ctx context.Context) error {
		core := c.kubernetes.CoreV1()
		if _, err := core.Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{}); err != nil {
			return err
		}
		_, err := core.ConfigMaps(metav1.NamespaceSystem).Get(ctx, "extension-apiserver-authentication", metav1.GetOptions{})
		return err
	})
}

func (c *Cluster) waitServiceAccount(ctx context.Context) error {
	return c.waitFor(ctx, "default service account", func(ctx context.Context) error {
		_, err := c.kubernetes.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

func (c *Cluster) waitFor(ctx context.Context, what string, probe func(context.Context) error) error {
	return waitFor(ctx, c.backend, what, probe)
}

// waitFor calls probe until it returns nil. It gives up, with the last reason,
// when time is out or when a part of the cluster has ended.
func waitFor(ctx context.Context, b backend, what string, probe func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, pollInterval, startTimeout, true, func(ctx context.Context) (bool, error) {
		if last = probe(ctx); last == nil {
			return true, nil
		}
		if p := b.exited(); p != nil {
			return false, p.Ended()
		}
		return false, nil
	})
	if wait.Interrupted(err) {
		return fmt.Errorf("wait for %s: %w; last: %w", what, err, last)
	}
	if err != nil {
		return fmt.Errorf("wait for %s: %w", what, err)
	}
	return nil
}
