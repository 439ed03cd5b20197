// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package nomination

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/kueues"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/queue"
	"github.com/trainyard/trainyard/internal/requeue"
	"github.com/trainyard/trainyard/remote"
)

// waiting are the Workloads that need a worker. One goroutine uses it, but any is for all.
type waiting struct {
	keys map[types.NamespacedName]bool
	any  atomic.Bool
}

func (w *waiting) enter(key types.NamespacedName) {
	w.keys[key] = true
	w.any.Store(true)
}

func (w *waiting) leave(key types.NamespacedName) {
	delete(w.keys, key)
	w.any.Store(len(w.keys) > 0)
}

// serve nominates workers for the Workloads of the waiting list, in order: by priority, then by age.
func (r *Reconciler) serve(ctx context.Context) (reconcile.Result, error) {
	if err := r.recall(ctx); err != nil {
		return reconcile.Result{}, err
	}
	applicants, errs := r.applicants(ctx)
	full := map[string]v1alpha1.ClusterExplanation{}
	var next time.Time
	for _, o := range applicants {
		placed, err := r.serveOne(ctx, o, full)
		switch {
		case apierrors.IsConflict(err): // The others go on. The Workload has changed, which brings it back.
			placed = true
		case err != nil:
			errs = append(errs, err)
		}
		if placed {
			r.waiting.leave(o.key)
			continue
		}
		next = requeue.Earlier(next, r.progress(o.key, o.workload.UID).next(r.Clock.Now()))
	}
	if err := errors.Join(errs...); err != nil || next.IsZero() {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: max(next.Sub(r.Clock.Now()), time.Millisecond)}, nil
}

// recall takes the room of all Workloads that are on workers already, before the first one is nominated.
func (r *Reconciler) recall(ctx context.Context) error {
	if r.recalled {
		return nil
	}
	all, err := r.list(ctx)
	if err != nil {
		return err
	}
	for i := range all {
		key := client.ObjectKeyFromObject(&all[i])
		o, err := r.observe(ctx, key)
		if err != nil {
			log.FromContext(ctx).Error(err, "Look at Workload", "workload", key)
			continue
		}
		switch what := decide(o, r.Clock.Now()); what {
		case settled:
			_, err = r.settle(o)
		case granted, away, following:
			err = r.occupy(o, o.nominee())
		case ended, unready, misconfigured, foreign, crossed, refused, unplaced:
		}
		if err != nil {
			log.FromContext(ctx).Error(err, "Take the room of Workload", "workload", key)
		}
	}
	r.recalled = true
	return nil
}

// applicants reads the Workloads of the waiting list, and takes out the Workloads that need no worker any more.
func (r *Reconciler) applicants(ctx context.Context) (all []*observation, errs []error) {
	for key := range r.waiting.keys {
		o, err := r.observe(ctx, key)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if what := decide(o, r.Clock.Now()); what != unplaced && what != refused {
			r.waiting.leave(key)
			r.inbox.Add(key)
			continue
		}
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b *observation) int {
		return cmp.Or(cmp.Compare(b.workload.Spec.Priority, a.workload.Spec.Priority),
			a.workload.CreationTimestamp.Compare(b.workload.CreationTimestamp.Time), cmp.Compare(a.workload.UID, b.workload.UID))
	})
	return all, errs
}

// serveOne nominates a worker for one Workload if a worker has room for it. full has the answers for Workloads that fit
// nowhere: an equal Workload does not fit either.
func (r *Reconciler) serveOne(ctx context.Context, o *observation, full map[string]v1alpha1.ClusterExplanation) (placed bool, err error) {
	m := r.progress(o.key, o.workload.UID)
	if m.over == o.workload.ResourceVersion {
		return true, nil // The cache will show the nomination.
	}
	nominee := o.nominee()
	if nominee != "" {
		reason, message := o.refusal()
		m.refuse(nominee, reason, message, r.Clock.Now())
	}
	job, err := r.job(o)
	if err != nil {
		r.announcer.explainFault(o, err)
		return false, nil
	}
	if job.Excluded, err = r.excluded(ctx, o, m); err != nil {
		return false, err
	}
	asked := job.Job
	asked.Name = ""
	kind := string(nominee) + "\n" + asked.Kind()
	answer, known := full[kind]
	if !known {
		if answer, err = r.Room.Nominate(ctx, job, nominee); err != nil {
			return false, err
		}
	}
	switch answer.Reason {
	case "": // Nothing is known yet. Room.Subscribe tells when.
		return false, nil
	case v1alpha1.ReasonFits:
		return true, r.nominate(ctx, o, answer.Cluster, answer.Message)
	}
	full[kind] = answer
	r.announcer.explainFull(o, answer)
	return false, nil
}

