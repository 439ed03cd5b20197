// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
)

const dispatcher = "trainyard.dev/dispatcher"

// managed returns a TrainJob with this managedBy value, or without one.
func managed(name string, by ...string) *trainer.TrainJob {
	j := &trainer.TrainJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
		Spec:       trainer.TrainJobSpec{RuntimeRef: trainer.RuntimeRef{Name: "torch-distributed"}},
	}
	for _, value := range by {
		j.Spec.ManagedBy = &value
	}
	return j
}

// TestManagedBy checks that the CRD decides which values are valid, and that the agent ignores other managers' jobs.
func TestManagedBy(t *testing.T) {
	setUp(t)
	err := world.client.Create(t.Context(), managed("unpatched", dispatcher), client.DryRunAll)
	want := `TrainJob.trainer.kubeflow.org "unpatched" is invalid: spec.managedBy: Invalid value: "trainyard.dev/dispatcher": ` +
		`ManagedBy must be trainer.kubeflow.org/trainjob-controller or kueue.x-k8s.io/multikueue if set`
	if err == nil || err.Error() != want {
		t.Errorf("the CRD as Trainer has it: got error\n%v\nwant\n%s", err, want)
	}
	patchCRD(t)
	a := startAgent(t, serveWebhooks(t, "managed-by")...)
	awaitRefusal(t)

	theirs := managed("theirs", dispatcher)
	check.Must(t, world.client.Create(t.Context(), theirs))
	t.Run("LeftAlone", func(t *testing.T) { checkLeftAlone(t, theirs) })
	t.Run("Immutable", func(t *testing.T) {
		_, err := world.cluster.Kubectl(t.Context(), "patch", "trainjob", theirs.Name, "--type=merge",
			"-p", `{"spec":{"managedBy":"trainer.kubeflow.org/trainjob-controller"}}`)
		if err == nil || !strings.Contains(err.Error(), `spec.managedBy: Invalid value: "trainer.kubeflow.org/trainjob-controller": field is immutable`) {
			t.Errorf("got error %v", err)
		}
	})
	t.Run("NoDomain", func(t *testing.T) {
		for _, value := range []string{"dispatcher", "/dispatcher", "Trainyard.dev/dispatcher", "trainyard.dev/"} {
			err := world.client.Create(t.Context(), managed("no-domain", value), client.DryRunAll)
			want := `spec.managedBy: Invalid value: "` + value + `": managedBy must be a domain-prefixed path (such as "acme.io/foo")`
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: got error\n%v\nwant one with\n%s", value, err, want)
			}
		}
	})
	a.checkRights(t)
}

// patchCRD lets the cluster's TrainJob CRD accept any manager for the rest of the test. It does what the kustomization
// describes for an existing CRD.
func patchCRD(t *testing.T) {
	t.Helper()
	module, err := clusters.ModuleDir(t.Context(), "github.com/kubeflow/trainer/v2")
	check.Must(t, err)
	t.Cleanup(func() {
		check.Must(t, world.cluster.ApplyFiles(context.Background(), filepath.Join(module, "manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml")))
	})
	_, err = world.cluster.Kubectl(t.Context(), "patch", "crd", "trainjobs.trainer.kubeflow.org", "--type=json",
		"--patch-file", "../../config/crd/trainjob-any-manager/patch.yaml")
	check.Must(t, err)
	eventually(t, "the patched CRD to be served", func(g gomega.Gomega) {
		g.Expect(world.client.Create(t.Context(), managed("patched", dispatcher), client.DryRunAll)).To(gomega.Succeed())
	})
}

// checkLeftAlone runs two of the agent's own jobs to their end, with and without the value. Then it checks that nobody
// changed the other job.
func checkLeftAlone(t *testing.T, theirs *trainer.TrainJob) {
	for _, ours := range []*trainer.TrainJob{managed("built-in", "trainer.kubeflow.org/trainjob-controller"), managed("absent")} {
		check.Must(t, world.client.Create(t.Context(), ours))
		awaitComplete(t, ours)
	}
	now := &trainer.TrainJob{}
	check.Must(t, world.client.Get(t.Context(), client.ObjectKeyFromObject(theirs), now))
	if diff := cmp.Diff(theirs, now); diff != "" { // Nobody may change anything: resource version, status, finalizers.
		t.Errorf("somebody has written the TrainJob:\n%s", diff)
	}
	if len(now.Finalizers) > 0 || len(now.Status.Conditions) > 0 {
		t.Errorf("it has finalizers %v and conditions %v", now.Finalizers, now.Status.Conditions)
	}
	err := world.client.Get(t.Context(), client.ObjectKeyFromObject(theirs), &jobsetv1alpha2.JobSet{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("there is a JobSet (error %v)", err)
	}
	var events eventsv1.EventList
	check.Must(t, world.client.List(t.Context(), &events, client.InNamespace(theirs.Namespace)))
	for _, event := range events.Items {
		if event.Regarding.Name == theirs.Name {
			t.Errorf("there is an Event: %s: %s", event.Reason, event.Note)
		}
	}
}
