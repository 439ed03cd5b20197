// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package nomination

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
)

// Reasons for which a worker is not nominated, beside the reasons of package dispatch.
const (
	reasonNotInConfig = "NotInMultiKueueConfig"
	reasonInactive    = "MultiKueueClusterInactive"
	reasonUnreadable  = "WorkloadsUnreadable"
)

// DispatcherName is the value of multiKueue.dispatcherName in Kueue's configuration with which Kueue leaves nominations
// to this controller. Kueue does not compare it with anything.
const DispatcherName = "trainyard.dev/gang-fit"

// messageUnreadable is for a worker on which clones cannot be followed.
const messageUnreadable = "the hub cannot list the worker's Workloads (kueue.x-k8s.io/v1beta2): install Kueue there, or grant the " +
	"right: kubectl apply -k config/kueue-dispatcher/worker"

func notInConfig(t *targets) string {
	return fmt.Sprintf("the MultiKueueConfig %q of admission check %q does not name the worker", t.config, t.check)
}

// announcer writes Events about Workloads, and does not repeat itself.
type announcer struct {
	recorder events.EventRecorder
	// said is what the last Event of a Workload was about.
	said map[types.NamespacedName]said
}

// said is what an Event was about, and the Workload that has it.
type said struct {
	uid   types.UID
	topic string
}

// forget lets the next Event about a Workload be written, whatever it is about.
func (a *announcer) forget(key types.NamespacedName) { delete(a.said, key) }

// nominated says which worker has been nominated.
func (a *announcer) nominated(o *observation, worker v1alpha1.ClusterName, why string) {
	if before := o.nominee(); before != "" && before != worker {
		_, refusal := o.refusal()
		a.record(o, corev1.EventTypeNormal, "Nominated", "Nominated worker %s instead of %s (%s): %s", worker, before, refusal, why)
		return
	}
	a.record(o, corev1.EventTypeNormal, "Nominated", "Nominated worker %s: %s", worker, why)
}

// refused says why the hub's API server does not take a nomination.
func (a *announcer) refused(o *observation, err error) {
	a.once(o, "refused", corev1.EventTypeWarning, "NominationRefused",
		"The hub's API server refuses the nomination; the manager needs the rights of config/kueue-dispatcher/hub: %s", err.Error())
}

// explain says why no worker is nominated for a Workload, or that its nominated worker is away.
func (a *announcer) explain(o *observation, what state) {
	switch what {
	case misconfigured:
		a.once(o, o.targets.fault, corev1.EventTypeWarning, "NotNominated", "No worker is nominated: %s", o.targets.fault)
	case foreign:
		a.once(o, "foreign", corev1.EventTypeWarning, "NotNominated", "Kueue or another dispatcher has nominated %d clusters, so "+
			"Trainyard does not; for Trainyard to nominate, set multiKueue.dispatcherName: %s in the configuration of the hub's Kueue",
			len(o.workload.Status.NominatedClusterNames), DispatcherName)
	case away:
		a.once(o, "away", corev1.EventTypeWarning, "WorkerAway", "Nominated worker %s does not answer the hub, or its Workloads cannot "+
			"be read. It may have admitted the job, so no other worker is nominated until it answers", o.nominee())
	case ended, unready, settled, crossed, granted, following, refused, unplaced:
		a.forget(o.key)
	}
}

// explainFull says what the nearest worker lacks, once for each worker and reason.
func (a *announcer) explainFull(o *observation, nearest v1alpha1.ClusterExplanation) {
	topic := fmt.Sprintf("%s/%s/%s", o.nominee(), nearest.Cluster, nearest.Reason)
	switch {
	case o.nominee() != "":
		_, refusal := o.refusal()
		a.once(o, topic, corev1.EventTypeWarning, "NotAdmitted", "Worker %s stays nominated: %s. No other worker has room: %s",
			o.nominee(), refusal, lacks(nearest))
	default:
		a.once(o, topic, corev1.EventTypeNormal, "NotNominated", "No worker has room for the job: %s", lacks(nearest))
	}
}

func lacks(nearest v1alpha1.ClusterExplanation) string {
	if nearest.Cluster == "" {
		return fmt.Sprintf("%s: %s", nearest.Reason, nearest.Message)
	}
	return fmt.Sprintf("the nearest is %s: %s: %s", nearest.Cluster, nearest.Reason, nearest.Message)
}

// explainFault says what is wrong with the pods of a Workload.
func (a *announcer) explainFault(o *observation, err error) {
	a.once(o, err.Error(), corev1.EventTypeWarning, "NotNominated", "No worker is nominated: %s", err.Error())
}

// once records an Event unless the last one was about the same.
func (a *announcer) once(o *observation, topic, kind, reason, format string, args ...any) {
	now := said{uid: o.workload.UID, topic: topic}
	if a.said[o.key] == now {
		return
	}
	a.said[o.key] = now
	a.record(o, kind, reason, format, args...)
}

// record records an Event on the Workload.
func (a *announcer) record(o *observation, kind, reason, format string, args ...any) {
	a.recorder.Eventf(o.workload.object, nil, kind, reason, "Nominate", "%s", record.Shorten(fmt.Sprintf(format, args...), record.NoteLimit))
}
