// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjobs

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/trainyard/trainyard/test/check"
)

// TestCommonValues checks that equal values are shared, and that different values stay different.
func TestCommonValues(t *testing.T) {
	spec := func(gpus any) map[string]any {
		return map[string]any{
			"runtimeRef": map[string]any{"name": "torch-distributed"},
			"trainer":    map[string]any{"args": []any{"--lr", "0.1"}, "resourcesPerNode": map[string]any{"limits": map[string]any{"nvidia.com/gpu": gpus}}},
		}
	}
	cases := map[string]struct {
		reason string
		a, b   map[string]any
		same   bool
	}{
		"Alike":       {reason: "two jobs of one team", a: spec("8"), b: spec("8"), same: true},
		"OtherText":   {reason: "a text differs", a: spec("8"), b: spec("4")},
		"TextNumber":  {reason: "a text is no number", a: spec("8"), b: spec(int64(8))},
		"WholeNumber": {reason: "JSON has 8.0 as another number than 8", a: spec(int64(8)), b: spec(float64(8))},
		"Null":        {reason: "null is not the text", a: spec(nil), b: spec("null")},
		"Quotes":      {reason: "quotes in a text end nothing", a: spec(`8","9`), b: spec(`8`)},
		"ListMap":     {reason: "an empty list is no empty map", a: spec([]any{}), b: spec(map[string]any{})},
		"Nested":      {reason: "a list of two is not two lists", a: spec([]any{[]any{"a", "b"}}), b: spec([]any{[]any{"a"}, []any{"b"}})},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var c commonValues
			var got []map[string]any
			for _, in := range []map[string]any{tc.a, tc.b} {
				want := runtime.DeepCopyJSON(in)
				out := c.of(in)
				check.Diff(t, want, out, fmt.Sprintf("%s: it is another value", tc.reason))
				got = append(got, out)
			}
			if isSame(got[0]["trainer"], got[1]["trainer"]) != tc.same {
				t.Errorf("%s: are they one map: %t, want %t", tc.reason, !tc.same, tc.same)
			}
			if !isSame(got[0]["runtimeRef"], got[1]["runtimeRef"]) {
				t.Error("what is alike in both is there twice")
			}
		})
	}
}

// TestStripWritesToNoCache checks that a second transform of an object, as in a list, changes no cached object.
func TestStripWritesToNoCache(t *testing.T) {
	sent := func() *unstructured.Unstructured {
		job := New()
		job.SetName("llm")
		job.SetLabels(map[string]string{"team": "a"})
		job.Object["spec"] = map[string]any{"runtimeRef": map[string]any{"name": "torch-distributed"}}
		return job
	}
	cached, err := Strip(sent())
	check.Must(t, err)
	stop := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				cached.(*unstructured.Unstructured).DeepCopy()
			}
		}
	})
	for range 2000 {
		again := any(sent())
		for range 2 {
			if again, err = Strip(again); err != nil {
				t.Error(err)
			}
		}
	}
	close(stop)
	reader.Wait()
}

func isSame(a, b any) bool { return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer() }

// TestCommonValuesForget uses too many and too long values, from several caches at once.
func TestCommonValuesForget(t *testing.T) {
	var c commonValues
	var caches sync.WaitGroup
	for seed := range uint64(4) {
		caches.Go(func() {
			draw := rand.New(rand.NewPCG(seed, 1))
			for range 2000 {
				in := map[string]any{"spec": random(draw, 4), "status": random(draw, 3)}
				want := runtime.DeepCopyJSON(in)
				if diff := cmp.Diff(want, c.of(in)); diff != "" {
					t.Errorf("seed %d: it is another value (-want +got):\n%s", seed, diff)
					return
				}
			}
		})
	}
	caches.Wait()
	for i := range c.known {
		if known := len(c.known[i].values); known > mostKnown {
			t.Errorf("%d values are remembered on one shelf", known)
		}
		for form := range c.known[i].values {
			if len(form) > longest {
				t.Errorf("a value of %d bytes is remembered", len(form))
			}
		}
	}
}

// random returns a value as JSON decodes it, with at most this depth.
func random(draw *rand.Rand, depth int) any {
	scalars := []any{nil, true, int64(draw.IntN(3)), float64(draw.IntN(3)), fmt.Sprint(draw.IntN(300)), string(make([]byte, draw.IntN(longest)))}
	kind := draw.IntN(len(scalars) + 2)
	switch {
	case kind < len(scalars):
		return scalars[kind]
	case depth == 0:
		return "leaf"
	case kind == len(scalars):
		list := make([]any, draw.IntN(4))
		for i := range list {
			list[i] = random(draw, depth-1)
		}
		return list
	default:
		fields := map[string]any{}
		for range draw.IntN(6) {
			fields[fmt.Sprint("field", draw.IntN(9))] = random(draw, depth-1)
		}
		return fields
	}
}
