#!/usr/bin/env bash
# Copyright The Trainyard Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Kubeflow Trainer v2.3.0: the pods of a torch runtime with several nodes get no rendezvous settings if the TrainJob has no
# spec.trainer.
#
# The runtime says numNodes: 2 and has the torch policy. Of a TrainJob with spec.trainer, even an empty one, the container gets
# PET_NNODES, PET_NODE_RANK, PET_MASTER_ADDR and the like. Of a TrainJob without that field it gets none of them, and nothing
# warns: two pods run, each of which believes that it is alone, and each trains the whole model.
#
# Trainyard's webhooks warn of such a job.
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
without spec.trainer: 0 variables
with an empty spec.trainer: 5 variables: ["PET_MASTER_ADDR","PET_MASTER_PORT","PET_NNODES","PET_NODE_RANK","PET_NPROC_PER_NODE"]
EOF
cat >main.go <<'EOF'
package main

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/client-go/applyconfigurations/core/v1"
)

const torch = `{"mlPolicy": {"numNodes": 2, "torch": {}}, "template": {"spec": {"replicatedJobs": [{"name": "node", "template": {
	"metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
	"spec": {"template": {"spec": {"containers": [{"name": "node", "image": "i"}]}}}}}]}}}`

func variables(pod *corev1.PodSpecApplyConfiguration) []string {
	var names []string
	for _, variable := range pod.Containers[0].Env {
		if strings.HasPrefix(*variable.Name, "PET_") {
			names = append(names, *variable.Name)
		}
	}
	slices.Sort(names)
	return names
}

func main() {
	fmt.Printf("without spec.trainer: %d variables\n", len(variables(podSpec(torch, `{}`))))
	with := variables(podSpec(torch, `{"trainer": {}}`))
	print(fmt.Sprintf("with an empty spec.trainer: %d variables", len(with)), with)
}
EOF
export GOFLAGS='-mod=mod -trimpath' GOWORK=off CGO_ENABLED=0
go mod init example.com/finding 2>/dev/null
go get github.com/kubeflow/trainer/v2@v2.3.0 2>/dev/null
go mod tidy 2>/dev/null
go run . >got
if ! diff want got; then
  echo "this has changed: read the comment of this file again" >&2
  exit 1
fi
cat got
