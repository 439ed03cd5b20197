#!/usr/bin/env bash
# Copyright The Trainyard Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs on clusters of kind, with our images:
#   hack/kind.sh test [PACKAGE...]    the end-to-end tests, and a real training on two nodes, or the packages
#   hack/kind.sh demo                 the demo
# KIND_IMAGE is the node image (default: the one that kind publishes). TEST_ARGS are arguments of "go test".
# IMAGES=skip takes the images that Docker has in place of new ones.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

need_docker() {
  if ! command -v docker >/dev/null; then
    echo "kind needs Docker, and there is no docker command: https://docs.docker.com/engine/install" >&2
    exit 1
  fi
  local problem
  if ! problem="$(docker info --format '{{.ServerVersion}}' 2>&1 >/dev/null)"; then
    echo "kind needs a running Docker, and Docker does not answer: ${problem}" >&2
    exit 1
  fi
}

# Some virtual machines lack a capability, so that "docker run --privileged" fails. See the script of this folder.
need_capabilities() {
  local bounding
  bounding="$(awk '$1 == "CapBnd:" {print $2}' /proc/self/status 2>/dev/null)"
  if [[ -n ${bounding} ]] && (((16#${bounding} >> 24 & 1) == 0)); then
    echo "This machine lacks CAP_SYS_RESOURCE: nodes run without it (hack/docker-without-sys-resource)."
    PATH="${PWD}/hack/docker-without-sys-resource:${PATH}"
    export PATH
  fi
}

build_images() {
  [[ ${IMAGES:-} != skip ]] || return 0
  local platform
  platform="linux/$(go env GOARCH)"
  make images test-images IMAGES_ARGS="--platforms ${platform}"
  # JobSet publishes its image in a registry. This one is built from the Go module.
  tar -c -C bin jobset-manager -C ../hack jobset.Dockerfile |
    docker build --quiet --tag trainyard/jobset-manager:latest --file jobset.Dockerfile - >/dev/null
}

need_docker
need_capabilities
build_images
export TRAINYARD_CLUSTERS=kind
case "${1:-}" in
test)
  packages=("${@:2}")
  [[ ${#packages[@]} != 0 ]] || packages=(./test/e2e-multicluster ./test/e2e-multicluster/training)
  # One package after the other: each has a hub and workers.
  # shellcheck disable=SC2086
  go test -p 1 "${packages[@]}" -count=1 -timeout 90m -v ${TEST_ARGS:-}
  ;;
demo)
  # Not "go run": after Ctrl-C it exits with 1, and make reports an error.
  go run ./hack/gobuild "the demo" -o bin/demo ./hack/demo
  exec bin/demo
  ;;
*)
  echo "usage: hack/kind.sh test [PACKAGE...] | demo" >&2
  exit 2
  ;;
esac
