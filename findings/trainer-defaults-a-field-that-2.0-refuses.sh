#!/usr/bin/env bash
# Copyright The Trainyard Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Kubeflow Trainer v2.1.0 and later beside v2.0.0: a runtime that uses nothing new cannot be copied from one cluster to
# the other.
#
# The CRDs of runtimes in v2.1.0 to v2.3.0 have a default for groupName of a replicated job, from the JobSet that they embed.
# So the API server adds the field to each runtime, whoever writes it. The CRD of v2.0.0 does not know it. A client that
# reads a runtime and creates it on such a cluster with strict field validation is refused, for a field that its user has
# never written. Without strict validation the field is dropped.
#
# Below, the schema of one release adds its defaults to a small runtime, and the schema of v2.0.0 says which fields it does not
# know. Trainyard creates runtimes strictly, so a worker with v2.0.0 needs runtimes of its own (docs/upgrade.md).
set -euo pipefail

folder=$(mktemp -d)
trap 'chmod -R u+w "$folder" && rm -rf "$folder"' EXIT
cd "$folder"
cat >want <<'EOF'
as v2.0.0 stores it: v2.0.0 does not know []
as v2.1.0 stores it: v2.0.0 does not know [spec.template.spec.replicatedJobs[0].groupName]
as v2.2.0 stores it: v2.0.0 does not know [spec.template.spec.replicatedJobs[0].groupName]
as v2.3.0 stores it: v2.0.0 does not know [spec.template.spec.replicatedJobs[0].groupName]
EOF
cat >main.go <<'EOF'
package main

import (
	"fmt"
	"os"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	v1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"sigs.k8s.io/yaml"
)

const small = `{
	"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "ClusterTrainingRuntime", "metadata": {"name": "small"},
	"spec": {"template": {"spec": {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": {"spec": {
		"containers": [{"name": "node", "image": "example.com/image:1"}]}}}}}]}}}
}`

func main() {
	releases := os.Args[1:] // DIRECTORY VERSION pairs
	oldest := schemaOf(releases[0])
	for i := 0; i < len(releases); i += 2 {
		runtime := map[string]any{}
		must(yaml.Unmarshal([]byte(small), &runtime))
		defaulting.Default(runtime, schemaOf(releases[i]))
		unknown := pruning.PruneWithOptions(runtime, oldest, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
		fmt.Printf("as %s stores it: %s does not know %v\n", releases[i+1], releases[1], unknown)
	}
}

func schemaOf(directory string) *schema.Structural {
	content, err := os.ReadFile(directory + "/manifests/base/crds/trainer.kubeflow.org_clustertrainingruntimes.yaml")
	must(err)
	var crd v1.CustomResourceDefinition
	must(yaml.Unmarshal(content, &crd))
	var internal apiextensions.JSONSchemaProps
	must(v1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, &internal, nil))
	structural, err := schema.NewStructural(&internal)
	must(err)
	return structural
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
EOF
export GOFLAGS=-mod=mod GOWORK=off CGO_ENABLED=0
go mod init example.com/finding 2>/dev/null
go get k8s.io/apiextensions-apiserver@v0.36.3 sigs.k8s.io/yaml@v1.6.0 2>/dev/null
releases=()
for version in v2.0.0 v2.1.0 v2.2.0 v2.3.0; do
  releases+=("$(go mod download -json "github.com/kubeflow/trainer/v2@$version" | sed -n 's/^\t"Dir": "\(.*\)",*$/\1/p')" "$version")
done
go run . "${releases[@]}" >got
if ! diff want got; then
  echo "this has changed: read the comment of this file again" >&2
  exit 1
fi
cat got
