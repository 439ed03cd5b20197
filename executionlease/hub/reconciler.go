// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/executionlease/protocol"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/internal/requeue"
	"github.com/trainyard/trainyard/remote"
)

// pollInterval is how often the reconciler looks for new leases and a changed fenceAfter without events or requests.
const pollInterval = 10 * time.Second

// reconciler keeps the lease on one worker. One goroutine at a time calls it.
type reconciler struct {
	*Answerer
	worker     v1alpha1.ClusterName
	clusterID  types.UID
	connection Connection
	// forbidden says that the worker has refused the last write.
	forbidden bool
	// state is the last state of the agent that was logged.
	state protocol.AgentState
}

type answer struct {
	challenge  protocol.Challenge
	fenceAfter time.Duration
}

// Reconcile creates the lease, or answers the agent's challenge.
func (r *reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	f, due, err := r.observe(ctx)
	if err == nil {
		switch f.decide() {
		case absent:
			err = r.create(ctx, due.fenceAfter)
		case unanswered:
			err = r.answer(ctx, f.lease, due)
		case away, unlisted, settled:
		}
	}
	if err != nil && !remote.IsNotConnected(err) {
		return requeue.AfterConflict(reconcile.Result{}, err)
	}
	return reconcile.Result{RequeueAfter: min(pollInterval, r.patience(ctx))}, nil
}

// observe reads the lease. It records in the Agents what the lease says and the answer that is due.
func (r *reconciler) observe(ctx context.Context) (observation, answer, error) {
	status := r.connection.Status()
	f := observation{leading: r.Leading(), connected: status.State == remote.Connected && status.ClusterID == r.clusterID}
	var worker v1alpha1.WorkerCluster
	if err := r.Hub.Get(ctx, types.NamespacedName{Name: string(r.worker)}, &worker); client.IgnoreNotFound(err) != nil {
		return f, answer{}, fmt.Errorf("get WorkerCluster %q: %w", r.worker, err)
	} else if f.registered = err == nil; !f.registered {
		return f, answer{}, nil
	}
	due := answer{fenceAfter: worker.FenceAfter()}
	if !f.connected {
		return f, due, nil
	}
	if err := r.read(ctx, &f); err != nil {
		return f, due, err
	}
	now := r.Clock.Now()
	r.agents.note(r.worker, r.clusterID, func(s *agent) {
		refusal := refusalOf(status.LeaseRefusal)
		if r.forbidden && refusal == protocol.AgentUnknown {
			refusal = protocol.AgentForbidden
		}
		s.lease.Refused(refusal)
		if f.listed {
			s.lease.Read(readingOf(f.lease), now)
		}
		if f.listed && f.leading {
			due.challenge, f.due = s.lease.Answer(due.fenceAfter)
		}
	})
	return f, due, nil
}

func (r *reconciler) read(ctx context.Context, f *observation) error {
	worker, err := r.connection.Client()
	if err != nil {
		return err
	}
	lease := &v1alpha1.ExecutionLease{}
	err = worker.Get(ctx, client.ObjectKey{Name: r.HubID}, lease)
	switch {
	case err == nil:
		f.listed, f.lease = true, lease
	case apierrors.IsNotFound(err):
		f.listed = true
	case !isUnlisted(err):
		return fmt.Errorf("get ExecutionLease %q of worker %q: %w", r.HubID, r.worker, err)
	}
	return nil
}

// create creates the lease. The agent then writes a challenge into it.
func (r *reconciler) create(ctx context.Context, fenceAfter time.Duration) error {
	worker, err := r.connection.Client()
	if err != nil {
		return err
	}
	err = worker.Create(ctx, &v1alpha1.ExecutionLease{
		ObjectMeta: metav1.ObjectMeta{Name: r.HubID},
		Spec:       v1alpha1.ExecutionLeaseSpec{FenceAfter: metav1.Duration{Duration: fenceAfter}, Manager: r.Manager},
	}, records.FieldOwner)
	if apierrors.IsAlreadyExists(err) || r.isRefused(err) {
		return nil // The cache shows the lease later, or an admin grants the right.
	}
	if err != nil {
		return fmt.Errorf("create ExecutionLease %q on worker %q: %w", r.HubID, r.worker, err)
	}
	return nil
}

// answer writes the answer that the Agents has recorded. It fails with Conflict if the lease has changed.
func (r *reconciler) answer(ctx context.Context, lease *v1alpha1.ExecutionLease, due answer) error {
	worker, err := r.connection.Client()
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": lease.ResourceVersion},
		"spec": v1alpha1.ExecutionLeaseSpec{
			FenceAfter: metav1.Duration{Duration: due.fenceAfter}, Answer: due.challenge.String(), Manager: r.Manager,
		},
	})
	if err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	answered := &v1alpha1.ExecutionLease{ObjectMeta: metav1.ObjectMeta{Name: r.HubID}}
	err = worker.Patch(ctx, answered, client.RawPatch(types.MergePatchType, patch), records.FieldOwner)
	if r.isRefused(err) {
		return nil // The reconciler tries again with the next challenge.
	}
	if err != nil {
		return fmt.Errorf("patch ExecutionLease %q on worker %q: %w", r.HubID, r.worker, err)
	}
	r.agents.note(r.worker, r.clusterID, func(s *agent) {
		s.lease.Confirmed(due.challenge)
		s.answers++
	})
	return nil
}

// isRefused says whether the worker refuses every write of the lease, and records that.
func (r *reconciler) isRefused(err error) bool {
	r.forbidden = apierrors.IsForbidden(err)
	if r.forbidden {
		r.agents.note(r.worker, r.clusterID, func(s *agent) { s.lease.Refused(protocol.AgentForbidden) })
	}
	return r.forbidden || apierrors.IsNotFound(err)
}

// patience is how long to wait for a challenge before the state of the agent may change.
func (r *reconciler) patience(ctx context.Context) (patience time.Duration) {
	before := r.state
	r.agents.view(r.worker, r.clusterID, func(s *agent) { patience, r.state = s.lease.QuietFor(), s.lease.AgentState() })
	if before != r.state {
		log.FromContext(ctx).Info("Agent of worker changed", "from", before.String(), "to", r.state.String())
	}
	return patience
}
