#!/usr/bin/env bash
# Copyright The Trainyard Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Kubeflow Trainer v2.0.0, v2.1.0 and v2.2.0: the controller of TrainJobs sends a patch of the status in each reconcile, also if
# the status has not changed.
#
# Reconcile compares the new status with the old one before it patches. It passes a pointer to the one and the value of the
# other to equality.Semantic.DeepEqual, and these are never equal. So the API server gets a PATCH with the body {} for each
# reconcile, also of a TrainJob that has ended and never changes again: one request for each TrainJob at each start of the
# controller, and one at each event. v2.3.0 compares two values. (v2.0.0 and v2.1.0 were read, and not run here.)
#
# Below, the reconciler of v2.2.0 reconciles a TrainJob that has ended five times, on a client that notes the patches.
set -euo pipefail

folder=$(mktemp -d)
trap 'chmod -R u+w "$folder" && rm -rf "$folder"' EXIT
cd "$folder"
cat >want <<'EOF2'
v2.2.0: 5 reconciles of an ended TrainJob send 5 patches of its status: [{} {} {} {} {}]
EOF2
cat >main.go <<'EOF2'
package main

import (
	"context"
	"fmt"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/kubeflow/trainer/v2/pkg/controller"
	"github.com/kubeflow/trainer/v2/pkg/runtime/core"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

type noIndex struct{}

func (noIndex) IndexField(context.Context, client.Object, string, client.IndexerFunc) error { return nil }

func main() {
	ctx := context.Background()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, trainer.AddToScheme, jobset.AddToScheme} {
		must(add(scheme))
	}
	kind, group := "ClusterTrainingRuntime", "trainer.kubeflow.org"
	job := &trainer.TrainJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "job", UID: "job"},
		Spec:       trainer.TrainJobSpec{RuntimeRef: trainer.RuntimeRef{Name: "torch", Kind: &kind, APIGroup: &group}},
		Status: trainer.TrainJobStatus{Conditions: []metav1.Condition{{
			Type: trainer.TrainJobComplete, Status: metav1.ConditionTrue, Reason: "AllJobsCompleted", LastTransitionTime: metav1.Now(),
		}}},
	}
	patches := []string{}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(job).WithStatusSubresource(job).WithInterceptorFuncs(interceptor.Funcs{
		SubResourcePatch: func(_ context.Context, _ client.Client, _ string, o client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
			body, err := patch.Data(o)
			patches = append(patches, string(body))
			return err
		},
	}).Build()
	runtimes, err := core.New(ctx, c, noIndex{}, nil)
	must(err)
	reconciler := controller.NewTrainJobReconciler(c, events.NewFakeRecorder(10), runtimes)
	for range 5 {
		_, err := reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(job)})
		must(err)
	}
	fmt.Printf("v2.2.0: 5 reconciles of an ended TrainJob send %d patches of its status: %v\n", len(patches), patches)
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
EOF2
export GOFLAGS="-mod=mod -trimpath" GOWORK=off CGO_ENABLED=0
go mod init example.com/finding 2>/dev/null
go get github.com/kubeflow/trainer/v2@v2.2.0 2>/dev/null
go run . 2>/dev/null >got
if ! diff want got; then
  echo "this has changed: read the comment of this file again" >&2
  exit 1
fi
cat got
