// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/expiry/archive"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/hubcache"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/internal/requeue"
)

const (
	// deletionsPerSecond is five times what a million jobs a day need. A new policy may apply to many jobs at once, and
	// each deletion costs the hub and the job's worker some more requests.
	deletionsPerSecond = 60
)

// Archive keeps what is deleted. Keep returns nil only when the entry would survive a crash.
type Archive interface {
	Keep(ctx context.Context, entry archive.Entry) error
}

// Options are the options of the controller. All but Archive are required.
type Options struct {
	// Hub reads from the hub's caches.
	Hub client.Client
	// HubReader reads from the hub's API server. Only an Archive needs it: the caches do not have all of a finished job.
	HubReader client.Reader
	// ManagedBy is the value of spec.managedBy of the jobs that may be deleted.
	ManagedBy string
	// Policy returns the DispatchPolicy of a hub TrainJob, nil if there is none.
	Policy func(ctx context.Context, job *unstructured.Unstructured) (*v1alpha1.DispatchPolicy, error)
	// Archive keeps what is deleted. Nil: nobody does.
	Archive Archive
	// Recorder records Events on hub TrainJobs.
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
}

// Reconciler reconciles finished TrainJobs.
type Reconciler struct {
	Options
	started time.Time
	pace    *rate.Limiter
	// archived has the jobs that are in the archive and could not be deleted yet: a version for each NamespacedName.
	archived sync.Map
}

// version is one version of one TrainJob.
type version struct {
	uid             types.UID
	resourceVersion string
}

// NewReconciler makes the controller's reconciler.
func NewReconciler(options Options) *Reconciler {
	return &Reconciler{
		Options: options, started: options.Clock.Now(), pace: rate.NewLimiter(deletionsPerSecond, deletionsPerSecond),
	}
}

// errOutdated is the error of a decision on old data. It is a conflict.
var errOutdated = requeue.Outdated("the cache is behind")

// Reconcile deletes a job whose time after its end is over.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	seen, err := r.observe(hubcache.Patiently(ctx), request.NamespacedName)
	if hubcache.IsUnread(err) {
		return reconcile.Result{}, nil // The cache is about to read the job, or the Dispatch, which wakes us.
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	decided := seen.decide(r.ManagedBy, r.Clock.Now())
	log.FromContext(ctx).V(1).Info("Decided", "state", decided.state)
	switch decided.state {
	case stays:
		r.archived.Delete(request.NamespacedName)
		return reconcile.Result{}, nil
	case unreadable:
		if seen.end().After(r.started) { // Otherwise each start of the manager would repeat it for all such jobs.
			r.recordUnreadable(seen.job, decided.fault)
		}
		return reconcile.Result{}, nil
	case waits:
		return reconcile.Result{RequeueAfter: decided.after}, nil
	case over:
	}
	err = r.remove(ctx, seen, decided.by)
	return requeue.AfterConflict(reconcile.Result{}, err)
}

// observe reads a job, its Dispatch and its policy from the caches. What it returns belongs to the caches.
func (r *Reconciler) observe(ctx context.Context, key types.NamespacedName) (observation, error) {
	seen := observation{}
	dispatch, err := records.Dispatch(ctx, r.Hub, key, client.UnsafeDisableDeepCopy)
	if dispatch == nil {
		return seen, err
	}
	job, err := records.Job(ctx, r.Hub, key, client.UnsafeDisableDeepCopy)
	if job == nil {
		return seen, err
	}
	seen.job, seen.dispatch = job, dispatch
	if _, annotated := ttlAnnotation(job); annotated || record.AttemptOf(dispatch) != record.Finished {
		return seen, nil // The policy does not count.
	}
	policy, err := r.Policy(ctx, job)
	if err != nil { // A policy has a fault, and says so in its condition Valid. Its repair wakes the job.
		log.FromContext(ctx).V(1).Info("Job stays: it is not known which policy it has", "reason", err.Error())
		return seen, nil
	}
	seen.policy = policy
	return seen, nil
}

// remove archives and deletes a job.
func (r *Reconciler) remove(ctx context.Context, seen observation, by string) error {
	if err := r.pace.Wait(ctx); err != nil {
		return err
	}
	if r.Archive != nil {
		if err := r.keep(ctx, seen.job); err != nil {
			return err
		}
	}
	uid, resourceVersion := seen.job.GetUID(), seen.job.GetResourceVersion()
	target := trainjobs.New()
	target.SetNamespace(seen.job.GetNamespace())
	target.SetName(seen.job.GetName())
	err := r.Hub.Delete(ctx, target, client.Preconditions{UID: &uid, ResourceVersion: &resourceVersion})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		err = fmt.Errorf("delete TrainJob %s/%s after its end: %w", seen.job.GetNamespace(), seen.job.GetName(), err)
		r.recordRefused(seen.job, err)
		return err
	}
	r.archived.Delete(client.ObjectKeyFromObject(seen.job))
	deleted.WithLabelValues(by).Inc()
	log.FromContext(ctx).Info("Deleted TrainJob after its end", "uid", uid, "by", by)
	return nil
}

// keep archives a job as the API server has it. It fails with Conflict if that is not what the cache has: then the job
// has to be decided about again.
func (r *Reconciler) keep(ctx context.Context, cached *unstructured.Unstructured) error {
	key := client.ObjectKeyFromObject(cached)
	this := version{uid: cached.GetUID(), resourceVersion: cached.GetResourceVersion()}
	if before, ok := r.archived.Load(key); ok && before == this {
		return nil // Only the deletion has failed.
	}
	job, dispatch := trainjobs.New(), &v1alpha1.Dispatch{}
	for _, object := range []client.Object{job, dispatch} {
		switch err := r.HubReader.Get(ctx, key, object); {
		case apierrors.IsNotFound(err):
			return errOutdated
		case err != nil:
			return fmt.Errorf("get %T %s for the archive: %w", object, key, err)
		}
	}
	if (version{uid: job.GetUID(), resourceVersion: job.GetResourceVersion()}) != this ||
		dispatch.Spec.TrainJob.UID != this.uid {
		return errOutdated
	}
	entry := archive.Entry{TrainJob: job, Dispatch: dispatch, ArchivedAt: r.Clock.Now().UTC()}
	if err := r.Archive.Keep(ctx, entry); err != nil {
		err = fmt.Errorf("archive TrainJob %s: %w", key, err)
		archiveFailures.Inc()
		r.recordNotArchived(cached, err)
		return err
	}
	r.archived.Store(key, this)
	return nil
}
