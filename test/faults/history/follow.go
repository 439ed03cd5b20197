// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

const (
	// retryDelay is how long to wait for an API server that is away.
	retryDelay = 50 * time.Millisecond
	// A change may have happened up to breakLag before the end of a watch without an event.
	breakLag = 100 * time.Millisecond
)

// follower tells all that happens to the objects of one kind on one cluster.
type follower struct {
	client client.WithWatch
	list   client.ObjectList // an empty one of the kind
	// each says that every version of an object counts, not only the last.
	each   bool
	handle func(object client.Object, gone bool, when moment)

	known   map[types.UID]client.Object
	version string // of the last event; empty: nothing is known yet
	// expired says that the API server does not have the events since version any more.
	expired bool
	// The watch was interrupted. Events up to the version replayed are from before its return. broken is the time since
	// when nothing is known.
	replayed uint64
	broken   time.Time
}

// run follows until the context ends. It calls ready when it knows all that there is.
func (f *follower) run(ctx context.Context, ready func()) {
	f.known, f.broken = map[types.UID]client.Object{}, time.Now()
	for ctx.Err() == nil {
		err := f.resume(ctx)
		if err == nil {
			ready()
			err = f.watch(ctx)
			f.broken = time.Now().Add(-breakLag)
		}
		if apierrors.IsGone(err) || apierrors.IsResourceExpired(err) {
			f.expired = true
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryDelay):
		}
	}
}

// resume finds out up to which version events come late. If they cannot come any more, it lists everything.
func (f *follower) resume(ctx context.Context) error {
	list := f.list.DeepCopyObject().(client.ObjectList)
	options := &client.ListOptions{}
	continues := f.version != "" && !f.expired
	if continues {
		options.Limit = 1 // Only the version of the list counts.
	}
	if err := f.client.List(ctx, list, options); err != nil {
		return err
	}
	version := list.GetResourceVersion()
	var err error
	if f.replayed, err = strconv.ParseUint(version, 10, 64); err != nil || continues {
		return err
	}
	listed := map[types.UID]bool{}
	when := moment{earliest: f.broken, latest: time.Now()}
	err = meta.EachListItem(list, func(item runtime.Object) error {
		object := item.(client.Object)
		listed[object.GetUID()] = true
		return f.learn(ctx, object, when)
	})
	if err != nil {
		return err
	}
	for uid, object := range f.known {
		if !listed[uid] {
			delete(f.known, uid)
			when.gap = true // Nobody has its versions: they can only be listed back from a later version.
			f.handle(object, true, when)
		}
	}
	f.version, f.expired = version, false
	return nil
}

// learn tells what has become of an object since the last event.
func (f *follower) learn(ctx context.Context, object client.Object, when moment) error {
	versions := []client.Object{object}
	if f.each && f.version != "" {
		missed, err := f.missed(ctx, object)
		when.gap = apierrors.IsGone(err) || apierrors.IsResourceExpired(err)
		if err != nil && !when.gap {
			return err
		}
		versions = append(versions, missed...)
	}
	f.known[object.GetUID()] = object
	for _, version := range slices.Backward(versions) {
		f.handle(version, false, when)
		when.gap = false
	}
	return nil
}

// missed returns the versions of an object between the one that is known and this one, the newest first. A list gives
// each of them, as it was just before the next one was written: etcd keeps old versions for some minutes.
func (f *follower) missed(ctx context.Context, object client.Object) ([]client.Object, error) {
	known := f.known[object.GetUID()]
	var missed []client.Object
	for known == nil || object.GetResourceVersion() != known.GetResourceVersion() {
		before, err := f.before(ctx, object)
		if err != nil || before == nil {
			return missed, err
		}
		if known == nil || before.GetResourceVersion() != known.GetResourceVersion() {
			missed = append(missed, before)
		}
		object = before
	}
	return missed, nil
}

