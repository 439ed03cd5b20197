// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/kubeflow/trainer/v2/pkg/constants"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/trainyard/trainyard/webhooks/validation"
)

// Rules about runtimes, in metrics. Upstream defines the rules themselves.
const (
	ruleOneReplica        = "OneReplica"
	ruleRequiredContainer = "RequiredContainer"
	ruleOther             = "Other"
)

// runtimeWebhook validates runtimes of one kind. It checks new runtimes and changed specs with upstream's validation of
// creations. Upstream does not check updates of TrainingRuntimes (kubeflow/trainer#3686). A runtime that is being
// deleted or keeps its spec passes: a runtime that is older than the webhook must be able to lose its finalizers.
type runtimeWebhook[T client.Object] struct {
	upstream admission.Validator[T]
	kind     string
	spec     func(T) *trainer.TrainingRuntimeSpec
}

func clusterRuntimeValidator(
	upstream admission.Validator[*trainer.ClusterTrainingRuntime],
) admission.Validator[*trainer.ClusterTrainingRuntime] {
	return runtimeWebhook[*trainer.ClusterTrainingRuntime]{
		upstream: upstream,
		kind:     trainer.ClusterTrainingRuntimeKind,
		spec:     func(r *trainer.ClusterTrainingRuntime) *trainer.TrainingRuntimeSpec { return &r.Spec },
	}
}

func runtimeValidator(upstream admission.Validator[*trainer.TrainingRuntime]) admission.Validator[*trainer.TrainingRuntime] {
	return runtimeWebhook[*trainer.TrainingRuntime]{
		upstream: upstream,
		kind:     trainer.TrainingRuntimeKind,
		spec:     func(r *trainer.TrainingRuntime) *trainer.TrainingRuntimeSpec { return &r.Spec },
	}
}

// ValidateCreate returns upstream's warnings (the runtime is deprecated) and faults.
func (w runtimeWebhook[T]) ValidateCreate(ctx context.Context, runtime T) (admission.Warnings, error) {
	warnings, err := w.upstream.ValidateCreate(ctx, runtime)
	return warnings, w.refuse(runtime, err)
}

// ValidateUpdate returns the faults of a changed spec. Like upstream, it warns of deprecation only on creation.
func (w runtimeWebhook[T]) ValidateUpdate(ctx context.Context, old, runtime T) (admission.Warnings, error) {
	if runtime.GetDeletionTimestamp() != nil || equality.Semantic.DeepEqual(w.spec(old), w.spec(runtime)) {
		return nil, nil
	}
	_, err := w.upstream.ValidateCreate(ctx, runtime)
	return nil, w.refuse(runtime, err)
}

// ValidateDelete refuses nothing.
func (w runtimeWebhook[T]) ValidateDelete(context.Context, T) (admission.Warnings, error) {
	return nil, nil
}

func (w runtimeWebhook[T]) refuse(runtime T, err error) error {
	if err == nil {
		return nil
	}
	var all utilerrors.Aggregate
	if !errors.As(err, &all) {
		return err
	}
	var faults []validation.Fault
	for _, one := range all.Errors() {
		var at *field.Error
		if !errors.As(one, &at) {
			return err
		}
		faults = append(faults, runtimeFault(at))
	}
	return validation.Refuse(strings.ToLower(w.kind), w.kind, runtime.GetName(), faults)
}

// runtimeFault names the rule of upstream's error. Upstream prints whole containers and does not name the missing one.
func runtimeFault(err *field.Error) validation.Fault {
	helpful := *err
	switch {
	case strings.HasSuffix(err.Field, ".replicas"):
		return validation.Fault{Rule: ruleOneReplica, Err: &helpful}
	case strings.HasSuffix(err.Field, ".containers"):
		if containers, ok := err.BadValue.([]corev1.Container); ok {
			helpful.BadValue = validation.ContainerNames(containers)
		}
		helpful.Detail += fmt.Sprintf(" (a container named %q)", requiredContainer(err.Detail))
		return validation.Fault{Rule: ruleRequiredContainer, Err: &helpful}
	default:
		return validation.Fault{Rule: ruleOther, Err: &helpful}
	}
}

// requiredContainer returns the container that upstream requires, from a text that ends with the name of the step.
func requiredContainer(detail string) string {
	step := detail[strings.LastIndexByte(detail, ' ')+1:]
	if step == constants.AncestorTrainer {
		return constants.Node
	}
	return step
}
