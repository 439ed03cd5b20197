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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	jobsetapply "sigs.k8s.io/jobset/client-go/applyconfiguration/jobset/v1alpha2"
)

// errJobsLeft: the Jobs of the JobSet are not yet as they have to be before it is resumed.
var errJobsLeft = errors.New("waiting for the Jobs of the JobSet to be suspended, or made anew")

// maxReplacements is how often the Jobs of a JobSet are made anew before a resumption. Once does; should something add to the pod
// templates of Jobs what no JobSet says, the job is resumed with it.
const maxReplacements = 3

// prepareJobs sees to it that the pods of a JobSet that is about to be resumed get the wanted template. When JobSet resumes a Job, it
// merges labels, annotations, node selectors, tolerations and scheduling gates into what the Job has (v0.12 jobset_controller.go,
// resumeJob): what a runtime patch has brought and taken back would stay, and a scheduling gate would hold the pods for ever. A Job
// that has not been suspended yet would go on with all that it has. So a Job that is suspended and has more than it should is
// deleted, and the JobSet makes it from the new template. It returns nil if the JobSet can be resumed.
func (r *Reconciler) prepareJobs(
	ctx context.Context, f observation, wanted *jobsetapply.JobSetApplyConfiguration, past *jobMemory,
) error {
	if len(f.trainJob.Spec.RuntimePatches) == 0 && f.jobSet.Generation == 1 {
		return nil // The template has never been another one.
	}
	jobs, err := r.unfinishedJobs(ctx, f.jobSet)
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
	// First the template, so that the new Jobs are made from it.
	wanted.Spec.WithSuspend(true)
	if err := r.apply(ctx, f.trainJob, wanted); err != nil {
		return r.rebuild(ctx, f, err)
	}
	for _, job := range outdated {
		if err := r.deleteOwner(ctx, job); err != nil {
			return fmt.Errorf("delete Job %s, which has an outdated template: %w", klog.KObj(job), err)
		}
	}
	ctrl.LoggerFrom(ctx).Info("Deleted suspended Jobs whose pods would keep what a runtime patch has taken back", "jobs", len(outdated))
	return errJobsLeft
}

// unfinishedJobs are the Jobs of this very JobSet that can still have pods.
func (r *Reconciler) unfinishedJobs(ctx context.Context, jobSet *jobsetv1alpha2.JobSet) ([]*batchv1.Job, error) {
	all, err := r.jobsOf(ctx, client.ObjectKeyFromObject(jobSet))
	if err != nil {
		return nil, err
	}
	var jobs []*batchv1.Job
	for i := range all {
		if !isFinished(&all[i]) && metav1.IsControlledBy(&all[i], jobSet) {
			jobs = append(jobs, &all[i])
		}
	}
	return jobs, nil
}

// isFinished says whether a Job has no pods that run, and will have none.
func isFinished(job *batchv1.Job) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue
	})
}

// podTemplates are those of a JobSet's replicated jobs, by name.
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

// hasMore says whether a template has something that is merged on resumption and that the wanted one lacks.
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

// isSystems says whether a key is one that the controllers of Jobs and JobSets add to the pod templates of Jobs.
func isSystems(key string) bool {
	prefix, _, _ := strings.Cut(key, "/")
	return prefix == "controller-uid" || prefix == "job-name" || prefix == "batch.kubernetes.io" || strings.HasSuffix(prefix, "jobset.sigs.k8s.io")
}
