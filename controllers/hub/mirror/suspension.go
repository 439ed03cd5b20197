// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/kueues"
	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/copies"
)

const (
	// workloadCheck is how often, and workloadSearch for how long, the mirror looks for the Workload of a suspended copy.
	workloadCheck  = time.Second
	workloadSearch = 30 * time.Second
	// defaultClass is the WorkloadPriorityClass that Kueue 0.20 gives each job without a class, if its cluster has it.
	defaultClass = "default"
	// classLag is how long a Workload may be missing until the mirror looks for the copy's WorkloadPriorityClass.
	classLag = 5 * time.Second
	// A Workload is read again after a back-off that doubles each time.
	minWorkloadDelay = 5 * time.Second
	maxWorkloadDelay = 2 * time.Minute
)

// workloadsHidden says why the Dispatch does not say what Kueue says.
const workloadsHidden = "the hub may not read Workloads there, which say why: kubectl apply -k config/worker"

// hold is why a copy does not run although its job may.
type hold int

const (
	// free: nothing holds the copy.
	free hold = iota
	// fenced: the worker's agent has stopped the copy, and may not let it run now.
	fenced
	// resumable: the worker's agent has stopped the copy, and lets it run now.
	resumable
	// resumedByQueue: as resumable, but the hub need not end the suspension. The copy is not suspended, or the worker's
	// Kueue decides about its suspension.
	resumedByQueue
	// queued: the worker's Kueue has suspended the copy.
	queued
	// refused: the worker's Kueue will not admit the copy.
	refused
	// classless: the worker's Kueue makes no Workload for the copy, because the copy has the class default, and the worker
	// does not. The copy needs no class then.
	classless
	// unknown: somebody has suspended the copy. It may be Kueue, whose Workload is not there yet.
	unknown
	// suspendedThere: somebody on the worker has suspended the copy.
	suspendedThere
)

// ends is true for what the hub ends now.
func (h hold) ends() bool { return h == resumable || h == resumedByQueue || h == suspendedThere }

// suspension is what this process knows of the suspension of a copy.
type suspension struct {
	// queued is true once the worker's Kueue had a Workload for the copy. A Workload stays as long as its job.
	queued bool
	// unexplained measures since when the copy has been suspended without a Workload.
	unexplained stopwatch
	// classSeen: the copy's WorkloadPriorityClass is there, or cannot be read.
	classSeen bool
	// held is what Kueue said last about this generation of the copy. It counts until next. delay is the last back-off.
	held       held
	generation int64
	delay      time.Duration
	next       time.Time
}

// due is for how long what Kueue said last counts.
func (s *suspension) due(copy *unstructured.Unstructured, now time.Time) time.Duration {
	if copy.GetGeneration() != s.generation {
		return 0
	}
	return max(0, s.next.Sub(now))
}

// note takes in what Kueue says now.
func (s *suspension) note(says held, copy *unstructured.Unstructured, now time.Time) {
	if copy.GetGeneration() != s.generation {
		s.delay = 0
	}
	s.delay = min(max(2*s.delay, minWorkloadDelay), maxWorkloadDelay)
	s.held, s.generation, s.next = says, copy.GetGeneration(), now.Add(s.delay)
}

// over is for a copy that is not suspended.
func (s *suspension) over() { *s = suspension{queued: s.queued} }

// workerKueue finds out what the worker's Kueue says about the copy.
type workerKueue struct {
	seen    *observation
	attempt *attempt
	cluster v1alpha1.ClusterName
	clock   clock.PassiveClock
	worker  copies.Worker
	// connection is Options.Worker.
	connection copies.Connection
}

// holdOf says why the copy does not run. It asks the worker only if the copy is suspended.
func (k *workerKueue) holdOf(ctx context.Context, may permission) (hold, error) {
	stopped := k.seen.isStopped()
	switch {
	case trainjobs.Suspended(k.seen.job): // Placement asks for an eviction.
		return free, nil
	case stopped && !may.ok:
		return fenced, nil
	case !trainjobs.Suspended(k.seen.copy):
		k.attempt.suspension.over()
		if stopped {
			return resumedByQueue, nil
		}
		return free, nil
	}
	owner, err := k.suspensionOf(ctx)
	switch {
	case err != nil || !stopped:
		return owner, err
	case owner == queued || owner == refused:
		return resumedByQueue, nil
	}
	return resumable, nil
}

