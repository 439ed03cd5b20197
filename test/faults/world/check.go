// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Job is a TrainJob of the hub.
type Job struct {
	Key types.NamespacedName
	UID types.UID
}

// Ended says whether a job has ended, or why not. It returns an error for a job that has not ended and does not say
// why.
func (w *World) Ended(ctx context.Context, job Job) (ended bool, why string, err error) {
	object := trainjobs.New()
	if err := w.Hub.Get(ctx, job.Key, object); err != nil {
		return false, "", fmt.Errorf("get TrainJob %s: %w", job.Key, err)
	}
	if trainjobs.Terminal(object) != nil {
		return true, "", nil
	}
	d := &v1alpha1.Dispatch{}
	if err := w.Hub.Get(ctx, job.Key, d); err != nil {
		return false, "", fmt.Errorf("the TrainJob %s has not ended: get its Dispatch: %w", job.Key, err)
	}
	if w.Recorder.CanRun(job.UID) {
		return false, "it runs", nil
	}
	why = reasonOf(d)
	if why == "" {
		return false, "", fmt.Errorf("the TrainJob %s has not ended, and its Dispatch does not say why: %+v", job.Key, d.Status.Conditions)
	}
	return false, why, nil
}

// reasonOf is why a job has not ended: it waits, its worker is lost, or it runs.
func reasonOf(d *v1alpha1.Dispatch) string {
	for _, want := range []struct {
		kind   string
		status metav1.ConditionStatus
	}{
		{v1alpha1.DispatchWorkerLost, metav1.ConditionTrue},
		{v1alpha1.DispatchEvicting, metav1.ConditionTrue},
		{v1alpha1.DispatchPlaced, metav1.ConditionFalse},
		{v1alpha1.DispatchMirrored, metav1.ConditionTrue},
	} {
		c := meta.FindStatusCondition(d.Status.Conditions, want.kind)
		if c != nil && c.Status == want.status && c.ObservedGeneration == d.Generation && c.Message != "" {
			return fmt.Sprintf("%s=%s/%s: %s", c.Type, c.Status, c.Reason, c.Message)
		}
	}
	return ""
}

// Faults returns what has gone wrong with a job so far: copies that could run at the same time, wrong transitions,
// writes after the end, and a status that is not the copy's status.
func (w *World) Faults(job Job) []string {
	var faults []string
	for _, overlap := range w.Recorder.Overlaps(job.UID) {
		faults = append(faults, overlap.String())
	}
	return append(faults, w.otherFaults(job)...)
}

// otherFaults are the Faults but overlaps.
func (w *World) otherFaults(job Job) []string {
	faults := w.Recorder.Wrong(job.UID)
	if diff := w.statusDiffers(job); diff != "" {
		faults = append(faults, "the hub's status is not the copy's last word (-copy +hub):\n"+diff)
	}
	return faults
}

// statusDiffers is what is still wrong with the status after the recorder has had time to see all writes. The recorder
// may see the last status of the copy later than the hub does, for instance when the worker's API server is away.
func (w *World) statusDiffers(job Job) string {
	ticker, late := time.NewTicker(100*time.Millisecond), time.After(recorderLag)
	defer ticker.Stop()
	for {
		diff := w.Recorder.StatusDiffers(job.UID)
		if diff == "" {
			return ""
		}
		select {
		case <-late:
			return diff
		case <-ticker.C:
		}
	}
}

// recorderLag is longer than any API server is away.
const recorderLag = 30 * time.Second

// Left returns the objects that deleted jobs have left.
func (w *World) Left(ctx context.Context, jobs ...Job) ([]string, error) {
	wanted := map[types.NamespacedName]bool{}
	origins := map[types.UID]bool{}
	for _, job := range jobs {
		wanted[job.Key], origins[job.UID] = true, true
	}
	var left []string
	find := func(cluster string, c client.Reader, list client.ObjectList, named func(client.Object) bool) error {
		if err := c.List(ctx, list); err != nil {
			return fmt.Errorf("list %T on %s: %w", list, cluster, err)
		}
		items, err := meta.ExtractList(list)
		for _, item := range items {
			if object, ok := item.(client.Object); ok && named(object) {
				left = append(left, fmt.Sprintf("%s: %T %s", cluster, object, client.ObjectKeyFromObject(object)))
			}
		}
		return err
	}
	byName := func(o client.Object) bool { return wanted[client.ObjectKeyFromObject(o)] }
	bySet := func(o client.Object) bool {
		return wanted[types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetLabels()[jobsetv1alpha2.JobSetNameKey]}]
	}
	byOrigin := func(o client.Object) bool {
		return origins[types.UID(o.GetLabels()[v1alpha1.LabelOriginUID])] || origins[types.UID(o.GetName())]
	}
	if err := find("hub", w.Hub, &v1alpha1.DispatchList{}, byName); err != nil {
		return nil, err
	}
	if err := find("hub", w.Hub, &v1alpha1.TombstoneList{}, byOrigin); err != nil {
		return nil, err
	}
	for name, worker := range w.Workers {
		for _, kind := range []struct {
			list  client.ObjectList
			named func(client.Object) bool
		}{
			{trainjobs.NewList(), byOrigin}, {&jobsetv1alpha2.JobSetList{}, byName}, {&batchv1.JobList{}, bySet}, {&corev1.PodList{}, bySet},
		} {
			if err := find(name, worker, kind.list, kind.named); err != nil {
				return nil, err
			}
		}
	}
	return left, nil
}
