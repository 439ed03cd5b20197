// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

const (
	// RenewInterval is the longest time between two writes of a CapacityReport.
	RenewInterval = 30 * time.Second
	// reportPatience is how long a report stays valid without a renewal.
	reportPatience = 3 * RenewInterval
)

// These messages about a report say what to do.
const (
	messageReportPending = "the capacity report is being read"
	messageNoReportCRD   = "the worker has no CapacityReport API: install it and the agent with kubectl apply " +
		"--server-side -k config/worker-agent, or set spec.capacity to Pods"
	messageReportForbidden = "the worker does not let the hub's user list and watch capacityreports.trainyard.dev: " +
		"grant these rights (kubectl apply -k config/worker), or set spec.capacity to Pods"
	messageNoReport = "the worker has no CapacityReport named \"" + v1alpha1.CapacityReportName + "\": check that its " +
		"agent runs with --capacity-report, or set spec.capacity to Pods"
	messageReportStale = "the worker's CapacityReport is not renewed any more: check that its agent runs and holds its " +
		"lease, or set spec.capacity to Pods"
	messageReportWithoutQuota = "the worker's CapacityReport has no quota, and spec.kueue.capacity counts it: check that its " +
		"agent runs with --kueue-quota and may read Kueue's objects (kubectl apply -k config/worker-agent-kueue), or set " +
		"spec.kueue.capacity to Ignore"
)

// Reported is an Inventory that reads a worker's CapacityReport.
type Reported struct {
	audience
	clock clock.PassiveClock
	// wake is called when the result of State may have changed.
	wake func()
	// quota: a report without quota is not enough.
	quota bool

	mu sync.Mutex
	// locked is guarded by mu.
	locked struct {
		// report is the last known report. present says whether it still exists.
		report  *v1alpha1.CapacityReport
		present bool
		// fault says why the report is invalid. It is nil for a valid report.
		fault error
		// renewed is when this process last saw a new RenewTime, by its own clock.
		renewed  time.Time
		stale    bool
		snapshot *Snapshot
	}
}

// NewReported returns an inventory without a report. It calls wake when the result of State may have changed.
func NewReported(clock clock.PassiveClock, wake func()) *Reported {
	r := &Reported{clock: clock, wake: wake}
	r.locked.snapshot = &Snapshot{}
	return r
}

// RequireQuota makes State say QuotaMissing for a report that has no quota. It must be called before the first event.
func (r *Reported) RequireQuota() { r.quota = true }

// Snapshot implements Inventory.
func (r *Reported) Snapshot() *Snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.locked.snapshot
}

// State says whether the inventory of a Connected worker is reliable, and what an admin should do about it. connected
// is the time since which the worker is Connected. listed says whether the reports are listed. code is the HTTP status
// with which the worker refuses to list them, or 0. A report is stale when nobody has renewed it for reportPatience.
// Only this process's clock counts, and only time in which the worker was Connected.
func (r *Reported) State(connected time.Time, listed bool, code int) (State, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := &r.locked
	l.stale = false
	since := l.renewed
	if since.Before(connected) {
		since = connected // Without a connection this process could see no renewal.
	}
	switch {
	case code == http.StatusNotFound:
		return ReportMissing, messageNoReportCRD
	case code == http.StatusForbidden:
		return ReportMissing, messageReportForbidden
	case !listed:
		return Pending, messageReportPending
	case !l.present:
		return ReportMissing, messageNoReport
	case l.fault != nil:
		return ReportMissing, fmt.Sprintf("the worker's CapacityReport cannot be read: %v: run compatible versions of the "+
			"agent and the manager", l.fault)
	case r.clock.Since(since) >= reportPatience:
		l.stale = true
		return ReportStale, messageReportStale
	case r.quota && l.report.Kueue == nil:
		return QuotaMissing, messageReportWithoutQuota
	case len(l.report.Abridged) > 0:
		return Known, abridgedMessage(l.report.Abridged)
	case len(l.report.Uncounted) > 0:
		return Known, strings.Join(l.report.Uncounted, "; ")
	}
	return Known, ""
}

func abridgedMessage(abridged []v1alpha1.Abridgement) string {
	names := make([]string, 0, len(abridged))
	for _, name := range abridged {
		names = append(names, string(name))
	}
	slices.Sort(names)
	return "its CapacityReport would be too large, so it leaves out a part of the capacity (" + strings.Join(names, ", ") + ")"
}

// set takes a new version of the report. If only RenewTime has changed, the inventory does not change.
func (r *Reported) set(report *v1alpha1.CapacityReport) {
	if report.Name != v1alpha1.CapacityReportName {
		return
	}
	changed, wake := r.take(report)
	if changed {
		r.notify()
	}
	if wake {
		r.wake()
	}
}

// take takes a report under the lock. changed: the inventory has changed. wake: the result of State may have changed.
func (r *Reported) take(report *v1alpha1.CapacityReport) (changed, wake bool) {
	r.mu.Lock()
	defer r.mu.Unlock() // Also after a panic, or Snapshot would wait for ever.
	l := &r.locked
	before := l.report
	wake = !l.present || l.stale || l.fault != nil
	if before == nil || !before.RenewTime.Equal(&report.RenewTime) {
		l.renewed = r.clock.Now()
	}
	l.report, l.present = report, true
	changed = before == nil || l.fault != nil || !sameContent(before, report)
	if changed {
		wake = wake || before != nil && !slices.Equal(before.Abridged, report.Abridged)
		wake = wake || before != nil && !slices.Equal(before.Uncounted, report.Uncounted)
		wake = wake || before != nil && (before.Kueue == nil) != (report.Kueue == nil)
		var snapshot *Snapshot
		if snapshot, l.fault = snapshotOf(report); l.fault == nil {
			snapshot.Generation = l.snapshot.Generation + 1
			l.snapshot = snapshot
		} else {
			changed, wake = false, true
		}
	}
	return changed, wake
}

// remove records that the report does not exist any more. It keeps the last inventory.
func (r *Reported) remove(name string) {
	if name != v1alpha1.CapacityReportName {
		return
	}
	r.mu.Lock()
	r.locked.present = false
	r.mu.Unlock()
	r.wake()
}

// sameContent says whether two reports are equal except for the time when they were written.
func sameContent(a, b *v1alpha1.CapacityReport) bool {
	left, right := *a, *b
	left.TypeMeta, left.ObjectMeta, left.RenewTime = metav1.TypeMeta{}, metav1.ObjectMeta{}, metav1.MicroTime{}
	right.TypeMeta, right.ObjectMeta, right.RenewTime = metav1.TypeMeta{}, metav1.ObjectMeta{}, metav1.MicroTime{}
	return equality.Semantic.DeepEqual(left, right)
}

// Handler returns the event handler for an informer of CapacityReports.
func (r *Reported) Handler() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { r.set(obj.(*v1alpha1.CapacityReport)) },
		UpdateFunc: func(_, obj any) { r.set(obj.(*v1alpha1.CapacityReport)) },
		DeleteFunc: func(obj any) { r.remove(keyOf(obj).Name) },
	}
}
