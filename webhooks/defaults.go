// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"encoding/json"
	"fmt"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// trainJobDefaulter gives runtime patches the time of their last change.
type trainJobDefaulter struct {
	clock clock.PassiveClock
}

// Default stamps the patches that are new or changed. A patch that is as it was keeps its time, also if the request has another
// one or none: who applies a manifest again has changed nothing. Only a new patch can bring a time of its own.
func (d *trainJobDefaulter) Default(ctx context.Context, job *trainer.TrainJob) error {
	old, err := oldPatches(ctx, job)
	if err != nil {
		return err
	}
	now := metav1.NewTime(d.clock.Now())
	for i := range job.Spec.RuntimePatches {
		patch := &job.Spec.RuntimePatches[i]
		before, known := old[patch.Manager]
		switch {
		case known && samePatch(before, *patch):
			patch.Time = before.Time
		case known || patch.Time == nil:
			patch.Time = &now
		}
	}
	return nil
}

// oldPatches returns the runtime patches before the request, by manager. A request that creates has none.
func oldPatches(ctx context.Context, job *trainer.TrainJob) (map[string]trainer.RuntimePatch, error) {
	request, err := admission.RequestFromContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("default TrainJob %s: %w", klog.KObj(job), err)
	}
	if len(request.OldObject.Raw) == 0 {
		return nil, nil
	}
	old := &trainer.TrainJob{}
	if err := json.Unmarshal(request.OldObject.Raw, old); err != nil {
		return nil, fmt.Errorf("decode old TrainJob %s: %w", klog.KObj(job), err)
	}
	patches := map[string]trainer.RuntimePatch{}
	for _, patch := range old.Spec.RuntimePatches {
		patches[patch.Manager] = patch
	}
	return patches, nil
}

// samePatch compares all but the times.
func samePatch(a, b trainer.RuntimePatch) bool {
	a.Time, b.Time = nil, nil
	return equality.Semantic.DeepEqual(a, b)
}
