// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	corev1 "k8s.io/api/core/v1"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/test/explorer/memory"
)

// describe says in words what a change has done.
func describe(change memory.Change) string {
	verb := "changes"
	version := change.After
	switch {
	case change.Before == nil:
		verb = "creates"
	case change.After == nil:
		verb, version = "removes", change.Before
	}
	return fmt.Sprintf("%s %s %s %s: %s", change.Actor, verb, change.Kind, change.Key.Name, state(version))
}

func state(version *memory.Version) string {
	object := version.Object
	text := string(object.GetUID())
	switch object := object.(type) {
	case *v1alpha1.Dispatch:
		text = fmt.Sprintf("%s, attempt %d on %q, %s", record.StateOf(object), object.Spec.Attempt, object.Spec.Cluster, object.Spec.Failover)
		for _, kind := range []string{v1alpha1.DispatchMirrored, v1alpha1.DispatchWorkerLost, v1alpha1.DispatchFinished} {
			if c := meta.FindStatusCondition(object.Status.Conditions, kind); c != nil {
				text += fmt.Sprintf(", %s=%s/%s", kind, c.Status, c.Reason)
			}
		}
	case *v1alpha1.ExecutionLease:
		text = fmt.Sprintf("challenge %s, answer %s, %s", object.Status.Challenge, object.Spec.Answer, object.Status.State)
	case *v1alpha1.WorkerCluster:
		if c := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.WorkerClusterReady); c != nil {
			text = c.Reason
		}
	case *corev1.Pod:
		text = fmt.Sprintf("%s, attempt %s, %s", object.UID, object.Labels[labelAttempt], object.Status.Phase)
	case *unstructured.Unstructured:
		text += describeJob(object)
	}
	if object.GetDeletionTimestamp() != nil {
		text += ", going " + strings.Join(object.GetFinalizers(), " ")
	}
	return text
}

func describeJob(job *unstructured.Unstructured) string {
	text := ""
	if attempt := job.GetAnnotations()[v1alpha1.AnnotationAttempt]; attempt != "" {
		text += ", attempt " + attempt
	}
	if challenge := job.GetAnnotations()[v1alpha1.AnnotationChallenge]; challenge != "" {
		text += ", challenge " + challenge
	}
	if trainjobs.Suspended(job) {
		text += ", suspended"
	}
	if _, fenced := job.GetAnnotations()[v1alpha1.AnnotationFenced]; fenced {
		text += ", fenced"
	}
	if end := trainjobs.Terminal(job); end != nil {
		text += ", " + end.Type
	}
	return text
}
