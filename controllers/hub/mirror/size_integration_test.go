// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/test/check"
)

// The API server keeps no managedFields of the single fields of a Dispatch: they would be nearly half of it, in etcd and
// in each event of each watch. The rules that compare a spec with the one before hold all the same.
func TestDispatchIsSmall(t *testing.T) {
	s := newScene(t, setting{})
	s.reconcile(t)
	writer := records.Writer{Hub: s.Hub.Admin, Clock: s.Clock}
	must(t, writer.UpdateStatus(t.Context(), s.dispatch(t), func(status *v1alpha1.DispatchStatus) { status.Reason = "Written" }))
	d := &v1alpha1.Dispatch{}
	must(t, s.Hub.Admin.Get(t.Context(), client.ObjectKeyFromObject(s.dispatch(t)), d))
	written := map[string]bool{}
	for _, entry := range d.ManagedFields {
		var fields map[string]map[string]any
		must(t, json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields))
		for _, part := range []string{"f:spec", "f:status"} {
			below, has := fields[part]
			written[part] = written[part] || has
			if len(below) > 0 {
				t.Errorf("%s has managedFields of %s", part, slices.Collect(maps.Keys(below)))
			}
		}
	}
	check.Diff(t, map[string]bool{"f:spec": true, "f:status": true}, written, "what has managedFields")

	for message, change := range map[string]func(*v1alpha1.DispatchSpec){
		"attempt never falls":             func(spec *v1alpha1.DispatchSpec) { spec.Attempt-- },
		"trainJob is immutable":           func(spec *v1alpha1.DispatchSpec) { spec.TrainJob.UID = "another" },
		"only together with a higher att": func(spec *v1alpha1.DispatchSpec) { spec.Cluster = "another" },
	} {
		changed := d.DeepCopy()
		change(&changed.Spec)
		if err := s.Hub.Admin.Patch(t.Context(), changed, client.MergeFrom(d)); err == nil || !strings.Contains(err.Error(), message) {
			t.Errorf("got %v, want that the API server says: %s", err, message)
		}
	}
}