// suspensionOf says who has suspended the copy: queued, refused, classless, unknown or suspendedThere.
func (k *workerKueue) suspensionOf(ctx context.Context) (hold, error) {
	s, now := &k.attempt.suspension, k.clock.Now()
	if !s.queued || s.due(k.seen.copy, now) == 0 {
		answer, err := k.findWorkload(ctx, k.seen.copy)
		if err != nil {
			return free, err
		}
		s.queued = answer.hasWorkload() || s.queued && answer.installed
		if !s.queued {
			return k.unexplained(ctx, answer)
		}
		s.note(answer.held(), k.seen.copy, now)
	}
	if k.seen.held = s.held; s.held.refuses {
		return refused, nil
	}
	return queued, nil
}

// unexplained says who has suspended a copy without a Workload. Kueue makes none for a copy whose WorkloadPriorityClass
// is missing, and none in a namespace that it does not manage, and only its log says so.
func (k *workerKueue) unexplained(ctx context.Context, answer kueueAnswer) (hold, error) {
	s := &k.attempt.suspension
	since := s.unexplained.elapsed(k.clock.Now())
	if !answer.installed {
		return suspendedThere, nil
	}
	if class := k.seen.copy.GetLabels()[v1alpha1.LabelWorkloadPriorityClass]; class != "" && since >= classLag && !s.classSeen {
		missing, err := k.lacksClass(ctx, class)
		if err != nil {
			return free, err
		}
		if s.classSeen = !missing; missing && class == defaultClass {
			return classless, nil
		}
		if missing {
			k.seen.held = held{refuses: true, message: fmt.Sprintf("the worker has no WorkloadPriorityClass %s, which label %s names, and so its "+
				"Kueue does not queue the copy", class, v1alpha1.LabelWorkloadPriorityClass)}
			return refused, nil
		}
	}
	if since < workloadSearch {
		return unknown, nil
	}
	if queue := k.seen.copy.GetLabels()[v1alpha1.LabelLocalQueue]; queue != "" && !k.hasRun() {
		k.seen.held = held{refuses: true, message: fmt.Sprintf("it has made no Workload for the copy, which is to wait in LocalQueue %s, in %s. "+
			"Kueue suspends TrainJobs and does not queue them if managedJobsNamespaceSelector of its configuration leaves out namespace %q, "+
			"or if it does not run. Without Kueue the copy would run outside of every quota", queue, workloadSearch, k.seen.copy.GetNamespace())}
		return refused, nil
	}
	return suspendedThere, nil
}

// hasRun is true if the Dispatch shows that the copy has run.
func (k *workerKueue) hasRun() bool {
	shown := &k.seen.dispatch.Status
	return k.seen.dispatch.WasCopied() && (shown.StartTime != nil || shown.Stops > 0)
}

// lacksClass is true if the worker says that it has no such WorkloadPriorityClass.
func (k *workerKueue) lacksClass(ctx context.Context, name string) (bool, error) {
	mapping, err := k.worker.RESTMapper().RESTMapping(kueues.KindWorkloadPriorityClass.GroupKind())
	if meta.IsNoMatchError(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for WorkloadPriorityClasses on worker %q: %w", k.cluster, err)
	}
	live, err := k.connection.APIReader()
	if err != nil {
		return false, err
	}
	class := &metav1.PartialObjectMetadata{}
	class.SetGroupVersionKind(mapping.GroupVersionKind)
	switch err := live.Get(ctx, client.ObjectKey{Name: name}, class); {
	case err == nil, apierrors.IsForbidden(err):
		return false, nil
	case apierrors.IsNotFound(err):
		return true, nil
	default:
		return false, fmt.Errorf("get WorkloadPriorityClass %s on worker %q: %w", name, k.cluster, err)
	}
}

// kueueAnswer is what a worker says about its Kueue and one copy.
type kueueAnswer struct {
	// installed: the worker has Kueue. hidden: the hub may not read Workloads. Then the mirror assumes that the copy has a
	// Workload: it does less harm to leave a suspension that is not Kueue's than to have two systems undo each other's
	// writes.
	installed, hidden bool
	// workload is nil if there is none.
	workload *unstructured.Unstructured
}

func (a kueueAnswer) hasWorkload() bool { return a.hidden || a.workload != nil }

