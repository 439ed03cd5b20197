// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"gomodules.xyz/jsonpatch/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/trainyard/trainyard/webhooks/validation"
)

// defaulterPath is the path that the Kubeflow Trainer uses.
const defaulterPath = "/mutate-trainer-kubeflow-org-v1alpha1-trainjob"

// trainJobDefaulter sets the time of the last change of runtime patches.
//
// It answers only with these times. controller-runtime's defaulters send back the whole object, with numbers as our
// types write them ("500" for 500 CPUs). That would change immutable fields.
type trainJobDefaulter struct {
	clock clock.PassiveClock
}

// Handle stamps new and changed patches. An unchanged patch keeps its time, also if the request has another time or
// none: applying a manifest again changes nothing. Only a new patch can bring its own time.
func (d *trainJobDefaulter) Handle(_ context.Context, request admission.Request) admission.Response {
	job, err := runtimePatches(request.Object.Raw)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("decode TrainJob: %w", err))
	}
	before, err := runtimePatches(request.OldObject.Raw)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("decode old TrainJob: %w", err))
	}
	old := map[string]trainer.RuntimePatch{}
	for _, patch := range before {
		old[patch.Manager] = patch
	}
	now := metav1.NewTime(d.clock.Now())
	var operations []jsonpatch.Operation
	for i, patch := range job {
		was, known := old[patch.Manager]
		want := patch.Time
		switch {
		case known && validation.SamePatch(was, patch):
			want = was.Time
		case known || patch.Time == nil:
			want = &now
		}
		if !want.Equal(patch.Time) {
			operations = append(operations, setTime(i, patch.Time, want))
		}
	}
	return admission.Patched("", operations...)
}

// runtimePatches decodes the runtime patches of a TrainJob. An empty text is a TrainJob without patches.
func runtimePatches(raw []byte) ([]trainer.RuntimePatch, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	var job struct {
		Spec struct {
			RuntimePatches []trainer.RuntimePatch `json:"runtimePatches"`
		} `json:"spec"`
	}
	err := json.Unmarshal(raw, &job)
	return job.Spec.RuntimePatches, err
}

// setTime returns an operation that sets the time of the patch at an index, or removes it.
func setTime(index int, from, to *metav1.Time) jsonpatch.Operation {
	path := fmt.Sprintf("/spec/runtimePatches/%d/time", index)
	switch {
	case to == nil:
		return jsonpatch.NewOperation("remove", path, nil)
	case from == nil:
		return jsonpatch.NewOperation("add", path, to.UTC().Format(time.RFC3339))
	default:
		return jsonpatch.NewOperation("replace", path, to.UTC().Format(time.RFC3339))
	}
}
