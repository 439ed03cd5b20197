#!/usr/bin/env bash
# Copyright The Trainyard Authors.
# SPDX-License-Identifier: Apache-2.0

# Prints the TrainJob CRD of the Kubeflow Trainer that go.mod names, patched to
# admit any domain-prefixed managedBy (config/crd/trainjob-any-manager).

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=hack/kubectl.sh
source hack/kubectl.sh

# kustomize reads files in or below its directory only, and bases by relative path: hence a copy of both.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
go mod download github.com/kubeflow/trainer/v2
trainer=$(go list -m -f '{{.Dir}}' github.com/kubeflow/trainer/v2)
cp "$trainer/manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml" "$work/trainjobs.yaml"
cp -r config/crd/trainjob-any-manager "$work/patch"
cat >"$work/kustomization.yaml" <<'EOF'
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [trainjobs.yaml]
components: [patch]
EOF
run_kubectl kustomize "$work"