// held is what Kueue says of a copy that it has in its queue.
func (a kueueAnswer) held() held {
	switch {
	case a.hidden:
		return held{reason: v1alpha1.ReasonHeldByWorker, message: workloadsHidden}
	case a.workload == nil:
		return held{reason: v1alpha1.ReasonHeldByWorker, message: "Kueue has no Workload for the copy now"}
	}
	return heldBy(a.workload)
}

// isQueued is true if the worker's Kueue has, or had, a Workload for the copy.
func (k *workerKueue) isQueued(ctx context.Context, copy *unstructured.Unstructured) (bool, error) {
	if k.attempt.suspension.queued {
		return true, nil
	}
	answer, err := k.findWorkload(ctx, copy)
	k.attempt.suspension.queued = answer.hasWorkload()
	return answer.hasWorkload(), err
}

// cachedWorkload returns the copy's Workload from the worker's cache. It is nil if the cache does not show one. The
// cache has Workloads only if their quota counts.
func (k *workerKueue) cachedWorkload(ctx context.Context, copy *unstructured.Unstructured) *unstructured.Unstructured {
	if err := k.worker.Get(ctx, client.ObjectKeyFromObject(copy), kueues.KindWorkload.New()); client.IgnoreNotFound(err) != nil {
		return nil // Not cached, or not listed yet: a list would wait for that.
	}
	workloads := kueues.KindWorkload.NewList()
	if err := k.worker.List(ctx, workloads, client.InNamespace(copy.GetNamespace()), ofCopy(copy)); err != nil {
		return nil
	}
	return controlledBy(workloads, copy)
}

// ofCopy selects the Workload of a copy.
func ofCopy(copy *unstructured.Unstructured) client.ListOption {
	return client.MatchingLabels{kueues.KeyJobUID: string(copy.GetUID())}
}

func controlledBy(workloads *unstructured.UnstructuredList, copy *unstructured.Unstructured) *unstructured.Unstructured {
	for i := range workloads.Items {
		if metav1.IsControlledBy(&workloads.Items[i], copy) {
			return &workloads.Items[i]
		}
	}
	return nil
}

// findWorkload asks the worker for its Kueue and for the copy's Workload.
func (k *workerKueue) findWorkload(ctx context.Context, copy *unstructured.Unstructured) (kueueAnswer, error) {
	if cached := k.cachedWorkload(ctx, copy); cached != nil {
		return kueueAnswer{installed: true, workload: cached}, nil
	}
	mapping, err := k.worker.RESTMapper().RESTMapping(kueues.KindWorkload.GroupKind()) // In whichever version the worker serves.
	if meta.IsNoMatchError(err) {
		return kueueAnswer{}, nil
	}
	if err != nil {
		return kueueAnswer{}, fmt.Errorf("look for Kueue on worker %q: %w", k.cluster, err)
	}
	live, err := k.connection.APIReader()
	if err != nil {
		return kueueAnswer{}, err
	}
	workloads := &unstructured.UnstructuredList{}
	workloads.SetGroupVersionKind(mapping.GroupVersionKind)
	err = live.List(ctx, workloads, client.InNamespace(copy.GetNamespace()), ofCopy(copy), client.Limit(1))
	switch {
	case apierrors.IsForbidden(err):
		return kueueAnswer{installed: true, hidden: true}, nil
	case apierrors.IsNotFound(err): // Kueue has been removed.
		return kueueAnswer{}, nil
	case err != nil:
		return kueueAnswer{}, fmt.Errorf("list Workloads of TrainJob %s/%s on worker %q: %w", copy.GetNamespace(), copy.GetName(), k.cluster, err)
	}
	return kueueAnswer{installed: true, workload: controlledBy(workloads, copy)}, nil
}

// resume lets the copy go on, as far as it may, and returns the fields that somebody on the worker had changed. A
// fenced copy gets the last challenge. By the age of the challenge the agent recognises a resumption or a creation that
// took too long.
func resume(copy *unstructured.Unstructured, why hold, may permission) (restored []string) {
	if !why.ends() {
		return nil
	}
	trainjobs.SetAnnotation(copy, v1alpha1.AnnotationFenced, "")
	if why == suspendedThere {
		restored = []string{"spec.suspend"}
	}
	if why != resumedByQueue {
		copy.Object["spec"].(map[string]any)["suspend"] = false
	}
	if may.fenced && may.challenge != "" {
		trainjobs.SetAnnotation(copy, v1alpha1.AnnotationChallenge, may.challenge)
	}
	return restored
}
