// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package drift

import (
	"context"
	"fmt"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/internal/copies"
	"github.com/trainyard/trainyard/internal/requeue"
	"github.com/trainyard/trainyard/remote"
)

const (
	// perSecond and burst bound the dry runs of all workers together. After a start of the manager there is one for each
	// runtime of each worker.
	perSecond, burst = 50, 10
	// askAgain is after how long a worker is asked again that has refused. No event tells that its CRD, its admission or the
	// rights of the hub have changed.
	askAgain = time.Hour
)

// Shared is what the reconcilers of all workers share.
type Shared struct {
	states  *States
	specs   specs
	limiter *rate.Limiter
}

// NewShared returns a Shared that reads the hub's runtimes from the hub's API server.
func NewShared(states *States, hubReader client.Reader) *Shared {
	return &Shared{states: states, specs: specs{reader: hubReader}, limiter: rate.NewLimiter(perSecond, burst)}
}

// Options are the options of the reconciler of one worker. All are required.
type Options struct {
	Cluster v1alpha1.ClusterName
	// Hub reads from the hub's caches.
	Hub client.Reader
	// Worker is the connection to the worker.
	Worker copies.Connection
	// Cache has the metadata of the worker's runtimes.
	Cache client.Reader
	// Shared is what the reconcilers of all workers share.
	Shared *Shared
	Clock  clock.PassiveClock
}

// Reconciler compares the runtimes of one worker. Without a name, a key of Source says that all of them are listed.
type Reconciler struct {
	Options

	// paces are those of the questions about each runtime: a worker may change one for ever, and each answer wakes all
	// jobs that name it. One key is reconciled at a time, so nothing guards them.
	paces map[types.NamespacedName]*requeue.Pace
}

// mostPaces is of how many runtimes a pace is kept.
const mostPaces = 1000

// NewReconciler returns the reconciler of a worker.
func NewReconciler(options Options) *Reconciler {
	options.Shared.states.begin(options.Cluster)
	return &Reconciler{Options: options}
}

// Reconcile compares one runtime if that has not been done for these versions of it.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	key := request.NamespacedName
	if key.Name == "" {
		return reconcile.Result{}, r.listed(ctx)
	}
	onWorker := &metav1.PartialObjectMetadata{}
	onWorker.SetGroupVersionKind(trainer.SchemeGroupVersion.WithKind(kindOf(key)))
	switch err := r.Cache.Get(ctx, key, onWorker); {
	case err == nil:
	case client.IgnoreNotFound(err) != nil:
		return reconcile.Result{}, fmt.Errorf("get %s %q from the cache of worker %q: %w", kindOf(key), key.Name, r.Cluster, err)
	default:
		r.Shared.states.gone(r.Cluster, key)
		return reconcile.Result{}, nil
	}
	r.Shared.states.seen(r.Cluster, key, versionOf(onWorker), !r.Shared.states.isOwn(onWorker))
	onHub, err := r.hubVersion(ctx, key)
	if err != nil {
		return reconcile.Result{}, err
	}
	comparison, again, err := r.comparison(ctx, onWorker, onHub)
	if remote.IsNotConnected(err) { // Sweep brings the key when the worker is back.
		return reconcile.Result{}, nil
	}
	if err != nil {
		return requeue.AfterConflict(reconcile.Result{}, err)
	}
	comparison.Version, comparison.Foreign, comparison.Outdated = onHub, !r.Shared.states.isOwn(onWorker), r.isOutdated(onWorker, onHub)
	r.note(ctx, key, comparison, versionOf(onWorker))
	return reconcile.Result{RequeueAfter: again}, nil
}

// hubVersion returns the version of a runtime on the hub, or onlyOnWorker.
func (r *Reconciler) hubVersion(ctx context.Context, key types.NamespacedName) (string, error) {
	var onHub client.Object = &trainer.ClusterTrainingRuntime{}
	if key.Namespace != "" {
		onHub = &trainer.TrainingRuntime{}
	}
	switch err := r.Hub.Get(ctx, key, onHub, client.UnsafeDisableDeepCopy); {
	case err == nil:
	case client.IgnoreNotFound(err) != nil:
		return "", fmt.Errorf("get the hub's %s %q: %w", kindOf(key), key.Name, err)
	default:
		r.Shared.specs.forget(key)
		return onlyOnWorker, nil
	}
	return versionOf(onHub), nil
}

