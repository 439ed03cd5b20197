// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/internal/requeue"
	"github.com/trainyard/trainyard/kubeconfigs"
)

// Options are the options of the controller. All are required but Timeout.
type Options struct {
	// Hub reads from the hub's caches.
	Hub client.Client
	// Loader loads kubeconfigs.
	Loader *kubeconfigs.Loader
	Clock  clock.PassiveClock
	// Timeout is for one request to a worker. 0: 10 s.
	Timeout time.Duration
}

// Reconciler reconciles the credentials of WorkerClusters.
type Reconciler struct{ Options }

// NewReconciler makes the controller's reconciler.
func NewReconciler(options Options) *Reconciler {
	if options.Timeout == 0 {
		options.Timeout = 10 * time.Second
	}
	return &Reconciler{Options: options}
}

// Reconcile looks at the credentials of one worker, and renews its token if that is due.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	worker := &v1alpha1.WorkerCluster{}
	if err := r.Hub.Get(ctx, request.NamespacedName, worker); err != nil {
		if apierrors.IsNotFound(err) {
			forget(request.Name)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	secret, err := r.secretOf(ctx, worker)
	if err != nil {
		return reconcile.Result{}, err
	}
	loaded, err := r.Loader.Load(ctx, worker.Spec.Connection)
	if err != nil {
		// The condition Ready says what is wrong with the kubeconfig, and there is nothing to renew.
		return reconcile.Result{}, unlessReady(err)
	}
	seen := r.observe(worker, secret, loaded)
	show(worker.Name, seen.expires)
	decided := seen.decide()
	if decided.renew {
		conflict := false
		if decided, conflict = r.renewed(ctx, seen, secret, loaded); conflict {
			return reconcile.Result{RequeueAfter: requeue.ConflictDelay}, nil
		}
	}
	err = r.write(ctx, worker, decided)
	result := reconcile.Result{}
	if !decided.again.IsZero() {
		result.RequeueAfter = max(decided.again.Sub(seen.now), time.Second)
	}
	return requeue.AfterConflict(result, err)
}

// renewed renews a token, and returns what follows from that. conflict is true if somebody has changed the Secret.
func (r *Reconciler) renewed(
	ctx context.Context, seen observation, secret *corev1.Secret, loaded *kubeconfigs.Credentials,
) (decided decision, conflict bool) {
	kubeconfig, fingerprint, err := r.renew(ctx, secret, loaded)
	if err == nil {
		of := renewal{requested: seen.now, fingerprint: fingerprint}
		if err = r.store(ctx, secret, kubeconfig, of); apierrors.IsConflict(err) {
			return decision{}, true
		}
	}
	if err != nil {
		renewals.WithLabelValues(string(seen.worker), "failed").Inc()
		return decision{
			reason: v1alpha1.ReasonRenewalFailed, message: seen.renewalMessage(err), again: seen.now.Add(seen.retryInterval()),
		}, false
	}
	renewals.WithLabelValues(string(seen.worker), "renewed").Inc()
	log.FromContext(ctx).Info("Token of worker renewed", "workerCluster", string(seen.worker))
	return decision{}, false // The event of the Secret brings us back.
}

// unlessReady drops errors that the condition Ready explains.
func unlessReady(err error) error {
	if kubeconfigs.ReasonOf(err) != "" {
		return nil
	}
	return err
}

// secretOf returns the Secret of a worker's kubeconfig, or nil if it is a file or not there.
func (r *Reconciler) secretOf(ctx context.Context, worker *v1alpha1.WorkerCluster) (*corev1.Secret, error) {
	reference := worker.Spec.Connection.KubeconfigSecretRef
	if reference == nil {
		return nil, nil
	}
	secret := &corev1.Secret{}
	err := r.Hub.Get(ctx, types.NamespacedName{Namespace: r.Loader.Namespace, Name: reference.Name}, secret)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get Secret %q: %w", reference.Name, err)
	}
	return secret, nil
}

func (r *Reconciler) observe(worker *v1alpha1.WorkerCluster, secret *corev1.Secret, loaded *kubeconfigs.Credentials) observation {
	seen := observation{
		worker: v1alpha1.ClusterName(worker.Name), issued: loaded.Issued, expires: loaded.Expires, now: r.Clock.Now(),
		managed: secret != nil && secret.Labels[v1alpha1.LabelRenew] == v1alpha1.RenewToken,
	}
	if seen.managed {
		_, seen.fault = kubeconfigs.ParseServiceAccountToken(loaded.Config.BearerToken)
		if requested := requestedAt(secret, loaded); !requested.IsZero() {
			seen.issued, seen.expires = requested, endOf(loaded.Issued, loaded.Expires, requested)
		}
	}
	return seen
}

// write writes the condition if it has changed.
func (r *Reconciler) write(ctx context.Context, worker *v1alpha1.WorkerCluster, decided decision) error {
	updated := worker.DeepCopy()
	if decided.reason == "" {
		meta.RemoveStatusCondition(&updated.Status.Conditions, v1alpha1.WorkerClusterCredentialsExpiring)
	} else {
		meta.SetStatusCondition(&updated.Status.Conditions, metav1.Condition{
			Type: v1alpha1.WorkerClusterCredentialsExpiring, Status: metav1.ConditionTrue, Reason: decided.reason, Message: decided.message,
			ObservedGeneration: worker.Generation, LastTransitionTime: metav1.NewTime(r.Clock.Now()),
		})
	}
	if equality.Semantic.DeepEqual(updated.Status, worker.Status) {
		return nil
	}
	patch := client.MergeFromWithOptions(worker, client.MergeFromWithOptimisticLock{})
	if err := r.Hub.Status().Patch(ctx, updated, patch, records.FieldOwner); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("patch status of WorkerCluster %q: %w", worker.Name, err)
	}
	return nil
}
