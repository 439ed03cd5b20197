// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/webhooks/validation"
)

const (
	adopterPath       = "/mutate-trainyard-hub-trainjob"
	policyAdopterPath = "/mutate-trainyard-hub-trainjob-by-policy"
)

// adopter gives the manager's value of spec.managedBy to new TrainJobs for which their namespace or policy asks, so
// that clients which know nothing of Trainyard can be used. It changes no job that names another manager.
//
// The CRD gives the built-in value to jobs without spec.managedBy before any webhook sees them. So a job that names the
// built-in manager looks like a job that names none, and needs an annotation to stay.
type adopter struct {
	managedBy string
	protected func(namespace string) bool
	// wish returns who asks for the job, nil if nobody does.
	wish func(ctx context.Context, job *metav1.ObjectMeta) (*wish, error)
}

// wish is a demand to dispatch jobs that name no manager.
type wish struct {
	// because is the object with the demand, for users: "namespace ... has ...".
	because string
	// mark is the value of v1alpha1.AnnotationDispatch.
	mark string
	// named is true if the demand is about the namespace: then a protected namespace is a mistake of which users learn.
	named bool
}

// Handle answers one request.
func (a *adopter) Handle(ctx context.Context, request admission.Request) admission.Response {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	var job struct {
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			ManagedBy *string `json:"managedBy"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(request.Object.Raw, &job); err != nil {
		return admission.Allowed("").WithWarnings(fmt.Sprintf("Trainyard does not dispatch the TrainJob: cannot decode it: %v", err))
	}
	if request.Operation != admissionv1.Create || job.Spec.ManagedBy != nil && *job.Spec.ManagedBy != v1alpha1.ManagedByBuiltIn {
		return admission.Allowed("")
	}
	job.Namespace = request.Namespace
	wish, err := a.wish(ctx, &job.ObjectMeta)
	if err != nil {
		return admission.Allowed("").WithWarnings(fmt.Sprintf("Trainyard does not dispatch the TrainJob: %v", err))
	}
	value, annotated := job.Annotations[v1alpha1.AnnotationDispatch]
	switch {
	case wish == nil || value == v1alpha1.DispatchNo:
		return admission.Allowed("")
	case a.protected(request.Namespace) && !wish.named:
		return admission.Allowed("")
	case a.protected(request.Namespace):
		return admission.Allowed("").WithWarnings(fmt.Sprintf("Trainyard does not dispatch the TrainJob: %s, and is protected "+
			"(the manager's flags --protected-namespaces and --unprotected-namespaces)", wish.because))
	case annotated && !slices.Contains([]string{v1alpha1.DispatchYes, v1alpha1.DispatchByNamespace, v1alpha1.DispatchByPolicy}, value):
		return refuseAnnotation(job.Name, value)
	}
	return admission.Patched("", a.patch(&job.ObjectMeta, job.Spec.ManagedBy != nil, wish.mark)...).WithWarnings(fmt.Sprintf(
		"spec.managedBy: set to %q, because %s: Trainyard runs the TrainJob on a worker; to run it on the hub, create it with the "+
			"annotation %s: %q",
		a.managedBy, wish.because, v1alpha1.AnnotationDispatch, v1alpha1.DispatchNo))
}

// refuseAnnotation is the response to an annotation whose value means nothing.
func refuseAnnotation(job, value string) admission.Response {
	path := field.NewPath("metadata", "annotations").Key(v1alpha1.AnnotationDispatch)
	err := field.Invalid(path, value, fmt.Sprintf("must be %q for a TrainJob that stays on the hub, or %q or absent for "+
		"one that is dispatched", v1alpha1.DispatchNo, v1alpha1.DispatchYes))
	named := &trainer.TrainJob{ObjectMeta: metav1.ObjectMeta{Name: job}}
	return answerOf(named, validation.Result{Faults: []validation.Fault{{Rule: ruleHub, Err: err}}})
}

// wishOfNamespace returns the wish of a job's namespace. The webhook's configuration selects such namespaces too. It
// reads from the API server: a cache may not have the label yet that the API server has matched.
func wishOfNamespace(live client.Reader) func(context.Context, *metav1.ObjectMeta) (*wish, error) {
	return func(ctx context.Context, job *metav1.ObjectMeta) (*wish, error) {
		namespace, err := liveNamespace(ctx, live, job.Namespace)
		if err != nil || namespace.Labels[v1alpha1.LabelDispatch] != v1alpha1.DispatchYes {
			return nil, err
		}
		return &wish{
			because: fmt.Sprintf("namespace %q has the label %s", job.Namespace, v1alpha1.LabelDispatch),
			mark:    v1alpha1.DispatchByNamespace, named: true,
		}, nil
	}
}

// wishOfPolicy returns the wish of a job's policy. The webhook's configuration leaves out namespaces with the label.
func wishOfPolicy(hub Hub, live client.Reader) func(context.Context, *metav1.ObjectMeta) (*wish, error) {
	return func(ctx context.Context, job *metav1.ObjectMeta) (*wish, error) {
		if wanted, err := hub.TakesUnmanaged(ctx); err != nil || !wanted {
			return nil, err // Without a read of the API server: this is asked for all jobs of a hub.
		}
		namespace, err := liveNamespace(ctx, live, job.Namespace)
		if err != nil {
			return nil, err
		}
		if _, labelled := namespace.Labels[v1alpha1.LabelDispatch]; labelled {
			return nil, nil
		}
		policy, err := hub.PolicyOf(ctx, job, namespace.Labels)
		if err != nil || policy.Rules().UnmanagedJobs != v1alpha1.UnmanagedDispatch {
			return nil, err
		}
		return &wish{
			because: fmt.Sprintf("DispatchPolicy %q has spec.unmanagedJobs: %s", policy.Name, v1alpha1.UnmanagedDispatch),
			mark:    v1alpha1.DispatchByPolicy,
		}, nil
	}
}

func liveNamespace(ctx context.Context, live client.Reader, name string) (*metav1.PartialObjectMetadata, error) {
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := live.Get(ctx, types.NamespacedName{Name: name}, namespace); err != nil {
		return nil, fmt.Errorf("get Namespace %q: %w", name, err)
	}
	return namespace, nil
}

// patch sets the manager, and the annotation that says who has set it. Both paths exist or are added as a whole.
func (a *adopter) patch(job *metav1.ObjectMeta, named bool, mark string) []jsonpatch.Operation {
	operation := "add"
	if named {
		operation = "replace"
	}
	operations := []jsonpatch.Operation{jsonpatch.NewOperation(operation, "/spec/managedBy", a.managedBy)}
	if len(job.Annotations) == 0 {
		return append(operations, jsonpatch.NewOperation("add", "/metadata/annotations",
			map[string]string{v1alpha1.AnnotationDispatch: mark}))
	}
	return append(operations, jsonpatch.NewOperation("add", "/metadata/annotations/trainyard.dev~1dispatch", mark))
}
