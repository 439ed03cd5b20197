// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

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