// before returns the version of an object before this one, nil for the first one.
func (f *follower) before(ctx context.Context, object client.Object) (before client.Object, err error) {
	version, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	if err != nil {
		return nil, err
	}
	list := f.list.DeepCopyObject().(client.ObjectList)
	if err := f.client.List(ctx, list, &client.ListOptions{
		Namespace: object.GetNamespace(), FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, object.GetName()),
		Raw: &metav1.ListOptions{
			ResourceVersion: strconv.FormatUint(version-1, 10), ResourceVersionMatch: metav1.ResourceVersionMatchExact,
		},
	}); err != nil {
		return nil, err
	}
	err = meta.EachListItem(list, func(item runtime.Object) error {
		if found := item.(client.Object); found.GetUID() == object.GetUID() {
			before = found
		}
		return nil
	})
	return before, err
}

// watch tells events until the watch ends.
func (f *follower) watch(ctx context.Context) error {
	events, err := f.client.Watch(ctx, f.list.DeepCopyObject().(client.ObjectList), &client.ListOptions{
		Raw: &metav1.ListOptions{ResourceVersion: f.version, AllowWatchBookmarks: true},
	})
	if err != nil {
		return err
	}
	defer events.Stop()
	for event := range events.ResultChan() {
		if event.Type == watch.Error {
			return apierrors.FromObject(event.Object)
		}
		object, ok := event.Object.(client.Object)
		if !ok {
			continue
		}
		f.version = object.GetResourceVersion()
		if event.Type == watch.Bookmark {
			continue
		}
		when := moment{earliest: time.Now(), latest: time.Now()}
		if version, err := strconv.ParseUint(f.version, 10, 64); err == nil && version <= f.replayed {
			when.earliest = f.broken
		}
		gone := event.Type == watch.Deleted
		if gone {
			delete(f.known, object.GetUID())
		} else {
			f.known[object.GetUID()] = object
		}
		f.handle(object, gone, when)
	}
	return nil
}

// version is one version of an object, in short.
type version struct {
	at              time.Time
	resourceVersion string
	text            string
}

// record is what was seen of one Dispatch or TrainJob of the hub.
type record[T any] struct {
	versions []version
	last     T
	ended    bool // the last version is of a job that has ended
	gone     bool
}

// hub keeps the versions of the hub's objects and finds what is wrong with them. It is not safe for concurrent use.
type hub struct {
	dispatches map[types.UID]*record[*v1alpha1.Dispatch]
	trainJobs  map[types.UID]*record[*unstructured.Unstructured]
	// transition says what is wrong with a version of a Dispatch after another, nil if nothing is.
	transition func(before, after *v1alpha1.Dispatch) error
	wrong      map[types.UID][]string // by TrainJob
	// hidden takes off the fields that the API server hides. nil: it hides none.
	hidden func(*v1alpha1.Dispatch)
}

func newHub(transition func(before, after *v1alpha1.Dispatch) error) *hub {
	return &hub{
		dispatches: map[types.UID]*record[*v1alpha1.Dispatch]{}, trainJobs: map[types.UID]*record[*unstructured.Unstructured]{},
		transition: transition, wrong: map[types.UID][]string{},
	}
}

func (h *hub) fault(job types.UID, format string, args ...any) {
	h.wrong[job] = append(h.wrong[job], fmt.Sprintf(format, args...))
}

// dispatch takes in a version of a Dispatch.
func (h *hub) dispatch(d *v1alpha1.Dispatch, gone bool, when moment) {
	known := h.dispatches[d.UID]
	if known == nil {
		known = &record[*v1alpha1.Dispatch]{}
		h.dispatches[d.UID] = known
	}
	if gone {
		known.gone = true
		known.add(when, d.ResourceVersion, "gone")
		return
	}
	if before := known.last; before != nil {
		if before.ResourceVersion == d.ResourceVersion {
			return
		}
		job := d.Spec.TrainJob.UID
		if known.ended && d.DeletionTimestamp == nil {
			h.fault(job, "the Dispatch %s/%s was written after its end: %s", d.Namespace, d.Name, cmp.Diff(before, d))
		}
		if err := h.transition(h.shown(before), h.shown(d)); err != nil && !when.gap {
			h.fault(job, "the Dispatch %s/%s went from version %s to %s: %v", d.Namespace, d.Name, before.ResourceVersion, d.ResourceVersion, err)
		}
	}
	known.last, known.ended = d, d.IsFinished()
	known.add(when, d.ResourceVersion, describeDispatch(d))
}

