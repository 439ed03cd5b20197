// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

const (
	// RenewInterval is how often a CapacityReport is written at least.
	RenewInterval = 30 * time.Second
	// reportPatience is how long a report may go without being renewed.
	reportPatience = 3 * RenewInterval
)

// Messages about a report, each of which says what to do.
const (
	messageReportPending = "the capacity report is being read"
	messageNoReportCRD   = "the worker has no CapacityReport API: install it and the agent with kubectl apply --server-side -k config/worker-agent, " +
		"or set spec.capacity to Pods"
	messageReportForbidden = "the worker forbids to list and watch capacityreports.trainyard.dev: grant it to the hub's user " +
		"(kubectl apply -k config/worker), or set spec.capacity to Pods"
	messageNoReport = "the worker has no CapacityReport named \"" + v1alpha1.CapacityReportName + "\": " +
		"see that its agent runs with --capacity-report, or set spec.capacity to Pods"
	messageReportStale = "the worker's CapacityReport is not renewed any more: see that its agent runs and holds its lease, or set spec.capacity to Pods"
)

// reported is the Inventory that a worker's CapacityReport says.
type reported struct {
	audience
	clock clock.PassiveClock
	// wake is told when what state returns may be another one.
	wake func()

	mu sync.Mutex
	// locked is guarded by mu.
	locked struct {
		// report is the last one that there was, present whether it is still there.
		report  *v1alpha1.CapacityReport
		present bool
		// fault is why it makes no sense, nil if it does.
		fault error
		// renewed is when it was last seen to be another one, by our clock.
		renewed  time.Time
		stale    bool
		snapshot *Snapshot
	}
}

func newReported(clock clock.PassiveClock, wake func()) *reported {
	r := &reported{clock: clock, wake: wake}
	r.locked.snapshot = &Snapshot{}
	return r
}

// Snapshot implements Inventory.
func (r *reported) Snapshot() *Snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.locked.snapshot
}

// state implements capacitySource. A report is stale when nobody has renewed it for too long, by our clock and while we could have seen
// it. A hub that has just begun to look can only begin to count.
func (r *reported) state(connected time.Time, listed bool, code int) (CapacityState, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := &r.locked
	l.stale = false
	since := l.renewed
	if since.Before(connected) {
		since = connected // While there was no connection nothing could be seen.
	}
	switch {
	case code == http.StatusNotFound:
		return CapacityReportMissing, messageNoReportCRD
	case code == http.StatusForbidden:
		return CapacityReportMissing, messageReportForbidden
	case !listed:
		return CapacityPending, messageReportPending
	case !l.present:
		return CapacityReportMissing, messageNoReport
	case l.fault != nil:
		return CapacityReportMissing, fmt.Sprintf("the worker's CapacityReport makes no sense: %v: its agent and this hub must be of compatible versions", l.fault)
	case r.clock.Since(since) >= reportPatience:
		l.stale = true
		return CapacityReportStale, messageReportStale
	case len(l.report.Abridged) > 0:
		return CapacityKnown, abridgedMessage(l.report.Abridged)
	}
	return CapacityKnown, ""
}

func abridgedMessage(abridged []v1alpha1.Abridgement) string {
	names := make([]string, 0, len(abridged))
	for _, name := range abridged {
		names = append(names, string(name))
	}
	slices.Sort(names)
	return "its CapacityReport would be too large, so that it shows less than there is (" + strings.Join(names, ", ") + ")"
}

// set takes another report. One that only was renewed changes nothing but that it is not stale.
func (r *reported) set(report *v1alpha1.CapacityReport) {
	if report.Name != v1alpha1.CapacityReportName {
		return
	}
	r.mu.Lock()
	l := &r.locked
	before := l.report
	wake := !l.present || l.stale || l.fault != nil
	if before == nil || !before.RenewTime.Equal(&report.RenewTime) {
		l.renewed = r.clock.Now()
	}
	l.report, l.present = report, true
	changed := before == nil || l.fault != nil || !sameContent(before, report)
	if changed {
		wake = wake || before != nil && !slices.Equal(before.Abridged, report.Abridged)
		var snapshot *Snapshot
		if snapshot, l.fault = snapshotOf(report); l.fault == nil {
			snapshot.Generation = l.snapshot.Generation + 1
			l.snapshot = snapshot
		} else {
			changed, wake = false, true
		}
	}
	r.mu.Unlock()
	if changed {
		r.tell()
	}
	if wake {
		r.wake()
	}
}

// remove keeps what was last known, and remembers that it is no longer there.
func (r *reported) remove(name string) {
	if name != v1alpha1.CapacityReportName {
		return
	}
	r.mu.Lock()
	r.locked.present = false
	r.mu.Unlock()
	r.wake()
}

// sameContent says whether two reports differ in nothing but when they were written.
func sameContent(a, b *v1alpha1.CapacityReport) bool {
	left, right := *a, *b
	left.TypeMeta, left.ObjectMeta, left.RenewTime = metav1.TypeMeta{}, metav1.ObjectMeta{}, metav1.MicroTime{}
	right.TypeMeta, right.ObjectMeta, right.RenewTime = metav1.TypeMeta{}, metav1.ObjectMeta{}, metav1.MicroTime{}
	return equality.Semantic.DeepEqual(left, right)
}

func (r *reported) kinds() []cachedKind {
	return []cachedKind{{
		resourceCapacityReports, v1alpha1.GroupVersion.WithKind("CapacityReport"), meta.RESTScopeRoot, &v1alpha1.CapacityReport{},
		cache.ByObject{
			Field:     fields.OneTermEqualSelector(metav1.ObjectNameField, v1alpha1.CapacityReportName),
			Transform: cache.TransformStripManagedFields(),
		},
	}}
}

func (r *reported) handlers() map[string]toolscache.ResourceEventHandler {
	return map[string]toolscache.ResourceEventHandler{resourceCapacityReports: toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { r.set(obj.(*v1alpha1.CapacityReport)) },
		UpdateFunc: func(_, obj any) { r.set(obj.(*v1alpha1.CapacityReport)) },
		DeleteFunc: func(obj any) { r.remove(keyOf(obj).Name) },
	}}
}
