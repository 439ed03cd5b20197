// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package hubcache

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// BenchmarkPack is what a finished job costs that comes from the API server, and what a handler costs that gets it.
func BenchmarkPack(b *testing.B) {
	d, err := json.Marshal(finished(1))
	check.Must(b, err)
	job, err := ended(1).MarshalJSON()
	check.Must(b, err)
	strip := trainjobs.StripOf(v1alpha1.ManagedByMultiKueue)
	decode := func() (*v1alpha1.Dispatch, *unstructured.Unstructured) {
		dispatch, trainJob := &v1alpha1.Dispatch{}, &unstructured.Unstructured{}
		check.Must(b, json.Unmarshal(d, dispatch))
		check.Must(b, trainJob.UnmarshalJSON(job))
		return dispatch, trainJob
	}
	b.Run("decode", func(b *testing.B) {
		for b.Loop() {
			decode()
		}
	})
	b.Run("decode and strip", func(b *testing.B) {
		for b.Loop() {
			dispatch, trainJob := decode()
			_, _ = StripDispatch(dispatch)
			_, _ = strip(trainJob)
		}
	})
	b.Run("decode, strip and pack", func(b *testing.B) {
		for b.Loop() {
			dispatch, trainJob := decode()
			_, _ = packing(StripDispatch)(dispatch)
			_, _ = packing(strip)(trainJob)
		}
	})
	stored, _ := packing(StripDispatch)(finished(1))
	storedJob, _ := packing(strip)(ended(1))
	b.Run("unpack", func(b *testing.B) {
		for b.Loop() {
			unpack(stored)
			unpack(storedJob)
		}
	})
}
