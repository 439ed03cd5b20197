// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	jobset "sigs.k8s.io/jobset/pkg/constants"
)

// One set of metrics per process, like controller-runtime's own metrics and registry.
var (
	jobsByState = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "trainyard_trainjobs",
		Help: "TrainJobs that are not over, by where they are in their life.",
	}, []string{"state"})
	jobSetSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "trainyard_trainjob_jobset_seconds",
		Help:    "Time from the creation of a TrainJob to that of its JobSet. Timestamps have whole seconds.",
		Buckets: []float64{1, 2, 5, 10, 30, 60, 300, 1800},
	})
	startSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "trainyard_trainjob_start_seconds",
		Help:    "Time from the creation or last resumption of a TrainJob to when the pods of one of its steps were ready.",
		Buckets: []float64{1, 2, 5, 10, 30, 60, 300, 900, 3600, 4 * 3600},
	})
	finishSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "trainyard_trainjob_finish_seconds",
		Help:    "Time from the creation or last resumption of a TrainJob to its end, by condition (Complete, Failed).",
		Buckets: []float64{10, 60, 300, 900, 3600, 4 * 3600, 12 * 3600, 24 * 3600, 3 * 24 * 3600, 7 * 24 * 3600},
	}, []string{"condition"})
	finishedTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "trainyard_trainjobs_finished_total",
		Help: "TrainJobs that this process has seen finish, by condition (Complete, Failed) and its reason, Other if it is not " +
			"one of JobSet or Kubeflow Trainer.",
	}, []string{"condition", "reason"})
	restartsTotal = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "trainyard_trainjob_restarts_total",
		Help: "Restarts of JobSets, or of single Jobs of them, that this process has seen.",
	})
	stallsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "trainyard_trainjob_stalls_total",
		Help: "How often a trouble of a TrainJob began, by reason.",
	}, []string{"reason"})
)

func init() {
	metrics.Registry.MustRegister(jobsByState, jobSetSeconds, startSeconds, finishSeconds, finishedTotal, restartsTotal, stallsTotal)
}

func countState(s state, n float64) {
	if s != stateForeign {
		jobsByState.WithLabelValues(s.String()).Add(n)
	}
}

// measureState counts a live job in its state. It measures the job's start time if this process has seen the job wait, and
// then returns true.
func measureState(job *trainer.TrainJob, s state, past *knownJob, now time.Time) (started bool) {
	if s != past.state {
		countState(past.state, -1)
		countState(s, +1)
		past.state = s
	}
	switch s {
	case stateSuspended, stateCreated: // Not stateStarting: a job has it between two steps too.
		past.waited = true
	case stateInitializing, stateRunning:
		if past.waited {
			startSeconds.Observe(now.Sub(activeSince(job)).Seconds())
		}
		started, past.waited = past.waited, false
	default:
	}
	return started
}

func measureEnd(job *trainer.TrainJob, end *metav1.Condition, now time.Time) {
	finishedTotal.WithLabelValues(end.Type, countedReason(end.Reason)).Inc()
	finishSeconds.WithLabelValues(end.Type).Observe(now.Sub(activeSince(job)).Seconds())
}

// otherReason stands for every reason that neither JobSet nor Kubeflow Trainer gives.
const otherReason = "Other"

// countedReason returns a reason as a label of a metric. A reason comes from the JobSet's status, which users may be
// able to write. They must not be able to create any number of metrics.
func countedReason(reason string) string {
	switch reason {
	case jobset.AllJobsCompletedReason, jobset.FailedJobsReason, jobset.ReachedMaxRestartsReason, jobset.FailJobSetActionReason,
		trainer.TrainJobDeadlineExceededReason, trainer.TrainJobRuntimeNotSupportedReason:
		return reason
	default:
		return otherReason
	}
}

// activeSince is when a job was last resumed or, if it never was, created.
func activeSince(job *trainer.TrainJob) time.Time {
	c := meta.FindStatusCondition(job.Status.Conditions, trainer.TrainJobSuspended)
	if c != nil && c.Status == metav1.ConditionFalse {
		return c.LastTransitionTime.Time
	}
	return job.CreationTimestamp.Time
}
