// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// The status of a copy goes to the hub as it is. If a job has any condition, the Python SDK assumes that the job does
// not run. So a copy says in an annotation what keeps it from making progress. A copy without trouble costs no write.

// reportToHub makes the annotation of a copy say what d and err say.
func (r *Reconciler) reportToHub(ctx context.Context, f observation, d decision, err error) error {
	if !isLive(d.state) || f.trainJob.Labels[v1alpha1.LabelOriginUID] == "" {
		return nil // The status of a job that has ended says why.
	}
	if isPassing(err) {
		return nil // It says nothing about the job.
	}
	value := ""
	if trouble := troubleOf(f, d, err); trouble != nil {
		value = trouble.String()
	}
	return r.clients.annotate(ctx, f.trainJob, v1alpha1.AnnotationStalled, value)
}

// troubleOf returns what keeps a job from making progress: its objects cannot be made, or its pods have trouble.
func troubleOf(f observation, d decision, err error) *trainjobs.Trouble {
	var p *problem
	switch {
	case d.state == stateBlocked && isPredecessors(f.jobSet, f.trainJob): // This ends by itself.
		return nil
	case d.state == stateBlocked:
		return &trainjobs.Trouble{Reason: ReasonJobSetConflict, Message: conflictMessage(f.jobSet)}
	case errors.As(err, &p):
		return &trainjobs.Trouble{Reason: p.reason, Message: p.Error()}
	case d.trouble != nil:
		said := trainjobs.Trouble(*d.trouble)
		return &said
	}
	return nil
}

// annotate sets an annotation of a TrainJob, or removes it if the value is empty. It writes only a change.
func (c Clients) annotate(ctx context.Context, job *trainer.TrainJob, key, value string) error {
	if job.Annotations[key] == value {
		return nil
	}
	annotation := map[string]any{key: nil}
	if value != "" {
		annotation[key] = value
	}
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": job.UID, "annotations": annotation}})
	if err != nil {
		return fmt.Errorf("encode annotation %s: %w", key, err)
	}
	// The status may have been written in this pass, so there is no lock: nobody else writes this annotation.
	err = c.Cached.Patch(ctx, job.DeepCopy(), client.RawPatch(types.MergePatchType, data))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("patch annotation %s of TrainJob %s: %w", key, klog.KObj(job), err)
	}
	return nil
}
