// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package nomination

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

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

// recordNominated says which worker has been nominated.
func (r *Reconciler) recordNominated(o *observation, worker v1alpha1.ClusterName, why string) {
	if before := o.nominee(); before != "" && before != worker {
		_, refusal := o.refusal()
		r.record(o, corev1.EventTypeNormal, "Nominated", "Nominated worker %s instead of %s (%s): %s", worker, before, refusal, why)
		return
	}
	r.record(o, corev1.EventTypeNormal, "Nominated", "Nominated worker %s: %s", worker, why)
}

// recordRefused says why the hub's API server does not take a nomination.
func (r *Reconciler) recordRefused(o *observation, err error) {
	r.once(o, "refused", corev1.EventTypeWarning, "NominationRefused",
		"The hub's API server refuses the nomination; the manager needs the rights of config/kueue-dispatcher/hub: %s", err.Error())
}

// explain says why no worker is nominated for a Workload, or that its nominated worker is away.
func (r *Reconciler) explain(o *observation, what state) {
	switch what {
	case misconfigured:
		r.once(o, o.targets.fault, corev1.EventTypeWarning, "NotNominated", "No worker is nominated: %s", o.targets.fault)
	case foreign:
		r.once(o, "foreign", corev1.EventTypeWarning, "NotNominated", "Kueue or another dispatcher has nominated %d clusters, so "+
			"Trainyard does not; for Trainyard to nominate, set multiKueue.dispatcherName: %s in the configuration of the hub's Kueue",
			len(o.workload.Status.NominatedClusterNames), DispatcherName)
	case away:
		r.once(o, "away", corev1.EventTypeWarning, "WorkerAway", "Nominated worker %s does not answer the hub, or its Workloads cannot "+
			"be read. It may have admitted the job, so no other worker is nominated until it answers", o.nominee())
	case ended, unready, settled, crossed, granted, following, refused, unplaced:
		if m := r.remembered[o.key]; m != nil {
			m.said = ""
		}
	}
}

// explainFull says what the nearest worker lacks, once for each worker and reason.
func (r *Reconciler) explainFull(o *observation, nearest v1alpha1.ClusterExplanation) {
	topic := fmt.Sprintf("%s/%s/%s", o.nominee(), nearest.Cluster, nearest.Reason)
	switch {
	case o.nominee() != "":
		_, refusal := o.refusal()
		r.once(o, topic, corev1.EventTypeWarning, "NotAdmitted", "Worker %s stays nominated: %s. No other worker has room: %s",
			o.nominee(), refusal, lacks(nearest))
	default:
		r.once(o, topic, corev1.EventTypeNormal, "NotNominated", "No worker has room for the job: %s", lacks(nearest))
	}
}

func lacks(nearest v1alpha1.ClusterExplanation) string {
	if nearest.Cluster == "" {
		return fmt.Sprintf("%s: %s", nearest.Reason, nearest.Message)
	}
	return fmt.Sprintf("the nearest is %s: %s: %s", nearest.Cluster, nearest.Reason, nearest.Message)
}

// explainFault says what is wrong with the pods of a Workload.
func (r *Reconciler) explainFault(o *observation, err error) {
	r.once(o, err.Error(), corev1.EventTypeWarning, "NotNominated", "No worker is nominated: %s", err.Error())
}

// once records an Event unless the last one was about the same.
func (r *Reconciler) once(o *observation, topic, kind, reason, format string, args ...any) {
	m := r.progress(o.key, o.workload.UID)
	if m.said == topic {
		return
	}
	m.said = topic
	r.record(o, kind, reason, format, args...)
}

// record records an Event on the Workload.
func (r *Reconciler) record(o *observation, kind, reason, format string, args ...any) {
	r.Recorder.Eventf(o.workload.object, nil, kind, reason, "Nominate", "%s", record.Shorten(fmt.Sprintf(format, args...), record.NoteLimit))
}