// shown returns the Dispatch without the fields that are hidden.
func (h *hub) shown(d *v1alpha1.Dispatch) *v1alpha1.Dispatch {
	if h.hidden != nil {
		d = d.DeepCopy()
		h.hidden(d)
	}
	return d
}

// trainJob takes in a version of a hub TrainJob.
func (h *hub) trainJob(job *unstructured.Unstructured, gone bool, when moment) {
	known := h.trainJobs[job.GetUID()]
	if known == nil {
		known = &record[*unstructured.Unstructured]{}
		h.trainJobs[job.GetUID()] = known
	}
	if gone {
		known.gone = true
		known.add(when, job.GetResourceVersion(), "gone")
		return
	}
	if before := known.last; before != nil {
		if before.GetResourceVersion() == job.GetResourceVersion() {
			return
		}
		if known.ended && job.GetDeletionTimestamp() == nil {
			h.fault(job.GetUID(), "the TrainJob %s/%s was written after its end: %s", job.GetNamespace(), job.GetName(), cmp.Diff(before, job))
		}
	}
	known.last, known.ended = job, trainjobs.Terminal(job) != nil
	known.add(when, job.GetResourceVersion(), describeTrainJob(job))
}

func (r *record[T]) add(when moment, resourceVersion, text string) {
	if when.gap {
		text += " (versions before this one may be missing: the watch had a gap)"
	}
	r.versions = append(r.versions, version{at: when.latest, resourceVersion: resourceVersion, text: text})
}

func describeDispatch(d *v1alpha1.Dispatch) string {
	var b strings.Builder
	fmt.Fprintf(&b, "attempt %d on %q, status of attempt %d on %q: %s %s", d.Spec.Attempt, d.Spec.Cluster, d.Status.Attempt, d.Status.Cluster,
		d.Status.Phase, d.Status.Reason)
	for _, c := range d.Status.Conditions {
		fmt.Fprintf(&b, ", %s=%s/%s", c.Type, c.Status, c.Reason)
		if c.Type == v1alpha1.DispatchWorkerLost { // The reason Hold has several causes.
			fmt.Fprintf(&b, " (%s)", c.Message)
		}
	}
	if d.Spec.Failover != "" {
		fmt.Fprintf(&b, ", failover %s", d.Spec.Failover)
	}
	if d.Spec.Eviction != nil {
		fmt.Fprintf(&b, ", eviction %s", d.Spec.Eviction.Reason)
	}
	if d.DeletionTimestamp != nil {
		fmt.Fprintf(&b, ", deleted, finalizers %v", d.Finalizers)
	}
	return b.String()
}

func describeTrainJob(job *unstructured.Unstructured) string {
	var b strings.Builder
	conditions, _, _ := unstructured.NestedSlice(job.Object, "status", "conditions")
	fmt.Fprintf(&b, "suspended: %v", trainjobs.Suspended(job))
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok {
			fmt.Fprintf(&b, ", %v=%v/%v", c["type"], c["status"], c["reason"])
		}
	}
	if job.GetDeletionTimestamp() != nil {
		fmt.Fprintf(&b, ", deleted, finalizers %v", job.GetFinalizers())
	}
	return b.String()
}

// restored forgets the last versions: the next versions do not follow from them.
func (h *hub) restored() {
	for _, known := range h.dispatches {
		known.last, known.ended = nil, false
		known.versions = append(known.versions, version{at: time.Now(), text: "the hub is restored from a backup"})
	}
	for _, known := range h.trainJobs {
		known.last, known.ended = nil, false
	}
}
