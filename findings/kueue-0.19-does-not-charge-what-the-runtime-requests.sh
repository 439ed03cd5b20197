#!/usr/bin/env bash
# Copyright The Trainyard Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Kueue v0.19.2 beside Kubeflow Trainer v2.3.0: Kueue charges less quota than the pods of a TrainJob request.
#
# A TrainJob asks for 4 CPUs in spec.trainer.resourcesPerNode, and its runtime for 8 GPUs. Trainer v2.3.0 merges the two: each
# pod requests both. Kueue builds the pods of its Workload with the Trainer module that it is compiled with, v2.2.1, in which the
# job's resources take the place of the runtime's. So on a cluster with Trainer v2.3.0 each pod uses 8 GPUs and is charged none,
# and a ClusterQueue with a quota of 0 GPUs admits the job. No object in the cluster says with which Trainer a Kueue was compiled.
#
# Trainyard counts what the last Workload shows: docs/kueue.md.
set -euo pipefail

folder=$(mktemp -d)
trap 'chmod -R u+w "$folder" && rm -rf "$folder"' EXIT
cd "$folder"
cat >pods.go <<'EOF'
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/kubeflow/trainer/v2/pkg/runtime"
	"github.com/kubeflow/trainer/v2/pkg/runtime/core"
	corev1 "k8s.io/client-go/applyconfigurations/core/v1"
	clientgo "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	jobsets "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	jobset "sigs.k8s.io/jobset/client-go/applyconfiguration/jobset/v1alpha2"
)

type noIndex struct{}

func (noIndex) IndexField(context.Context, client.Object, string, client.IndexerFunc) error { return nil }

// podSpec returns the pods that Trainer makes of a runtime (JSON of its spec) and a job (JSON of its spec).
func podSpec(runtimeSpec, jobSpec string) *corev1.PodSpecApplyConfiguration {
	created := &trainer.ClusterTrainingRuntime{}
	created.Name = "runtime"
	must(json.Unmarshal([]byte(runtimeSpec), &created.Spec))
	group, kind := trainer.GroupVersion.Group, trainer.ClusterTrainingRuntimeKind
	job := &trainer.TrainJob{}
	job.Name, job.Namespace, job.UID = "job", "default", "uid"
	must(json.Unmarshal([]byte(jobSpec), &job.Spec))
	job.Spec.RuntimeRef = trainer.RuntimeRef{APIGroup: &group, Kind: &kind, Name: "runtime"}
	scheme := clientgo.Scheme
	must(errors.Join(trainer.AddToScheme(scheme), jobsets.AddToScheme(scheme)))
	runtimes, err := core.New(context.Background(), fake.NewClientBuilder().WithScheme(scheme).WithObjects(created).Build(), noIndex{}, nil)
	must(err)
	objects, err := runtimes[runtime.RuntimeRefToRuntimeRegistryKey(job.Spec.RuntimeRef)].NewObjects(context.Background(), job)
	must(err)
	for _, object := range objects {
		if set, is := object.(*jobset.JobSetApplyConfiguration); is {
			return set.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec
		}
	}
	panic("no JobSet")
}

func print(what string, value any) {
	text, err := json.Marshal(value)
	must(err)
	fmt.Printf("%s: %s\n", what, text)
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
EOF
cat >want <<'EOF'
Kueue v0.19.2 requires v2.2.1
v2.2.1: {"requests":{"cpu":"4"}}
v2.3.0: {"requests":{"cpu":"4","nvidia.com/gpu":"8"}}
EOF
cat >main.go <<'EOF'
package main

import "os"

func main() {
	pod := podSpec(`{"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [{"name": "node", "template": {
		"metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
		"spec": {"template": {"spec": {"containers": [{"name": "node", "image": "i", "resources": {"requests": {"nvidia.com/gpu": "8"}}}]}}}}}]}}}`,
		`{"trainer": {"resourcesPerNode": {"requests": {"cpu": "4"}}}}`)
	print(os.Args[1], pod.Containers[0].Resources)
}
EOF
export GOFLAGS='-mod=mod -trimpath' GOWORK=off CGO_ENABLED=0
go mod init example.com/finding 2>/dev/null
go get sigs.k8s.io/kueue@v0.19.2 2>/dev/null
version=$(go list -m -f '{{.Version}}' github.com/kubeflow/trainer/v2)
echo "Kueue v0.19.2 requires $version" >got
for version in "$version" v2.3.0; do
  rm go.mod go.sum
  go mod init example.com/finding 2>/dev/null
  go get "github.com/kubeflow/trainer/v2@$version" 2>/dev/null
  go mod tidy 2>/dev/null
  go run . "$version" >>got
done
if ! diff want got; then
  echo "this has changed: read the comment of this file again" >&2
  exit 1
fi
cat got