// refusal says in which words the nominated worker has not admitted the job.
func (o *observation) refusal() (reason, message string) {
	nominee := o.nominee()
	seen := o.clones[nominee]
	switch {
	case !slices.Contains(o.targets.clusters, nominee):
		return reasonNotInConfig, notInConfig(&o.targets)
	case seen.state == inadmissible:
		return v1alpha1.ReasonRejected, "the worker's Kueue does not admit the job: " + seen.message
	case seen.state == missing:
		return string(v1alpha1.OutcomeAdmissionTimeout), fmt.Sprintf("MultiKueue has created no Workload there in %s", creationTime)
	}
	return string(v1alpha1.OutcomeAdmissionTimeout), "the worker's Kueue has not admitted the job in time: " + seen.message
}

// job returns what placement needs to know of a Workload, except the exclusions.
func (r *Reconciler) job(o *observation) (queue.Job, error) {
	w := o.workload
	job := queue.Job{Job: dispatch.JobOf(w, nil), Created: w.CreationTimestamp.Time}
	job.Name, _ = w.gang()
	job.Annotations, job.Priority = nil, w.Spec.Priority // The annotations are for Kueue.
	for i := range w.Spec.PodSets {
		given := &w.Spec.PodSets[i]
		pod, err := given.Pod()
		if err != nil {
			return job, fmt.Errorf("read the pods of podSet %q: %w", given.Name, err)
		}
		podSet, err := r.PodSet(given.Name, given.Count, pod)
		if err != nil {
			return job, err
		}
		job.PodSets = append(job.PodSets, podSet)
	}
	return job, nil
}

// excluded returns the workers that must not be nominated now, and why.
func (r *Reconciler) excluded(ctx context.Context, o *observation, m *progress) (map[v1alpha1.ClusterName]dispatch.Exclusion, error) {
	var workers v1alpha1.WorkerClusterList
	if err := r.Hub.List(ctx, &workers, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list WorkerClusters: %w", err)
	}
	all := map[v1alpha1.ClusterName]dispatch.Exclusion{}
	for i := range workers.Items {
		name := v1alpha1.ClusterName(workers.Items[i].Name)
		past := m.refusals[name]
		switch inactive := o.targets.inactive[name]; {
		case !slices.Contains(o.targets.clusters, name):
			all[name] = dispatch.Exclusion{Reason: reasonNotInConfig, Message: notInConfig(&o.targets)}
		case inactive != "":
			all[name] = dispatch.Exclusion{Reason: reasonInactive, Message: inactive}
		case r.unreadable(ctx, name):
			all[name] = dispatch.Exclusion{Reason: reasonUnreadable, Message: messageUnreadable}
		case r.Clock.Now().Before(past.until):
			all[name] = dispatch.Exclusion{Reason: past.reason, Message: past.message}
		}
	}
	return all, nil
}

// unreadable is true for a connected worker whose Workloads the hub cannot list.
func (r *Reconciler) unreadable(ctx context.Context, name v1alpha1.ClusterName) bool {
	worker, ok := r.Connections.Get(name)
	if !ok || worker.Status().State != remote.Connected {
		return false // Placement says so.
	}
	err := worker.Cache().Get(ctx, types.NamespacedName{Namespace: "any", Name: "any"}, kueues.KindWorkload.New())
	return err != nil && !apierrors.IsNotFound(err)
}
