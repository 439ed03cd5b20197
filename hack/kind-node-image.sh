#!/usr/bin/env bash
# Copyright The Trainyard Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Builds a node image for kind from Debian packages and Go modules alone, for machines that reach no image registry:
#   hack/kind-node-image.sh [IMAGE]     default: trainyard/kind-node
# Then: KIND_IMAGE=trainyard/kind-node make test-kind. On other machines kind's published node image is the right one.
#
# Debian has containerd, runc, the CNI plugins and iptables. The module hack/kindnode has Kubernetes, etcd, CoreDNS, the
# pause program and a small pod network. The image runs on Linux machines with cgroup v1 only. The script needs root,
# Docker, Go and debootstrap. DEBIAN_SUITE and DEBIAN_MIRROR say which Debian.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
image="${1:-trainyard/kind-node}"
suite="${DEBIAN_SUITE:-bookworm}"
mirror="${DEBIAN_MIRROR:-}"
packages=ca-certificates,conntrack,containerd,containernetworking-plugins,ethtool,hostname,iproute2,iptables,jq,kmod
packages+=,libseccomp2,mount,procps,runc,socat,util-linux
out="${root}/_output/kindnode"
bin="${out}/bin"

need() { # COMMAND HINT
  command -v "$1" >/dev/null || { echo "kind-node-image.sh needs $1: $2" >&2; exit 1; }
}

build_programs() {
  cd "${root}/hack/kindnode"
  version="$(GOWORK=off go list -m -f '{{.Version}}' k8s.io/kubernetes)"
  local package=k8s.io/component-base/version major minor
  IFS=. read -r major minor _ <<<"${version#v}"
  local flags="-s -w -X ${package}.gitVersion=${version} -X ${package}.gitMajor=${major} -X ${package}.gitMinor=${minor}"
  echo "building Kubernetes ${version} and CoreDNS (minutes when cold) ..."
  GOWORK=off CGO_ENABLED=0 go build -p "${BUILD_PARALLEL:-$(getconf _NPROCESSORS_ONLN)}" -trimpath -ldflags "${flags}" \
    -o "${bin}/" ./kubernetes ./coredns ./pause ./podnet
  ln -sf kubernetes "${bin}/kubeadm"
}

# The packages are installed once. Their list and the suite are the key.
install_packages() {
  local key="${suite} ${mirror} ${packages}"
  if [[ "$(cat "${out}/debian.key" 2>/dev/null)" != "${key}" ]]; then
    echo "installing Debian ${suite} ..."
    rm -rf "${out}/debian"
    debootstrap --variant=minbase --include="${packages}" "${suite}" "${out}/debian" ${mirror:+"${mirror}"} >"${out}/debootstrap.log" 2>&1 ||
      { tail -n 5 "${out}/debootstrap.log" >&2; exit 1; }
    rm -rf "${out}/debian"/{var/cache/apt,var/lib/apt/lists,usr/share/{doc,man,locale}}/*
    echo "${key}" >"${out}/debian.key"
  fi
}

# copy_with_libraries copies programs and the shared libraries that they load.
copy_with_libraries() { # FROM TO PATH...
  local from="$1" to="$2" path
  shift 2
  for path in "$@" $(cd "${from}" && chroot "${from}" ldd "$@" | grep -o '/[^ ]*' | grep -v ':$' | sort -u); do
    mkdir -p "${to}$(dirname "${path}")"
    cp -L "${from}${path}" "${to}${path}"
  done
}

# import_image makes an image of a directory, with Dockerfile instructions.
import_image() { # DIRECTORY NAME INSTRUCTION...
  local directory="$1" name="$2" instruction changes=()
  shift 2
  for instruction in "$@"; do changes+=(--change "${instruction}"); done
  tar -C "${directory}" --owner=0 --group=0 -c . | docker import "${changes[@]}" - "${name}" >/dev/null
}

# One image has all programs of the control plane and kube-proxy, which runs iptables. It has several names.
build_kubernetes_image() { # FIRST_NAME
  local tree="${out}/images/kubernetes" program
  mkdir -p "${tree}"/usr/{local/bin,sbin}
  cp "${bin}/kubernetes" "${tree}/usr/local/bin/"
  for program in etcd kube-apiserver kube-controller-manager kube-proxy kube-scheduler; do
    ln -s kubernetes "${tree}/usr/local/bin/${program}"
  done
  # iptables loads its extensions, which need libraries of their own.
  copy_with_libraries "${out}/debian" "${tree}" /usr/sbin/xtables-nft-multi \
    $(cd "${out}/debian" && printf '/%s\n' usr/lib/*-linux-gnu/xtables/*.so)
  for program in {ip,ip6}tables{,-save,-restore}; do ln -s xtables-nft-multi "${tree}/usr/sbin/${program}"; done
  import_image "${tree}" "$1" 'ENV PATH=/usr/local/bin:/usr/sbin'
}

build_program_image() { # PROGRAM NAME
  local tree="${out}/images/$1"
  mkdir -p "${tree}"
  cp "${bin}/$1" "${tree}/"
  import_image "${tree}" "$2" "ENTRYPOINT [\"/$1\"]"
}

# The names are those that kubeadm gives to images. The archive is loaded by the nodes, and Docker forgets the names.
build_images() {
  local name first="" names=()
  for name in $("${bin}/kubeadm" config images list --kubernetes-version "${version}") localhost/podnet:node; do
    names+=("${name}")
    case "${name}" in
    */coredns:*) build_program_image coredns "${name}" ;;
    */pause:*) build_program_image pause "${name}"; pause="${name}" ;;
    */podnet:*) build_program_image podnet "${name}" ;;
    *)
      if [[ -z ${first} ]]; then first="${name}"; build_kubernetes_image "${name}"; else docker tag "${first}" "${name}"; fi
      ;;
    esac
  done
  docker save -o "${out}/images.tar" "${names[@]}"
  docker rmi "${names[@]}" >/dev/null
}

build_node_image() {
  local tree="${out}/node" program
  cp -al "${out}/debian" "${tree}"
  mkdir -p "${tree}"/kind/{images,manifests} "${tree}"/etc/{containerd,kubernetes/manifests} "${tree}/etc/cni/net.d"
  echo "${version}" >"${tree}/kind/version"
  mv "${out}/images.tar" "${tree}/kind/images/"
  cd "${root}/hack/kindnode/files"
  cp default-cni.yaml default-storage.yaml "${tree}/kind/manifests/"
  rm -f "${tree}/etc/containerd/config.toml"
  sed "s#@PAUSE@#${pause}#" containerd.toml >"${tree}/etc/containerd/config.toml"
  cp "${bin}/kubernetes" "${tree}/usr/local/bin/"
  for program in kubeadm kubectl kubelet; do ln -s kubernetes "${tree}/usr/local/bin/${program}"; done
  install -m 755 entrypoint "${tree}/usr/local/bin/entrypoint"
  import_image "${tree}" "${image}" 'ENV container=docker' \
    'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' 'ENTRYPOINT ["/usr/local/bin/entrypoint"]'
}

need docker "the image is built and stored by Docker"
need debootstrap "apt-get install debootstrap"
need go "https://go.dev/dl"
[[ ${EUID} == 0 ]] || { echo "kind-node-image.sh needs root: debootstrap installs packages with chroot" >&2; exit 1; }
mkdir -p "${bin}"
rm -rf "${out}/images" "${out}/node"
build_programs
install_packages
build_images
build_node_image
rm -rf "${out}/images" "${out}/node"
echo "built ${image} for Kubernetes ${version}"