// comparison returns what is known of two versions, or asks the worker. again is when the worker has to be asked again,
// zero for never.
func (r *Reconciler) comparison(
	ctx context.Context, onWorker *metav1.PartialObjectMetadata, onHub string,
) (comparison dispatch.Comparison, again time.Duration, err error) {
	key := client.ObjectKeyFromObject(onWorker)
	known, asked := r.Shared.states.of(r.Cluster, key)
	holds := askAgain - r.Clock.Since(asked.at)
	switch {
	case known.Version == onHub && asked.version == versionOf(onWorker) && (!known.IsRefused() || holds > 0):
		if known.Own != nil && known.Outdated != r.isOutdated(onWorker, onHub) { // It wakes jobs, too.
			if err := r.pace(key); err != nil {
				return known, 0, err
			}
		}
		if known.IsRefused() {
			again = holds
		}
		return known, again, nil
	case onHub == onlyOnWorker, r.isUntouched(onWorker, onHub):
		return dispatch.Comparison{}, 0, nil
	}
	if err := r.pace(key); err != nil { // Before the limiter, which all workers share.
		return known, 0, err
	}
	if err := r.Shared.limiter.Wait(ctx); err != nil {
		return known, 0, err
	}
	spec, err := r.Shared.specs.get(ctx, key, onHub)
	if err != nil {
		return known, 0, err
	}
	if comparison, err = r.ask(ctx, onWorker, spec); comparison.IsRefused() {
		again = askAgain
	}
	return comparison, again, err
}

// pace fails if a runtime has changed too often to be looked at now.
func (r *Reconciler) pace(key types.NamespacedName) error {
	if due := r.due(key); due > 0 {
		return requeue.Later("the runtime changes too often to be compared each time", due)
	}
	return nil
}

// due is how long a question about a runtime has to wait. Zero: it is noted as asked.
func (r *Reconciler) due(key types.NamespacedName) time.Duration {
	if r.paces == nil || len(r.paces) >= mostPaces {
		r.paces = map[types.NamespacedName]*requeue.Pace{}
	}
	pace, now := r.paces[key], r.Clock.Now()
	if pace == nil {
		pace = &requeue.Pace{}
		r.paces[key] = pace
	}
	due := pace.Due(now)
	if due == 0 {
		pace.Note(now, now)
	}
	return due
}

// note notes a comparison, unless it is known already.
func (r *Reconciler) note(ctx context.Context, key types.NamespacedName, comparison dispatch.Comparison, version string) {
	known, before := r.Shared.states.of(r.Cluster, key)
	if before.version == version && known.Version == comparison.Version && known.State == comparison.State &&
		known.Foreign == comparison.Foreign && known.Outdated == comparison.Outdated && (!known.IsRefused() || r.Clock.Since(before.at) < askAgain) {
		return
	}
	if comparison.State != "" && known.State != comparison.State {
		log.FromContext(ctx).Info("Runtime of the worker is not the hub's", "kind", kindOf(key), "runtime", key,
			"state", comparison.State, "paths", comparison.Paths, "message", comparison.Message)
	}
	r.Shared.states.compared(r.Cluster, key, comparison, asked{version: version, at: r.Clock.Now()})
}

// sourceOf is what the annotation of a runtime says that the manager has made from a version of the hub's.
func sourceOf(version string) string { return version + "." + v1alpha1.SourceReplaced }

// isOwn says whether the manager of this hub has made a worker's runtime.
func (s *States) isOwn(onWorker metav1.Object) bool {
	return onWorker.GetLabels()[v1alpha1.LabelPropagatedBy] == s.HubID
}

// isOutdated says whether the manager has made the worker's runtime from another version than the hub has.
func (r *Reconciler) isOutdated(onWorker metav1.Object, onHub string) bool {
	return r.Shared.states.isOwn(onWorker) && onWorker.GetAnnotations()[v1alpha1.AnnotationSource] != sourceOf(onHub)
}

// isUntouched says whether the spec of the worker's runtime is what the manager has created from the hub's version.
func (r *Reconciler) isUntouched(onWorker metav1.Object, onHub string) bool {
	return r.Shared.states.isOwn(onWorker) && !r.isOutdated(onWorker, onHub) && onWorker.GetGeneration() == 1
}

// listed notes which runtimes the worker has.
func (r *Reconciler) listed(ctx context.Context) error {
	has := map[types.NamespacedName]bool{}
	for _, kind := range []string{trainer.ClusterTrainingRuntimeKind, trainer.TrainingRuntimeKind} {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(trainer.SchemeGroupVersion.WithKind(kind + "List"))
		if err := r.Cache.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("list %ss from the cache of worker %q: %w", kind, r.Cluster, err)
		}
		for i := range list.Items {
			has[client.ObjectKeyFromObject(&list.Items[i])] = true
		}
	}
	r.Shared.states.listed(r.Cluster, func(key types.NamespacedName) bool { return has[key] })
	return nil
}
