// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package inbox

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// AtEnd calls the functions when the manager ends. They cancel the subscriptions that fill an Inbox.
func AtEnd(mgr ctrl.Manager, cancels ...func()) error {
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		<-ctx.Done()
		for _, cancel := range cancels {
			cancel()
		}
		return nil
	}))
}
