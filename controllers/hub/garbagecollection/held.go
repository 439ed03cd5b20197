// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/records"
)

// sayHeld writes on the Dispatch of a placed job why the job gets no copy: another worker has an unknown copy of it. It
// writes that once, and the job's next copy overwrites it. An error is only logged: nothing depends on the words.
func (q *Quarantine) sayHeld(ctx context.Context, d *v1alpha1.Dispatch, at v1alpha1.ClusterName) {
	if record.StateOf(d) != record.Placed {
		return // The status says something more important.
	}
	err := records.Writer{Hub: q.Hub, Clock: q.Clock}.UpdateStatus(ctx, d, func(status *v1alpha1.DispatchStatus) {
		record.SetHeldBack(status, d, heldWords(client.ObjectKeyFromObject(d), at), q.Clock.Now())
	})
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		log.FromContext(ctx).Error(err, "Saying why a job gets no copy did not work", "dispatch", client.ObjectKeyFromObject(d))
	}
}

func heldWords(key client.ObjectKey, at v1alpha1.ClusterName) string {
	return fmt.Sprintf("worker %s has a copy of this job, of this attempt or a later one, that the hub has no record of and that may be running: "+
		"no other is created until somebody decides about it: kubectl trainyard adopt|release %s %s", at, at, key)
}
