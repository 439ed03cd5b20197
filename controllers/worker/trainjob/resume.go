// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	jobsetapply "sigs.k8s.io/jobset/client-go/applyconfiguration/jobset/v1alpha2"
)

// errJobsLeft: the JobSet cannot be resumed yet. A Job of it still runs, or is being replaced.
var errJobsLeft = errors.New("waiting for the Jobs of the JobSet to be suspended, or created again")

// maxReplacements is how often the Jobs of a JobSet are replaced before a resumption. Usually once is enough. If
// another program adds to the pod templates of Jobs what no JobSet has, the job is resumed with the addition.
const maxReplacements = 3

// prepareJobs makes sure that the pods of a JobSet that is about to be resumed get the wanted template. It returns nil
// if the JobSet can be resumed. When JobSet resumes a Job, it only adds labels, annotations, node selectors,
// tolerations and scheduling gates to the Job (v0.12 jobset_controller.go, resumeJob). What a removed runtime patch had
// added would stay, and a scheduling gate would hold the pods for ever. A Job that still runs would get no change. So
// prepareJobs waits until each Job is suspended, and deletes Jobs that have more. JobSet recreates them.
func (b *objectBuilder) prepareJobs(
	ctx context.Context, f observation, wanted *jobsetapply.JobSetApplyConfiguration, past *knownJob,
) error {
	if len(f.trainJob.Spec.RuntimePatches) == 0 && f.jobSet.Generation == 1 {
		return nil // The template has never changed.
	}
	jobs, err := b.clients.unfinishedJobs(ctx, f.jobSet)
	if err != nil {
		return err
	}
	templates, err := podTemplates(wanted)
	if err != nil {
		return err
	}
	var outdated []*batchv1.Job
	for _, job := range jobs {
		if !ptr.Deref(job.Spec.Suspend, false) || !job.DeletionTimestamp.IsZero() {
			return errJobsLeft
		}
		if template, ok := templates[job.Labels[jobsetv1alpha2.ReplicatedJobNameKey]]; ok && hasMore(&job.Spec.Template, template) {
			outdated = append(outdated, job)
		}
	}
	if len(outdated) == 0 || past.replacements == maxReplacements {
		return nil
	}
	past.replacements++
	// The template comes first, so that the JobSet makes the new Jobs from it.
	wanted.Spec.WithSuspend(true)
	if err := b.clients.apply(ctx, f.trainJob, wanted); err != nil {
		return b.rebuild(ctx, f, err)
	}
	for _, job := range outdated {
		if err := b.clients.deleteOwner(ctx, job); err != nil {
			return fmt.Errorf("delete Job %s, which has an outdated template: %w", klog.KObj(job), err)
		}
	}
	ctrl.LoggerFrom(ctx).Info("Deleted suspended Jobs whose pods would keep what a runtime patch has taken back", "jobs", len(outdated))
	return errJobsLeft
}

// isFinished says whether a Job has no running pods and will never have any.
func isFinished(job *batchv1.Job) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue
	})
}

// podTemplates returns the pod templates of a JobSet by the names of its replicated jobs.
func podTemplates(jobSet *jobsetapply.JobSetApplyConfiguration) (map[string]*corev1.PodTemplateSpec, error) {
	text, err := json.Marshal(jobSet)
	if err != nil {
		return nil, fmt.Errorf("encode JobSet: %w", err)
	}
	var typed jobsetv1alpha2.JobSet
	if err := json.Unmarshal(text, &typed); err != nil {
		return nil, fmt.Errorf("decode JobSet: %w", err)
	}
	templates := map[string]*corev1.PodTemplateSpec{}
	for i := range typed.Spec.ReplicatedJobs {
		templates[typed.Spec.ReplicatedJobs[i].Name] = &typed.Spec.ReplicatedJobs[i].Template.Spec.Template
	}
	return templates, nil
}

// hasMore says whether a template has something that a resumption would keep and that the wanted template lacks.
func hasMore(template, wanted *corev1.PodTemplateSpec) bool {
	return moreKeys(template.Labels, wanted.Labels) || moreKeys(template.Annotations, wanted.Annotations) ||
		moreKeys(template.Spec.NodeSelector, wanted.Spec.NodeSelector) ||
		slices.ContainsFunc(template.Spec.SchedulingGates, func(gate corev1.PodSchedulingGate) bool {
			return !slices.Contains(wanted.Spec.SchedulingGates, gate)
		}) ||
		slices.ContainsFunc(template.Spec.Tolerations, func(toleration corev1.Toleration) bool {
			return !isSystems(toleration.Key) && !slices.ContainsFunc(wanted.Spec.Tolerations, func(w corev1.Toleration) bool {
				return equality.Semantic.DeepEqual(w, toleration)
			})
		})
}

func moreKeys(has, wanted map[string]string) bool {
	for key := range has {
		if _, ok := wanted[key]; !ok && !isSystems(key) {
			return true
		}
	}
	return false
}

// isSystems says whether the controllers of Jobs and JobSets add this key to the pod templates of Jobs.
func isSystems(key string) bool {
	prefix, _, _ := strings.Cut(key, "/")
	return prefix == "controller-uid" || prefix == "job-name" || prefix == "batch.kubernetes.io" || strings.HasSuffix(prefix, "jobset.sigs.k8s.io")
}
