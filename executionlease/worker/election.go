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
func (k *keeper) elect(ctx context.Context) {
	if k.Election == nil {
		k.serve(ctx)
		return
	}
	for ctx.Err() == nil {
		if err := k.stand(ctx); err != nil {
			k.log.Error(err, "Cannot take part in the leader election of fencing")
		}
		pause(ctx, k.Election.RetryPeriod)
	}
}

// stand takes part in one election. It returns when this process has lost the Lease, or when ctx has ended.
func (k *keeper) stand(ctx context.Context) error {
	config := rest.CopyConfig(k.config)
	config.Timeout = k.Election.RenewDeadline / 2 // One request must not use all of the time to renew.
	leases, err := coordination.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make client for Lease %q: %w", LeaseName, err)
	}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: LeaseName,
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: k.Election.Namespace, Name: LeaseName},
			Client:     leases,
			LockConfig: resourcelock.ResourceLockConfig{Identity: k.Identity},
		},
		LeaseDuration: k.Election.LeaseDuration, RenewDeadline: k.Election.RenewDeadline, RetryPeriod: k.Election.RetryPeriod,
		// Two leaders at once do no harm for a moment: each write names the version that the writer has read.
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: k.serve,
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("start leader election with Lease %q: %w", LeaseName, err)
	}
	elector.Run(ctx)
	return nil
}

// serve leads until ctx ends.
func (k *keeper) serve(ctx context.Context) {
	k.log.Info("Leading: writing challenges and stopping copies", "identity", k.Identity)
	end := k.tracker.lead()
	<-ctx.Done()
	end()
	k.log.Info("Not leading any more", "identity", k.Identity)
}
