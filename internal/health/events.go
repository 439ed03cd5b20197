// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"fmt"
	"regexp"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

const (
	// eventLimit is how many Events of one object are read. Repeated ones are one object.
	eventLimit = 100
	// jobLimit is of how many Jobs without a pod the Events are read.
	jobLimit = 4
)

var (
	// createPrefix is what the Job controller writes before a refusal. It has the pod's name, which changes each time.
	createPrefix = regexp.MustCompile(`^Error creating: pods "[^"]*" is forbidden: `)
	// ids matches the IDs of containers and pods, which change each time.
	ids = regexp.MustCompile(`[0-9a-f]{64}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
)

// subject is an object that Events are about.
type subject struct{ kind, name string }

// WarningOf returns what the newest Warning Event says about why a JobSet has no ready pod: about the first pod that is
// not ready or, without pods, about its Jobs or the JobSet itself. Empty: no Event says it, and Events are forgotten
// after an hour. It reads from the API server. The process needs permission to list Events.
func WarningOf(ctx context.Context, live client.Reader, js *jobsetv1alpha2.JobSet, pods []*corev1.Pod) (string, error) {
	for _, about := range subjects(js, pods) {
		words, err := warningAbout(ctx, live, js.Namespace, about, js.CreationTimestamp.Time)
		if words != "" || err != nil {
			return words, err
		}
	}
	return "", nil
}

// WarningOfTrainJob is WarningOf for a TrainJob that has no JobSet: the Kubeflow Trainer says in an Event why it can
// make none.
func WarningOfTrainJob(ctx context.Context, live client.Reader, job client.Object) (string, error) {
	about := subject{"TrainJob", job.GetName()}
	return warningAbout(ctx, live, job.GetNamespace(), about, job.GetCreationTimestamp().Time)
}

// warningAbout returns what the newest Warning Event about an object says since a time of the API server's clock.
func warningAbout(ctx context.Context, live client.Reader, namespace string, about subject, since time.Time) (string, error) {
	var list corev1.EventList
	err := live.List(ctx, &list, client.InNamespace(namespace), client.Limit(eventLimit), client.MatchingFields{
		"involvedObject.kind": about.kind, "involvedObject.name": about.name, "type": corev1.EventTypeWarning,
	})
	if err != nil {
		return "", fmt.Errorf("list Events of %s %s/%s: %w", about.kind, namespace, about.name, err)
	}
	return newestWarning(list.Items, since), nil
}

func subjects(js *jobsetv1alpha2.JobSet, pods []*corev1.Pod) []subject {
	if len(pods) > 0 {
		for _, p := range survey(pods) {
			if p.current.waits != "" {
				return []subject{{"Pod", p.current.name}}
			}
		}
		return nil
	}
	var all []subject
	for i := range js.Status.ReplicatedJobsStatus { // A cache may lack the spec.
		all = append(all, subject{"Job", fmt.Sprintf("%s-%s-0", js.Name, js.Status.ReplicatedJobsStatus[i].Name)})
	}
	return append(all[:min(len(all), jobLimit)], subject{"JobSet", js.Name})
}

// newestWarning returns reason and words of the newest Event since a time. That time and the times of Events come from
// the API server's clock.
func newestWarning(events []corev1.Event, since time.Time) string {
	var newest *corev1.Event
	for i := range events {
		at := lastSeen(&events[i])
		if !at.Before(since) && (newest == nil || at.After(lastSeen(newest))) {
			newest = &events[i]
		}
	}
	if newest == nil {
		return ""
	}
	text := ids.ReplaceAllString(createPrefix.ReplaceAllString(newest.Message, ""), "...")
	return newest.Reason + ": " + errorWords(text)
}

// lastSeen is when an Event was last repeated.
func lastSeen(event *corev1.Event) time.Time {
	last := event.LastTimestamp.Time
	if event.Series != nil && event.Series.LastObservedTime.After(last) {
		last = event.Series.LastObservedTime.Time
	}
	if event.EventTime.After(last) {
		last = event.EventTime.Time
	}
	return last
}
