// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/test/clusters"
)

// conclude ends the life: it waits until nothing changes any more. Patches that wait for a suspension get a suspension.
func (l *life) conclude() error {
	if l.loose {
		if err := l.suspend(true); err != nil {
			return err
		}
	}
	return l.settle()
}

// settle waits until the controller has done all work for the present TrainJob.
func (l *life) settle() error {
	if l.deleting {
		return nil
	}
	wasSuspended := false
	err := l.await("all to be settled", func(ctx context.Context) (err error) {
		wasSuspended, err = l.settled(ctx)
		return err
	})
	if wasSuspended {
		l.loose = false
	}
	return err
}

// settled returns nil if the cluster is as it should be, and otherwise the difference.
func (l *life) settled(ctx context.Context) (isSuspended bool, err error) {
	f, err := l.observation(ctx)
	if err != nil {
		return false, client.IgnoreNotFound(err)
	}
	job := f.trainJob
	d := decide(f, rules{}, time.Now())
	if diff := cmp.Diff(withoutTimes(d.status), withoutTimes(job.Status)); diff != "" {
		return false, fmt.Errorf("status in state %s (-want +got):\n%s", d.state, diff)
	}
	if !isLive(d.state) {
		return false, nil
	}
	if !f.ownsJobSet() {
		return false, fmt.Errorf("state %s: there is no JobSet", d.state)
	}
	if err := l.followed(f); err != nil {
		if refusal := l.excused(ctx, f.jobSet); refusal != nil {
			return false, errors.Join(err, refusal)
		}
	}
	return ptr.Deref(job.Spec.Suspend, false), nil
}

// followed returns nil if the JobSet is as the TrainJob wants it.
func (l *life) followed(f observation) error {
	if want, got := ptr.Deref(f.trainJob.Spec.Suspend, false), ptr.Deref(f.jobSet.Spec.Suspend, false); want != got {
		return fmt.Errorf("suspend of the JobSet is %t, of the TrainJob %t", got, want)
	}
	if l.loose && !ptr.Deref(f.trainJob.Spec.Suspend, false) {
		return nil
	}
	if diff := cmp.Diff(wantedPods(f.trainJob), gotPods(f.jobSet), cmp.AllowUnexported(wishes{})); diff != "" {
		return fmt.Errorf("pod template (-want +got):\n%s", diff)
	}
	return nil
}

// excused returns nil if JobSet does not allow what the TrainJob wants, and an Event has told the TrainJob's owner.
func (l *life) excused(ctx context.Context, jobSet *jobsetv1alpha2.JobSet) error {
	var jobs batchv1.JobList
	err := l.e.List(ctx, &jobs, client.InNamespace(l.ns), client.MatchingLabels{jobsetv1alpha2.JobSetNameKey: l.name})
	if err != nil {
		return err
	}
	if !trainjobs.HasStarted(jobSet, jobs.Items) {
		return errors.New("the JobSet has not started")
	}
	var list corev1.EventList
	if err := l.e.List(ctx, &list, client.InNamespace(l.ns)); err != nil {
		return err
	}
	var notes []string
	for _, event := range list.Items {
		if event.InvolvedObject.UID != l.uid {
			continue
		}
		if event.Reason == ReasonApplyFailed && strings.Contains(event.Message, "spec.replicatedJobs: Invalid value") &&
			strings.Contains(event.Message, "has run already") {
			return nil
		}
		notes = append(notes, event.Reason+": "+event.Message)
	}
	return fmt.Errorf("the owner was not told, but: %q", notes)
}

// wantedPods is what the TrainJob's runtimePatches say about the trainer's pods.
func wantedPods(job *trainer.TrainJob) wishes {
	pod := job.Spec.RuntimePatches[0].TrainingRuntimeSpec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template
	return wishesOf(pod.Metadata.Annotations, pod.Spec.NodeSelector, pod.Spec.Affinity)
}

// gotPods is what the JobSet says about the trainer's pods.
func gotPods(jobSet *jobsetv1alpha2.JobSet) wishes {
	for _, job := range jobSet.Spec.ReplicatedJobs {
		if pod := job.Template.Spec.Template; job.Name == "node" {
			return wishesOf(pod.Annotations, pod.Spec.NodeSelector, pod.Spec.Affinity)
		}
	}
	return wishes{}
}

func wishesOf(annotations, nodeSelector map[string]string, affinity *corev1.Affinity) wishes {
	w := wishes{
		pool: nodeSelector[poolLabel], runFor: annotations[clusters.RunForAnnotation], fail: annotations[clusters.FailAnnotation],
		lingers: annotations[clusters.TerminateForAnnotation],
	}
	if affinity != nil {
		w.affinity = affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions[0].Values[0]
	}
	return w
}

