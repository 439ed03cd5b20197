// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/hashicorp/go-multierror"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/logs"
	"github.com/trainyard/trainyard/internal/perworker"
	"github.com/trainyard/trainyard/logarchive"
	"github.com/trainyard/trainyard/logarchive/bucket"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/remote/bounded"
)

// minLogSize is the smallest size that can be kept of a log: a line should fit.
const minLogSize = 1 << 10

// logArchiveOptions say where the ends of logs are kept. At most one place is set.
type logArchiveOptions struct {
	dir  string
	url  string
	size string
}

func (o *logArchiveOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.dir, "log-archive-dir", o.dir,
		"Keep the end of each container's log in this `directory` when a job ends or leaves its worker. All replicas of the "+
			"manager need the same directory. Empty: do not.")
	fs.StringVar(&o.url, "log-archive-url", o.url,
		"Keep them in the bucket at this HTTPS `URL`, https://SERVER/BUCKET or https://SERVER/BUCKET/PREFIX, by the protocol "+
			"of S3. The credentials are those of the environment, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. Empty: "+
			"do not.")
	fs.StringVar(&o.size, "log-archive-size", o.size,
		"How much of the end of each log is kept, as a `quantity` of bytes from 1Ki to 16Mi.")
}

func (o *logArchiveOptions) validate() error {
	var faults *multierror.Error
	if _, err := o.bytes(); err != nil {
		faults = multierror.Append(faults, err)
	}
	if o.dir != "" && o.url != "" {
		faults = multierror.Append(faults, errors.New("--log-archive-dir and --log-archive-url are both set: set one of them"))
	}
	if o.url != "" {
		if _, err := bucket.New(o.url, nil); err != nil {
			faults = multierror.Append(faults, fmt.Errorf("--log-archive-url is %q: %w", withoutPassword(o.url), err))
		}
	}
	if info, err := os.Stat(o.dir); o.dir != "" && (err != nil || !info.IsDir()) {
		faults = multierror.Append(faults, fmt.Errorf("--log-archive-dir is %q: must be an existing directory", o.dir))
	}
	return faults.ErrorOrNil()
}

func (o *logArchiveOptions) bytes() (int, error) {
	size, err := resource.ParseQuantity(o.size)
	if err != nil || size.Value() < minLogSize || size.Value() > logarchive.MaxSize {
		return 0, fmt.Errorf("--log-archive-size is %q: must be a quantity from 1Ki to 16Mi", o.size)
	}
	return int(size.Value()), nil
}

// newLogArchive returns the archive, nil if there is none.
func (o *logArchiveOptions) newLogArchive() (*logarchive.Archive, error) {
	switch {
	case o.dir != "":
		dir, err := logarchive.NewDir(o.dir)
		if err != nil {
			return nil, fmt.Errorf("open --log-archive-dir: %w", err)
		}
		return &logarchive.Archive{Store: dir}, nil
	case o.url != "":
		there, err := bucket.New(o.url, nil)
		if err != nil {
			return nil, fmt.Errorf("set up --log-archive-url: %w", err)
		}
		return &logarchive.Archive{Store: there}, nil
	}
	return nil, nil
}

// try returns nil if logs can be kept in the archive. In a bucket it does not write: what is there stays there.
func (o *logArchiveOptions) try(ctx context.Context, logs *logarchive.Archive) error {
	if o.dir != "" {
		file, err := os.CreateTemp(o.dir, ".part-") // As the archive names what is being written.
		if err != nil {
			return fmt.Errorf("--log-archive-dir is %q: %w", o.dir, err)
		}
		return errors.Join(file.Close(), os.Remove(file.Name()))
	}
	if _, err := logs.Store.List(ctx, "probe"); err != nil {
		return fmt.Errorf("--log-archive-url is %q: %w", withoutPassword(o.url), err)
	}
	return nil
}

// addLogArchive lets the log say at the start, and not only after the first job, that the archive cannot be used. The
// manager dispatches all the same.
func (w *wiring) addLogArchive() error {
	if w.logs == nil {
		return nil
	}
	return w.mgr.Add(onEveryReplica(func(ctx context.Context) error {
		switch err := w.options.logArchive.try(ctx, w.logs); {
		case err == nil:
			w.log.Info("The ends of logs are kept", "directory", w.options.logArchive.dir, "url", withoutPassword(w.options.logArchive.url))
		case ctx.Err() == nil:
			w.log.Error(err, "The archive of logs does not work: the ends of logs are neither kept nor shown")
		}
		return nil
	}))
}

// onEveryReplica runs on replicas that do not lead too.
type onEveryReplica func(ctx context.Context) error

// Start implements manager.Runnable.
func (f onEveryReplica) Start(ctx context.Context) error { return f(ctx) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (f onEveryReplica) NeedLeaderElection() bool { return false }

// logControllers returns the kind of controllers that keep logs, none without an archive.
func (w *wiring) logControllers() ([]perworker.Kind[*remote.Cluster], error) {
	if w.logs == nil {
		return nil, nil
	}
	size, err := w.options.logArchive.bytes()
	if err != nil {
		return nil, err
	}
	slots := logs.NewSlots()
	return []perworker.Kind[*remote.Cluster]{{
		Name: "logs", Concurrency: 2,
		New: func(ctx context.Context, worker v1alpha1.ClusterName, connection *remote.Cluster, _ func() bool) (reconcile.Reconciler, error) {
			life, end := context.WithCancel(ctx)
			go func() {
				defer end()
				select {
				case <-connection.Done():
				case <-ctx.Done():
				}
			}()
			return logs.NewReconciler(life, logs.Options{
				Cluster: worker, ClusterID: connection.Status().ClusterID, Hub: w.mgr.GetClient(), Worker: connection.Cache(),
				Connect: w.logClient(worker), Archive: w.logs, Size: size, Slots: slots, Clock: clock.RealClock{},
			}), nil
		},
	}}, nil
}

// logClient makes clients of a worker that read logs. They share no connection, and no limit of requests, with those by
// which jobs are placed.
func (w *wiring) logClient(worker v1alpha1.ClusterName) func(ctx context.Context) (kubernetes.Interface, error) {
	loader := w.loader()
	return func(ctx context.Context) (kubernetes.Interface, error) {
		object := &v1alpha1.WorkerCluster{}
		if err := w.mgr.GetClient().Get(ctx, types.NamespacedName{Name: string(worker)}, object); err != nil {
			return nil, fmt.Errorf("get WorkerCluster %q: %w", worker, err)
		}
		credentials, err := loader.Load(ctx, object.Spec.Connection)
		if err != nil {
			return nil, fmt.Errorf("read the credentials of worker %q: %w", worker, err)
		}
		config := rest.CopyConfig(credentials.Config)
		config.UserAgent, config.QPS = "trainyard-logs", -1
		client, err := bounded.Kubernetes(config, bounded.Limits{Timeout: w.options.workerTimeout})
		if err != nil {
			return nil, errors.New("the kubeconfig of worker " + string(worker) + " cannot be used")
		}
		return client, nil
	}
}
