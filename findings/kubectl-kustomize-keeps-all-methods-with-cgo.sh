#!/usr/bin/env bash
# Copyright The Trainyard Authors.
# SPDX-License-Identifier: Apache-2.0
#
# kustomize (sigs.k8s.io/kustomize/api v0.21.1): whoever imports it, as kubectl and kwok do, gets a much larger program
# from a build with cgo than from one without, and needs a C linker for it.
#
# Its plugin loader imports Go's package plugin. With cgo, a program that has plugin is linked by the system's linker, and Go's
# linker cannot drop methods that nothing calls, because a plugin might. Without cgo, plugin is a stub. cgo is on by default
# where there is a C compiler. Nothing says so: the build succeeds, and the program is a quarter to a third larger.
#
# Trainyard builds its control plane, which has kubectl in it, without cgo (hack/flags.sh). Needs a C compiler.
set -euo pipefail

folder=$(mktemp -d)
trap 'chmod -R u+w "$folder" && rm -rf "$folder"' EXIT
cd "$folder"
cat >main.go <<'EOF'
package main

import (
	"fmt"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

func main() {
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), ".")
	fmt.Println(resources, err)
}
EOF
export GOFLAGS=-mod=mod GOWORK=off
go mod init example.com/finding 2>/dev/null
go get sigs.k8s.io/kustomize/api@v0.21.1 2>/dev/null
go mod tidy 2>/dev/null
 echo "import plugin: $(go list -deps -f '{{$p := .ImportPath}}{{range .Imports}}{{if eq . "plugin"}}{{$p}} {{end}}{{end}}' . | tr -d '\n')"
for cgo in 0 1; do
  CGO_ENABLED=$cgo go build -ldflags '-s -w' -o "kustomize-$cgo" .
  methods=$(strings -a "kustomize-$cgo" | grep -c '^k8s.io/kube-openapi/pkg/validation/spec\.' || true)
  echo "CGO_ENABLED=$cgo: $(stat -c %s "kustomize-$cgo") bytes, $methods names of kube-openapi's package spec"
done | tee got
awk '$1 == "CGO_ENABLED=0:" { without = $2 } $1 == "CGO_ENABLED=1:" { with = $2 } END { exit !(with > 1.1 * without) }' got || {
  echo "this has changed: read the comment of this file again" >&2
  exit 1
}
