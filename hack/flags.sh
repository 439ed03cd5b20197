# Copyright The Trainyard Authors.
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash

# Sourced by the Makefile and by scripts: the flags with which everything is built, product, control plane, tests and images.
# With other flags Go compiles all of Kubernetes' libraries again. In a shell, ". hack/flags.sh" does the same for go test.

# With cgo, a program that can load plugins, as kubectl's kustomize can, is linked with all that it does not need.
export CGO_ENABLED=0
GOFLAGS=$(go env GOFLAGS)
# A package is then the same in each directory, so that a new clone finds the packages of the last one in Go's cache.
[[ " $GOFLAGS " == *" -trimpath "* ]] || GOFLAGS+=" -trimpath"
export GOFLAGS
