// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/webhooks/validation"
)

// podsPath is the path for questions about the pods of a TrainJob.
const podsPath = "/pods-trainer-kubeflow-org-v1alpha1-trainjob"

// podsPatch is the path of v1alpha1.AnnotationPods in a JSON patch.
var podsPatch = "/metadata/annotations/" + strings.ReplaceAll(v1alpha1.AnnotationPods, "/", "~1")

// podsAnswerer answers what the admission of this cluster makes of the pods of a TrainJob. The question is a dry run of
// the TrainJob, so it needs no other right than the creation of the TrainJob, and leaves nothing behind. The TrainJob is
// checked as it is when it is created, and refused in the same words.
type podsAnswerer struct{ validator *TrainJobValidator }

// Handle puts the answer into the annotation that asks.
func (p *podsAnswerer) Handle(ctx context.Context, request admission.Request) admission.Response {
	job := &trainer.TrainJob{}
	if err := json.Unmarshal(request.Object.Raw, job); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("decode TrainJob: %w", err))
	}
	if request.Operation != admissionv1.Create || !ptr.Deref(request.DryRun, false) || !trainjobs.AsksForPods(job) {
		return admission.Allowed("")
	}
	job.Namespace = request.Namespace
	start := p.validator.clock.Now()
	// The hub keeps the answer for all jobs with such pods, and these may name other Secrets in their environment.
	pods, found, err := p.validator.created(ctx, job, validation.IgnoreMissing)
	warnings, err := p.validator.answer(ctx, job, found, start, err)
	if err != nil {
		return refused(err, warnings)
	}
	if err := countClaims(ctx, p.validator.live, job.Namespace, pods); err != nil {
		return refused(err, warnings)
	}
	answer, ok := trainjobs.EncodePods(pods)
	if !ok {
		return admission.Allowed("").WithWarnings(append(warnings, "the pods of the TrainJob are too large to answer what they become")...)
	}
	return admission.Patched("", jsonpatch.NewOperation("replace", podsPatch, answer)).WithWarnings(warnings...)
}

// refused is the answer with which controller-runtime's validators refuse a request.
func refused(err error, warnings admission.Warnings) admission.Response {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return admission.Denied(err.Error()).WithWarnings(warnings...)
	}
	result := status.Status()
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Result: &result}}.WithWarnings(warnings...)
}

// isDryRun says whether the request that is answered is a dry run.
func isDryRun(ctx context.Context) bool {
	request, err := admission.RequestFromContext(ctx)
	return err == nil && ptr.Deref(request.DryRun, false)
}
