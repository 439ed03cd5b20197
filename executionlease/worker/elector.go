// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/inbox"
)

var kind = v1alpha1.GroupVersion.WithKind("ExecutionLease")

// elector runs the controller of leases once their CRD is installed, and takes part in the election.
type elector struct {
	Options
	tracker *tracker
	inbox   *inbox.Inbox
	// seen says whether the tracker has seen the copies of the first list.
	seen   func() bool
	config *rest.Config
	http   *http.Client
	cached client.Client
	live   client.Reader
	mapper meta.RESTMapper
	scheme *runtime.Scheme
	// recorder records Events on leases.
	recorder events.EventRecorder
	log      logr.Logger
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: fencing has an election of its own.
func (e *elector) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable. It returns when ctx ends.
func (e *elector) Start(ctx context.Context) error {
	if !e.awaitAPI(ctx) {
		return nil
	}
	// The tracker must see all copies before it knows its first challenge. Then a creation whose first copy came and was
	// deleted before this process began has an older challenge, and Gate refuses it.
	if !toolscache.WaitForCacheSync(ctx.Done(), e.seen) {
		return nil
	}
	informers, err := e.newCache()
	if err != nil {
		return err
	}
	controller, err := e.newController(informers)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for _, part := range []func(context.Context) error{informers.Start, controller.Start} {
		running.Go(func() {
			if err := part(ctx); err != nil && ctx.Err() == nil {
				e.log.Error(err, "Watch of execution leases has ended")
				cancel()
			}
		})
	}
	// A replica that has not read all leases must not lead: it would assume that hubs without a lease in its cache are
	// silent.
	if !informers.WaitForCacheSync(ctx) {
		return nil
	}
	e.elect(ctx)
	return nil
}

// awaitAPI waits until the CRD is installed. It returns false if the context ends first.
func (e *elector) awaitAPI(ctx context.Context) bool {
	said := ""
	for {
		_, err := e.mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err == nil {
			return true
		}
		if meta.IsNoMatchError(err) {
			err = errors.New("the CRD ExecutionLease is not installed (kubectl apply --server-side -k config/crd/worker); " +
				"until it is, copies with failover Fenced do not start")
		}
		if text := err.Error(); text != said {
			said = text
			e.log.Info("Nothing is fenced", "reason", text)
		}
		if !pause(ctx, e.CRDInterval) {
			return false
		}
	}
}

func (e *elector) newCache() (cache.Cache, error) {
	informers, err := cache.New(e.config, cache.Options{
		HTTPClient: e.http, Scheme: e.scheme, Mapper: e.mapper, SyncPeriod: new(365 * 24 * time.Hour),
		DefaultTransform: cache.TransformStripManagedFields(),
		DefaultWatchErrorHandler: func(_ context.Context, reflector *toolscache.Reflector, err error) {
			e.log.V(1).Info("Reflector has to start again", "type", reflector.TypeDescription(), "reason", err.Error())
		},
	})
	if err != nil {
		return nil, fmt.Errorf("make cache of execution leases: %w", err)
	}
	return informers, nil
}

func (e *elector) newController(informers cache.Cache) (controller.Controller, error) {
	c, err := controller.NewUnmanaged("fencing-leases", controller.Options{
		Reconciler: &leases{
			tracker: e.tracker, alarms: newAlarms(e.Clock, e.inbox), identity: e.Identity, clock: e.Clock,
			cache: informers, live: e.live, client: e.cached, recorder: e.recorder, log: e.log,
		},
		MaxConcurrentReconciles: 4, // A hub is one key: one with many copies does not delay others.
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](minRetryDelay, maxRetryDelay),
		UsePriorityQueue:        new(false),
		SkipNameValidation:      new(e.SkipNameValidation),
		Logger:                  e.log,
	})
	if err != nil {
		return nil, fmt.Errorf("make controller of execution leases: %w", err)
	}
	err = errors.Join(
		c.Watch(e.inbox.Source()),
		c.Watch(source.Kind[client.Object](informers, &v1alpha1.ExecutionLease{}, &handler.EnqueueRequestForObject{})),
	)
	if err != nil {
		return nil, fmt.Errorf("watch execution leases: %w", err)
	}
	return c, nil
}

// pause waits, and returns false if the context has ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// Election configures the Lease of the agents. A LeaseDuration of more than 15 s needs a longer margin on the hubs.
type Election struct {
	Namespace string
	// LeaseDuration, RenewDeadline and RetryPeriod have the meaning of client-go's options.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
}

// elect takes part in the election until ctx ends. After it loses the Lease, it tries to get it again.
func (e *elector) elect(ctx context.Context) {
	if e.Election == nil {
		e.serve(ctx)
		return
	}
	for ctx.Err() == nil {
		if err := e.runElection(ctx); err != nil {
			e.log.Error(err, "Cannot take part in the leader election of fencing")
		}
		pause(ctx, e.Election.RetryPeriod)
	}
}

// runElection takes part in one election. It returns when this process has lost the Lease, or when ctx has ended.
func (e *elector) runElection(ctx context.Context) error {
	config := rest.CopyConfig(e.config)
	config.Timeout = e.Election.RenewDeadline / 2 // One request must not use all of the time to renew.
	leases, err := coordination.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make client for Lease %q: %w", LeaseName, err)
	}
	runner, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: LeaseName,
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: e.Election.Namespace, Name: LeaseName},
			Client:     leases,
			LockConfig: resourcelock.ResourceLockConfig{Identity: e.Identity},
		},
		LeaseDuration: e.Election.LeaseDuration, RenewDeadline: e.Election.RenewDeadline, RetryPeriod: e.Election.RetryPeriod,
		// Two leaders at once do no harm for a moment: each write names the version that the writer has read.
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: e.serve,
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("start leader election with Lease %q: %w", LeaseName, err)
	}
	runner.Run(ctx)
	return nil
}

// serve leads until ctx ends.
func (e *elector) serve(ctx context.Context) {
	e.log.Info("Leading: writing challenges and stopping copies", "identity", e.Identity)
	end := e.tracker.lead()
	<-ctx.Done()
	end()
	e.log.Info("Not leading any more", "identity", e.Identity)
}
