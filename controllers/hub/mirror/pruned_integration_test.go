// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/stage"
)

// The same tool manages hub and worker, with a set of the same name in both clusters. On the worker it deletes what has
// the set's label and is not among the worker's sources. A copy and its runtime do not have the label.
func TestPrunerOfAWorkerLeavesCopiesAlone(t *testing.T) {
	t.Setenv("KUBECTL_APPLYSET", "true")
	s := newScene(t, ownRuntimeOf())
	own := s.ownRuntime(t)
	job := s.job(t)
	apply(t, s.Hub.Cluster, s.key.Namespace, fmt.Sprintf(`
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: %s}
spec: {managedBy: kueue.x-k8s.io/multikueue, runtimeRef: {apiGroup: trainer.kubeflow.org, kind: TrainingRuntime, name: %s}}
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainingRuntime
metadata: {name: %s}
`, s.key.Name, own.Name, own.Name))
	const member = "applyset.kubernetes.io/part-of"
	if s.job(t).GetUID() != job.GetUID() || s.job(t).GetLabels()[member] == "" {
		t.Fatalf("the set of the hub has not taken the job: %v", s.job(t).GetLabels())
	}
	s.reconcile(t)
	copy := s.copy(t)
	if copy == nil {
		t.Fatal("no copy was created")
	}

	keep := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: kept}\n"
	apply(t, s.worker.Cluster, s.key.Namespace, keep+`---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: of-the-worker}
spec: {runtimeRef: {name: torch-distributed}}
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainingRuntime
metadata: {name: of-the-worker}
spec: {template: {spec: {}}}
`)
	apply(t, s.worker.Cluster, s.key.Namespace, keep)
	if pruned := stage.ReadTrainJob(t, s.worker.Admin, client.ObjectKey{Namespace: s.key.Namespace, Name: "of-the-worker"}); pruned != nil {
		t.Fatalf("the tool has not deleted what is in its sources no more: %v", pruned)
	}
	if now := s.copy(t); now == nil || now.GetUID() != copy.GetUID() || now.GetDeletionTimestamp() != nil {
		t.Errorf("the tool has deleted the copy: it had the labels %v", copy.GetLabels())
	}
	runtime := &metav1.PartialObjectMetadata{}
	runtime.SetGroupVersionKind(trainer.SchemeGroupVersion.WithKind(trainer.TrainingRuntimeKind))
	check.Equal(t, nil, s.worker.Admin.Get(t.Context(), client.ObjectKeyFromObject(own), runtime),
		"the tool has deleted the runtime of the copy")
	check.Equal(t, "a", runtime.Labels["team"],
		"the runtime has the labels %v, and lacks a label that no tool tracks", runtime.Labels)
}

// apply makes the set "team" of a namespace exactly what the documents say.
func apply(t *testing.T, server *clusters.Cluster, namespace, documents string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "sources.yaml")
	must(t, os.WriteFile(file, []byte(documents), 0o600))
	_, err := server.Kubectl(t.Context(), "apply", "--namespace", namespace, "--server-side", "--force-conflicts", "--validate=false",
		"--prune", "--applyset", "configmaps/team", "--filename", file)
	must(t, err)
}
