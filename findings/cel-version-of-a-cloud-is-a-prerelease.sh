#!/usr/bin/env bash
# Copyright The Trainyard Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Kubernetes' CEL library (k8s.io/apiserver v0.36.3): the version that a managed cluster reports is before its release.
#
# Clouds put their build after a hyphen: v1.34.0-eks-1 is what EKS answers to /version. For semantic versions this is a
# pre-release, which is before 1.34.0. So an expression that asks for at least 1.34.0 leaves out exactly these clusters,
# and says nothing. GKE's v1.34.0-gke.100 is the same; build metadata after a plus (k3s) is ignored, as expected. The third
# form below is right for all of them. Without normalisation the leading v is an error.
#
# Trainyard's docs/policy.md shows comparisons that work.
set -euo pipefail

folder=$(mktemp -d)
trap 'chmod -R u+w "$folder" && rm -rf "$folder"' EXIT
cd "$folder"
cat >want <<'EOF'
semver("v1.34.0-eks-1", true).compareTo(semver("1.34.0")) >= 0: false
semver("v1.34.0+k3s1", true).compareTo(semver("1.34.0")) >= 0: true
semver("v1.34.0-eks-1", true).compareTo(semver("1.34.0-0")) >= 0: true
isSemver("v1.34.0-eks-1"): false
isSemver("v1.34.0-eks-1", true): true
EOF
cat >main.go <<'EOF'
package main

import (
	"fmt"

	"github.com/google/cel-go/cel"
	"k8s.io/apiserver/pkg/cel/library"
)

func main() {
	env, err := cel.NewEnv(library.SemverLib(library.SemverVersion(1)))
	must(err)
	for _, text := range []string{
		`semver("v1.34.0-eks-1", true).compareTo(semver("1.34.0")) >= 0`,
		`semver("v1.34.0+k3s1", true).compareTo(semver("1.34.0")) >= 0`,
		`semver("v1.34.0-eks-1", true).compareTo(semver("1.34.0-0")) >= 0`,
		`isSemver("v1.34.0-eks-1")`,
		`isSemver("v1.34.0-eks-1", true)`,
	} {
		ast, issues := env.Compile(text)
		must(issues.Err())
		program, err := env.Program(ast)
		must(err)
		value, _, err := program.Eval(map[string]any{})
		must(err)
		fmt.Printf("%s: %v\n", text, value)
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
EOF
export GOFLAGS=-mod=mod GOWORK=off CGO_ENABLED=0
go mod init example.com/finding 2>/dev/null
go get k8s.io/apiserver@v0.36.3 github.com/google/cel-go@v0.29.2 2>/dev/null
go run . >got
if ! diff want got; then
  echo "this has changed: read the comment of this file again" >&2
  exit 1
fi
cat got
