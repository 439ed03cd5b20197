// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	trainerruntime "github.com/kubeflow/trainer/v2/pkg/runtime"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/worker/trainjob"
	"github.com/trainyard/trainyard/test/check"
)

// unreadable is a cluster of which nothing can be read.
type unreadable struct{ client.Client }

// Get returns an error.
func (unreadable) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	return errors.New("no right to get " + key.String())
}

// Scheme and RESTMapper are what a controller needs.
func (unreadable) Scheme() *apiruntime.Scheme  { return nil }
func (unreadable) RESTMapper() meta.RESTMapper { return nil }

// torchJob returns a TrainJob as the API server gives it to webhooks.
func torchJob() *trainer.TrainJob {
	j := &trainer.TrainJob{}
	j.Namespace, j.Name = "ns", "j"
	j.Spec.RuntimeRef = trainer.RuntimeRef{
		Name: "torch-distributed", APIGroup: &trainer.GroupVersion.Group, Kind: new(trainer.ClusterTrainingRuntimeKind),
	}
	j.Spec.Trainer = &trainer.Trainer{NumNodes: new(int32(2))}
	return j
}

func TestPanicOfTheFrameworkIsAnAnswer(t *testing.T) {
	j := torchJob()
	var panics struct{ trainerruntime.Runtime } // A call of its methods panics.
	c := &Checker{runtimes: map[string]trainerruntime.Runtime{runtimeKind(j): panics}}
	_, faults := c.opinion(t.Context(), j, runtimeOf(nil))
	if len(faults) != 1 || faults[0].Rule != rulePanic || !strings.Contains(faults[0].Err.Error(), "whether a field is missing") {
		t.Errorf("got %v", faults)
	}
}

// TestPriorityClassesAreNotRead: upstream's framework reads PriorityClasses for Volcano. The agent may not read them,
// and its cache would wait until the request is over.
func TestPriorityClassesAreNotRead(t *testing.T) {
	c, err := New(t.Context(), Options{Client: unreadable{}, NewRuntimes: trainjob.NewRuntimes})
	check.Must(t, err)
	r := runtimeOf(map[string][]string{"node": {"node"}})
	r.podOf("node").PriorityClassName = "no-such-class"
	r.spec.PodGroupPolicy = &trainer.PodGroupPolicy{}
	r.spec.PodGroupPolicy.Volcano = &trainer.VolcanoPodGroupPolicySource{}
	if _, faults := c.opinion(t.Context(), torchJob(), r); len(faults) > 0 {
		t.Errorf("the framework has read it: %v", faults[0].Err)
	}
}

func TestTTLAnnotation(t *testing.T) {
	for value, good := range map[string]bool{
		"0": true, "3600": true, "4294967296": true, "4294967297": false, "": false, "-1": false, "1.5": false, "10m": false, "0x10": false,
	} {
		j := torchJob()
		j.Annotations = map[string]string{v1alpha1.AnnotationTTL: value}
		if faults := ttlFaults(j); (len(faults) == 0) != good {
			t.Errorf("value %q: %v", value, faults)
		}
	}
	if faults := ttlFaults(torchJob()); faults != nil {
		t.Errorf("without the annotation: %v", faults)
	}
}

func TestPathsAreSortedByNumber(t *testing.T) {
	want := []string{
		"metadata.name", "spec.runtimePatches", "spec.runtimePatches[1].manager", "spec.runtimePatches[2].manager",
		"spec.runtimePatches[2].trainingRuntimeSpec", "spec.runtimePatches[10].manager", "spec.runtimeRef.name",
	}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, byPath)
	check.Diff(t, want, got, "order of paths")
}

func TestListed(t *testing.T) {
	for want, names := range map[string][]string{
		"none":                   nil,
		`"a", "b"`:               {"b", "a"},
		`"a", "b" and 1 more`:    {"c", "b", "a"},
		`"a10", "a2" and 1 more`: {"a2", "b", "a10"},
	} {
		check.Equal(t, want, listed(names, 2), "listed(%q)", names)
	}
}

// The agent's framework does not know what the hub has translated for an older Kubeflow Trainer.
func TestTranslatedCopyIsRefused(t *testing.T) {
	job := &trainer.TrainJob{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationTranslatedInto: "podTemplateOverrides"}}}
	faults := TranslatedResult(job).Faults
	if len(faults) != 1 || faults[0].Err.Field != "spec.podTemplateOverrides" {
		t.Errorf("the faults are %v", faults)
	}
	job.Spec.ManagedBy = new(v1alpha1.ManagedByMultiKueue)
	check.Equal(t, 0, len(TranslatedResult(job).Faults), "faults of a job that another controller runs")
	check.Equal(t, 0, len(TranslatedResult(&trainer.TrainJob{}).Faults), "faults of a job in the agent's form")
}
