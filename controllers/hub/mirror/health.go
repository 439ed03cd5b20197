// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/copies"
	"github.com/trainyard/trainyard/internal/health"
)

const (
	// healthWindow is how long a trouble or its end is shown at least. A pod that comes and goes is not worth more writes.
	healthWindow = 30 * time.Second
	// podPatience is how long a copy on a worker without an agent may be without a running step until its pods are read.
	podPatience = time.Minute
	// Pods are read again after a back-off that doubles each time.
	minPodDelay = 30 * time.Second
	maxPodDelay = 5 * time.Minute
	// podLimit is how many pods of a copy are read. The first ones of a gang tell as much as all.
	podLimit = 500
)

// copyHealth is what is known of the health of a copy.
type copyHealth struct {
	// trouble keeps the copy from making progress, nil if none is known.
	trouble *trainjobs.Trouble
	// hidden: nobody on the worker says how the copy is, and the hub may not look.
	hidden bool
}

// podReading is what this process has found in the pods of a copy, on a worker without an agent.
type podReading struct {
	found copyHealth
	// idle measures since when no step has run.
	idle stopwatch
	// seen is what was seen of the pods, and when.
	seen health.Jobs
	// last is when the pods were read, and delay is how long that counts.
	last  time.Time
	delay time.Duration
}

// checkup finds out how the copy is.
type checkup struct {
	seen    *observation
	attempt *attempt
	cluster v1alpha1.ClusterName
	clock   clock.PassiveClock
	// connection, lease and jobSetMissing are of the Options.
	connection    copies.Connection
	lease         func() (challenge string, ok bool)
	jobSetMissing func() string
	reporter      *reporter
}

// observe takes in what keeps the copy from making progress. The worker's agent says it. Where there is no agent,
// the pods of a copy without a running step are read. It returns when to look again.
func (c *checkup) observe(ctx context.Context) (time.Duration, error) {
	if challenge, _ := c.lease(); challenge != "" || c.seen.copy.GetAnnotations()[v1alpha1.AnnotationStalled] != "" {
		c.seen.health = copyHealth{trouble: trainjobs.TroubleOf(c.seen.copy)}
		return 0, nil
	}
	l, now := &c.attempt.pods, c.clock.Now()
	if phase, _ := c.seen.phase(); phase != v1alpha1.PhaseStarting && phase != v1alpha1.PhaseRestarting {
		*l = podReading{}
		return 0, nil
	}
	due := podPatience - l.idle.elapsed(now)
	if !l.last.IsZero() {
		due = l.delay - now.Sub(l.last)
	}
	if due > 0 {
		c.seen.health = l.found
		return due, nil
	}
	found, err := c.readPods(ctx, l, now)
	if err == nil {
		err = c.readStuck(ctx)
	}
	if err != nil {
		return 0, err
	}
	l.found, l.last, l.delay = found, now, min(max(2*l.delay, minPodDelay), maxPodDelay)
	c.seen.health = found
	return l.delay, nil
}

// readPods finds in the pods of the copy what keeps it from making progress.
func (c *checkup) readPods(ctx context.Context, l *podReading, now time.Time) (copyHealth, error) {
	live, err := c.connection.APIReader()
	if err != nil {
		return copyHealth{}, err
	}
	var list corev1.PodList
	err = live.List(ctx, &list, client.InNamespace(c.seen.dispatch.Namespace),
		client.MatchingLabels{jobsetv1alpha2.JobSetNameKey: c.seen.dispatch.Name}, client.Limit(podLimit))
	switch {
	case apierrors.IsForbidden(err):
		return copyHealth{hidden: true}, nil
	case err != nil:
		return copyHealth{}, fmt.Errorf("list pods of TrainJob %s/%s on worker %q: %w", c.seen.dispatch.Namespace, c.seen.dispatch.Name, c.cluster, err)
	}
	in := health.Input{Since: c.attempt.copy.since, Pods: make([]*corev1.Pod, len(list.Items))}
	for i := range list.Items {
		in.Pods[i] = &list.Items[i]
	}
	recorded := ""
	if said := record.Trouble(c.seen.dispatch); said != nil {
		recorded = said.Reason
	}
	l.seen.Observe(types.NamespacedName{}, &in, recorded, now) // One job, whose name does not matter.
	trouble, _ := health.Diagnose(in, health.DefaultLimits(), now)
	if trouble != nil && trouble.Reason == health.NoPodReady {
		if in.Warning, err = c.readWarning(ctx, live, in.Pods); err != nil {
			return copyHealth{}, err
		}
		trouble, _ = health.Diagnose(in, health.DefaultLimits(), now)
	}
	if trouble == nil {
		return copyHealth{}, nil
	}
	said := trainjobs.Trouble(*trouble)
	return copyHealth{trouble: &said}, nil
}