func withoutTimes(status trainer.TrainJobStatus) trainer.TrainJobStatus {
	status.Conditions = timeless(status.Conditions)
	return status
}

// awaitPods waits until pods of the JobSet have been created.
func (l *life) awaitPods() error {
	return l.awaitUnlessStuck("pods", func(ctx context.Context, _ *trainer.TrainJob) error {
		var list corev1.PodList
		err := l.e.List(ctx, &list, client.InNamespace(l.ns), client.MatchingLabels{jobsetv1alpha2.JobSetNameKey: l.name})
		if err == nil && len(list.Items) == 0 {
			err = errors.New("there are none")
		}
		return err
	})
}

// awaitStandstill waits until a suspended JobSet has suspended its Jobs and their pods have ended.
func (l *life) awaitStandstill() error {
	return l.await("pods to end", func(ctx context.Context) error {
		var jobs batchv1.JobList
		var pods corev1.PodList
		for _, list := range []client.ObjectList{&jobs, &pods} {
			err := l.e.List(ctx, list, client.InNamespace(l.ns), client.MatchingLabels{jobsetv1alpha2.JobSetNameKey: l.name})
			if err != nil {
				return err
			}
		}
		for i := range jobs.Items {
			if job := &jobs.Items[i]; !ptr.Deref(job.Spec.Suspend, false) && len(job.Status.Conditions) == 0 {
				return l.unlessStuck(ctx, fmt.Errorf("%s is not suspended", job.Name))
			}
		}
		for i := range pods.Items {
			if phase := pods.Items[i].Status.Phase; phase != corev1.PodSucceeded && phase != corev1.PodFailed {
				return l.unlessStuck(ctx, fmt.Errorf("%s is %s", pods.Items[i].Name, phase))
			}
		}
		return nil
	})
}

// unlessStuck returns err if there is a suspended JobSet, because its controller will stop the pods. Otherwise nil.
func (l *life) unlessStuck(ctx context.Context, err error) error {
	f, readErr := l.observation(ctx)
	if readErr != nil {
		return client.IgnoreNotFound(readErr)
	}
	if f.jobSet == nil || !ptr.Deref(f.jobSet.Spec.Suspend, false) || hasEnded(&f.trainJob.Status) {
		return nil
	}
	return err
}

// awaitEnd waits until the TrainJob has ended. It does not wait for a TrainJob that runs for ever, whose pods may fit
// no node, or whose Jobs may retry for minutes. Such retries come from pod annotations that JobSet keeps on resumption:
// a pod may fail although the TrainJob does not ask for it any more.
func (l *life) awaitEnd() error {
	return l.awaitUnlessStuck("end", func(_ context.Context, job *trainer.TrainJob) error {
		w := wantedPods(job)
		if w.runFor == clusters.RunForever || w.affinity != "" || job.Spec.RuntimeRef.Name == "torch-distributed" {
			return nil
		}
		return fmt.Errorf("status is %v", job.Status)
	})
}

// awaitUnlessStuck waits until there returns nil. It stops if the TrainJob is not meant to run or is known to be stuck.
func (l *life) awaitUnlessStuck(what string, there func(context.Context, *trainer.TrainJob) error) error {
	return l.await(what, func(ctx context.Context) error {
		j := l.object()
		if err := l.e.Get(ctx, client.ObjectKeyFromObject(j), j); err != nil {
			return client.IgnoreNotFound(err)
		}
		if isSuspended(j) || hasEnded(&j.Status) || l.deleting || l.loose {
			return nil
		}
		var js jobsetv1alpha2.JobSet
		if err := l.e.Get(ctx, client.ObjectKeyFromObject(j), &js); err != nil {
			return err
		}
		if ptr.Deref(js.Spec.Suspend, false) && l.excused(ctx, &js) == nil {
			return nil
		}
		return there(ctx, j)
	})
}

// observation reads TrainJob and JobSet from the API server.
func (l *life) observation(ctx context.Context) (observation, error) {
	f := observation{trainJob: l.object(), jobSet: &jobsetv1alpha2.JobSet{}}
	key := client.ObjectKeyFromObject(f.trainJob)
	if err := l.e.Get(ctx, key, f.trainJob); err != nil {
		return f, err
	}
	runtimes, err := NewRuntimes(ctx, l.e.Client, noIndex{})
	if err != nil {
		return f, err
	}
	f.runtimeKinds = slices.Collect(maps.Keys(runtimes))
	if err := l.e.Get(ctx, key, f.jobSet); apierrors.IsNotFound(err) {
		f.jobSet = nil
	} else if err != nil {
		return f, err
	}
	if f.ownsJobSet() {
		f.reported, err = runtimes[runtimeKind(f.trainJob)].TrainJobStatus(ctx, f.trainJob)
	}
	return f, err
}
