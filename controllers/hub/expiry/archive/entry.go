// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Entry is a job that is about to be deleted.
type Entry struct {
	TrainJob *unstructured.Unstructured `json:"trainJob"`
	// Dispatch has the history of the job's attempts.
	Dispatch   *v1alpha1.Dispatch `json:"dispatch"`
	ArchivedAt time.Time          `json:"archivedAt"`
}

// line encodes an entry in one line, with its end. JSON has no line breaks of its own, and writes line breaks of users
// as \n. The size is bounded by what etcd takes for the two objects. Managed fields, and kubectl's copy of the job, are
// left out.
func (e Entry) line() ([]byte, error) {
	e.TrainJob, e.Dispatch = e.TrainJob.DeepCopy(), e.Dispatch.DeepCopy()
	trainjobs.StripMetadata(e.TrainJob)
	e.Dispatch.ManagedFields = nil
	e.Dispatch.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Dispatch"))
	encoded, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return append(encoded, '\n'), nil
}