// readWarning finds in the worker's Events why no pod of the copy is ready. Empty: they do not say it, or the hub may
// not read them.
func (c *checkup) readWarning(ctx context.Context, live client.Reader, pods []*corev1.Pod) (string, error) {
	object := trainjobs.NewJobSet()
	if err := live.Get(ctx, client.ObjectKeyFromObject(c.seen.dispatch), object); err != nil {
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			return "", nil
		}
		return "", fmt.Errorf("get JobSet %s/%s on worker %q: %w", c.seen.dispatch.Namespace, c.seen.dispatch.Name, c.cluster, err)
	}
	var jobSet jobsetv1alpha2.JobSet
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &jobSet); err != nil {
		return "", fmt.Errorf("convert JobSet %s/%s: %w", c.seen.dispatch.Namespace, c.seen.dispatch.Name, err)
	}
	words, err := health.WarningOf(ctx, live, &jobSet, pods)
	if apierrors.IsForbidden(err) {
		return "", nil
	}
	return words, err
}

// healthy is the condition Healthy that the Dispatch has to show, nil if it needs none. It returns when that can change
// without an event: a trouble that comes and goes is shown for a while.
func (r *reporter) healthy() (*metav1.Condition, time.Duration) {
	shown := meta.FindStatusCondition(r.seen.dispatch.Status.Conditions, v1alpha1.DispatchHealthy)
	want := &metav1.Condition{Type: v1alpha1.DispatchHealthy}
	switch {
	case r.seen.health.trouble != nil:
		want.Status, want.Reason = metav1.ConditionFalse, r.seen.health.trouble.Reason
		want.Message = record.Message(fmt.Sprintf("on worker %q: %s", r.cluster, r.seen.health.trouble.Message))
	case r.seen.health.hidden:
		want.Status, want.Reason = metav1.ConditionUnknown, v1alpha1.ReasonNotVisible
		want.Message = fmt.Sprintf("no step of the copy runs. Worker %q has no agent that says why, and the hub may not list pods "+
			"there: kubectl apply -k config/worker", r.cluster)
	case shown == nil:
		return nil, 0
	default:
		want.Status, want.Reason = metav1.ConditionTrue, v1alpha1.ReasonRecovered
		want.Message = "no trouble of the copy is known any more"
	}
	if shown == nil || shown.Status == want.Status || shown.Status == metav1.ConditionUnknown {
		return want, 0
	}
	if left := healthWindow - r.clock.Since(shown.LastTransitionTime.Time); left > 0 {
		return shown, left
	}
	return want, 0
}

// saysHealth is true if the Dispatch shows this condition.
func (f *observation) saysHealth(want *metav1.Condition) bool {
	shown := meta.FindStatusCondition(f.dispatch.Status.Conditions, v1alpha1.DispatchHealthy)
	if want == nil || shown == nil {
		return want == shown
	}
	return shown.Status == want.Status && shown.Reason == want.Reason && shown.Message == want.Message
}

// health says on the hub TrainJob that a trouble has begun or is over. The same trouble in other words is not reported
// again.
func (a *announcer) health(want *metav1.Condition) {
	shown := meta.FindStatusCondition(a.seen.dispatch.Status.Conditions, v1alpha1.DispatchHealthy)
	switch {
	case want == nil, shown != nil && shown.Status == want.Status && shown.Reason == want.Reason:
	case want.Status == metav1.ConditionFalse:
		a.record(corev1.EventTypeWarning, want.Reason, "On worker %s: %s", a.cluster, a.seen.health.trouble.Message)
	case want.Status == metav1.ConditionTrue && shown != nil && shown.Status == metav1.ConditionFalse:
		a.record(corev1.EventTypeNormal, want.Reason, "On worker %s: %s", a.cluster, want.Message)
	}
}
