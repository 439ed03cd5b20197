// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	jobruntime "github.com/kubeflow/trainer/v2/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// Case is a TrainJob and its ClusterTrainingRuntime.
type Case struct {
	Runtime  json.RawMessage `json:"runtime"`
	TrainJob json.RawMessage `json:"trainJob"`
}

// Answer is what the release makes of a Case.
type Answer struct {
	// Error is why there are no objects: the release does not know a field, or cannot build them.
	Error string `json:"error,omitempty"`
	// Faults are what the webhook says against the TrainJob.
	Faults []string `json:"faults,omitempty"`
	// Objects are what the release applies.
	Objects []any `json:"objects,omitempty"`
}

// answerAll answers each Case with one line.
func answerAll(ctx context.Context, in io.Reader, out io.Writer) error {
	cases, answers := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var c Case
		if err := cases.Decode(&c); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read a case: %w", err)
		}
		answer, err := answerOf(ctx, c)
		if err != nil {
			answer.Error = err.Error()
		}
		if err := answers.Encode(answer); err != nil {
			return err
		}
	}
}

func answerOf(ctx context.Context, c Case) (answer Answer, err error) {
	runtime, job := &trainer.ClusterTrainingRuntime{}, &trainer.TrainJob{}
	if err := strictly(c.Runtime, runtime); err != nil {
		return answer, fmt.Errorf("read the runtime: %w", err)
	}
	if err := strictly(c.TrainJob, job); err != nil {
		return answer, fmt.Errorf("read the TrainJob: %w", err)
	}
	scheme, err := newScheme()
	if err != nil {
		return answer, err
	}
	runtimes, err := newRuntimes(ctx, fake.NewClientBuilder().WithScheme(scheme).WithObjects(runtime).Build(), noIndex{})
	if err != nil {
		return answer, err
	}
	of := runtimes[jobruntime.RuntimeRefToRuntimeRegistryKey(job.Spec.RuntimeRef)]
	if of == nil {
		return answer, fmt.Errorf("kind of runtime %v is not known", job.Spec.RuntimeRef)
	}
	_, faults := of.ValidateObjects(ctx, nil, job)
	for _, fault := range faults {
		answer.Faults = append(answer.Faults, fault.Error())
	}
	objects, err := of.NewObjects(ctx, job)
	if err != nil {
		return answer, fmt.Errorf("build the objects: %w", err)
	}
	for _, object := range objects {
		answer.Objects = append(answer.Objects, object)
	}
	return answer, nil
}

// strictly reads an object, and fails if the type of the release does not have a field.
func strictly(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

// noIndex discards indexes.
type noIndex struct{}

// IndexField implements client.FieldIndexer.
func (noIndex) IndexField(context.Context, client.Object, string, client.IndexerFunc) error {
	return nil
}
