// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjobs

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/kubeflow/trainer/v2/pkg/constants"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

const (
	// maxProgress is how long the JSON of a Progress may be, in bytes. The API server of the hub counts letters, which is
	// less.
	maxProgress = 1024
	// mostMetrics is how many metrics a Progress may have, and maxMetric how long a name or a value may be, in bytes.
	mostMetrics = 64
	maxMetric   = 64
)

// ProgressOf returns what the process of a TrainJob has reported, nil if it has reported nothing. It reads
// status.trainerStatus, which a worker may have filled with anything. Metrics for which there is no room are left out,
// but not the one that names the last checkpoint.
func ProgressOf(job *unstructured.Unstructured) *v1alpha1.Progress {
	reported, _, err := unstructured.NestedFieldNoCopy(job.Object, "status", "trainerStatus")
	fields, _ := reported.(map[string]any)
	if err != nil || fields == nil {
		return nil
	}
	progress := &v1alpha1.Progress{
		ProgressPercentage:        numberOf(fields["progressPercentage"], 100),
		EstimatedRemainingSeconds: numberOf(fields["estimatedRemainingSeconds"], 1<<31-1),
	}
	if text, is := fields["lastUpdatedTime"].(string); is {
		if at, err := time.Parse(time.RFC3339, text); err == nil {
			progress.LastUpdatedTime = &metav1.Time{Time: at}
		}
	}
	all, _ := fields["metrics"].([]any)
	for _, item := range all {
		if metric, ok := metricOf(item); ok {
			progress.Metrics = append(progress.Metrics, metric)
		}
	}
	progress.Metrics = shortened(progress.Metrics, len(EncodeProgress(&v1alpha1.Progress{
		ProgressPercentage: progress.ProgressPercentage, EstimatedRemainingSeconds: progress.EstimatedRemainingSeconds,
		LastUpdatedTime: progress.LastUpdatedTime, Metrics: []v1alpha1.Metric{{}},
	})))
	return progress
}

// EncodeProgress returns the JSON of a Progress, empty for nil.
func EncodeProgress(progress *v1alpha1.Progress) string {
	if progress == nil {
		return ""
	}
	encoded, err := json.Marshal(progress)
	if err != nil {
		return "" // A time beyond the year 9999.
	}
	return string(encoded)
}

// LastCheckpoint returns the value of v1alpha1.MetricCheckpoint, empty if nobody has reported one. progress may be nil.
func LastCheckpoint(progress *v1alpha1.Progress) string {
	if progress == nil {
		return ""
	}
	for _, metric := range progress.Metrics {
		if metric.Name == v1alpha1.MetricCheckpoint {
			return metric.Value
		}
	}
	return ""
}

// HasTrained says whether a step of a TrainJob that is no initializer runs or has run, by the counters of its status. It
// converts nothing, because it is asked again and again until it is true.
func HasTrained(job *unstructured.Unstructured) bool {
	list, _, err := unstructured.NestedFieldNoCopy(job.Object, "status", "jobsStatus")
	all, _ := list.([]any)
	return err == nil && slices.ContainsFunc(all, func(item any) bool {
		fields, _ := item.(map[string]any)
		count := func(name string) int64 { number, _ := fields[name].(int64); return number }
		began := count("ready") > 0 || count("failed") > 0 || count("succeeded") > 0 && count("active") == 0
		return began && fields["name"] != constants.DatasetInitializer && fields["name"] != constants.ModelInitializer
	})
}

// shortened returns the metrics that fit into the JSON of a Progress, of which other bytes are taken.
func shortened(metrics []v1alpha1.Metric, other int) []v1alpha1.Metric {
	left := room(maxProgress - other)
	var kept []v1alpha1.Metric
	at := slices.IndexFunc(metrics, func(m v1alpha1.Metric) bool { return m.Name == v1alpha1.MetricCheckpoint })
	if at >= 0 {
		left.takes(metrics[at])
	}
	for i := range metrics {
		if i != at && (len(kept) >= mostMetrics-1 || !left.takes(metrics[i])) {
			continue
		}
		kept = append(kept, metrics[i])
	}
	return kept
}

func metricOf(item any) (metric v1alpha1.Metric, ok bool) {
	fields, _ := item.(map[string]any)
	metric.Name, _ = fields["name"].(string)
	metric.Value, _ = fields["value"].(string)
	fits := func(text string) bool { return text != "" && len(text) <= maxMetric }
	return metric, fits(metric.Name) && fits(metric.Value)
}

// numberOf returns a whole number from 0 to most, nil if value is something else.
func numberOf(value any, most int64) *int32 {
	number, is := value.(int64)
	if !is || number < 0 || number > most {
		return nil
	}
	return new(int32(number)) //nolint:gosec // It is at most most, which callers take from int32 or a percentage.
}
