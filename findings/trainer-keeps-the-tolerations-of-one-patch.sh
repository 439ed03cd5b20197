#!/usr/bin/env bash
# Copyright The Trainyard Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Kubeflow Trainer v2.3.0: of several entries of spec.runtimePatches only the last one's tolerations are left, and none of the
# runtime's.
#
# Kueue and a user each have an entry in the list, which is keyed by manager so that they do not disturb each other. Node
# selectors of all entries and of the runtime are merged. Tolerations are one value: the last entry's list takes the place of
# the lists before. So a flavor of Kueue with a toleration takes away the toleration that the user, or the runtime, gave for a
# taint of the GPU nodes, and the pods stay Pending.
#
# Trainyard merges the lists: docs/kueue.md.
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
node selector: {"flavor":"spot","pool":"gpu","team":"a"}
tolerations: [{"key":"flavor","operator":"Exists"}]
EOF
cat >main.go <<'EOF'
package main

import "fmt"

func main() {
	pod := podSpec(`{"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [{"name": "node", "template": {
		"metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
		"spec": {"template": {"spec": {"nodeSelector": {"pool": "gpu"}, "tolerations": [{"key": "gpu", "operator": "Exists"}],
			"containers": [{"name": "node", "image": "i"}]}}}}}]}}}`,
		`{"runtimePatches": [`+patch("example.com/user", "team", "a")+`, `+patch("kueue.x-k8s.io/manager", "flavor", "spot")+`]}`)
	print("node selector", pod.NodeSelector)
	print("tolerations", pod.Tolerations)
}

func patch(manager, key, value string) string {
	return fmt.Sprintf(`{"manager": %q, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [{"name": "node", "template":
		{"spec": {"template": {"spec": {"nodeSelector": {%q: %q}, "tolerations": [{"key": %q, "operator": "Exists"}]}}}}}]}}}}`,
		manager, key, value, key)
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
