#!/usr/bin/env bash
# Copyright The Trainyard Authors.
# SPDX-License-Identifier: Apache-2.0

set -euo pipefail

usage() {
  cat <<'EOF'
Prints the kubeconfig with which a Trainyard hub reaches a worker cluster.

Usage: hack/worker-kubeconfig.sh (--context CONTEXT | --kubeconfig FILE) [flags]

It applies config/worker on the worker (a namespace, and the ServiceAccount
trainyard-hub with the least rights that work) with your credentials, and prints
a kubeconfig with that account's token. All else goes to standard error.

  --context CONTEXT   context of the worker in your kubeconfig
  --kubeconfig FILE   kubeconfig of the worker (default: $KUBECONFIG or ~/.kube/config)
  --server URL        address at which the hub reaches the worker's API server
                      (default: the one in your kubeconfig)
  --namespace NAME    namespace of the ServiceAccount (default: trainyard-system);
                      another one than before takes the rights from the account
                      in the old one
  --duration TIME     a token that expires, such as 24h; it has to be renewed in
                      time (default: a token that is valid until its Secret,
                      trainyard-hub-token, is deleted)
  --help              show this

Example, with the second half on the hub:

  hack/worker-kubeconfig.sh --context gpu-east | hack/register-worker.sh gpu-east --hub-context hub
EOF
}

info() { echo "$*" >&2; }

fail() {
  echo "error: $*" >&2
  exit 1
}

context='' kubeconfig='' server='' duration=''
namespace=trainyard-system
account=trainyard-hub

while (($# > 0)); do
  case $1 in
  --help | -h)
    usage
    exit
    ;;
  --context | --kubeconfig | --server | --namespace | --duration)
    (($# > 1)) || fail "$1 needs a value"
    printf -v "${1#--}" %s "$2"
    shift 2
    ;;
  *) fail "unknown argument $1 (see --help)" ;;
  esac
done

[[ -n $context || -n $kubeconfig ]] || fail "say which cluster is the worker: --context or --kubeconfig (see --help)"
[[ -z $kubeconfig || -r $kubeconfig ]] || fail "cannot read $kubeconfig"
[[ $namespace =~ ^[a-z0-9]([-a-z0-9]*[a-z0-9])?$ ]] || fail "--namespace $namespace is not the name of a namespace"

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=hack/kubectl.sh
source "$root/hack/kubectl.sh"

# Talks to the worker with the caller's credentials.
worker() {
  run_kubectl ${kubeconfig:+--kubeconfig="$kubeconfig"} ${context:+--context="$context"} --request-timeout=30s "$@"
}

# Prints one field of the caller's cluster entry.
cluster_field() {
  run_kubectl ${kubeconfig:+--kubeconfig="$kubeconfig"} ${context:+--context="$context"} \
    config view --raw --minify --flatten -o "jsonpath={.clusters[0].cluster.$1}"
}

# Prints the token of a Secret that the worker's controller manager fills.
lasting_token() {
  local token
  worker apply -f - >&2 <<EOF
apiVersion: v1
kind: Secret
type: kubernetes.io/service-account-token
metadata:
  name: $account-token
  namespace: $namespace
  annotations:
    kubernetes.io/service-account.name: $account
EOF
  for _ in {1..60}; do
    token=$(worker get secret "$account-token" --namespace "$namespace" \
      --template '{{with .data}}{{with .token}}{{base64decode .}}{{end}}{{end}}')
    if [[ -n $token ]]; then
      echo "$token"
      return
    fi
    sleep 0.5
  done
  fail "the worker put no token into the Secret $namespace/$account-token within 30 seconds; try --duration"
}

# Prints certificate-authority-data for the kubeconfig, or nothing where the server's certificate is of a public authority.
authority() {
  local data
  data=$(cluster_field certificate-authority-data)
  if [[ -z $data && $(cluster_field insecure-skip-tls-verify) == true ]]; then
    info "Your kubeconfig does not verify the worker's certificate; taking the authority from the worker's kube-root-ca.crt."
    data=$(worker get configmap kube-root-ca.crt --namespace kube-system --template '{{index .data "ca.crt"}}' | base64 | tr -d '\n')
  fi
  echo "$data"
}

# Tries the kubeconfig that is to be printed: a mistake is better seen here than on the hub.
check() {
  local file answer code=0
  file=$(mktemp)
  printf '%s\n' "$1" >"$file"
  answer=$(run_kubectl --kubeconfig="$file" --request-timeout=15s auth can-i list nodes 2>&1) || code=$?
  rm -f "$file"
  ((code != 0)) || return 0
  [[ -n $server ]] || fail "the new kubeconfig does not work: $answer"
  info "warning: cannot try the new kubeconfig at $server from here: $answer"
}

address=${server:-$(cluster_field server)} || fail "the kubeconfig has no such context"
[[ $address == https://* ]] || fail "the worker's address must begin with https://, and is '$address'"
info "Applying config/worker to $(cluster_field server)"
run_kubectl kustomize "$root/config/worker" | sed "s/trainyard-system/$namespace/g" | worker apply -f - >&2 ||
  fail "could not apply config/worker (this takes the rights of an admin)"

if [[ -n $duration ]]; then
  token=$(worker create token "$account" --namespace "$namespace" --duration "$duration") || fail "could not create a token"
else
  token=$(lasting_token)
fi
ca=$(authority)
name=$(cluster_field tls-server-name)

result="apiVersion: v1
kind: Config
current-context: worker
clusters:
- name: worker
  cluster:
    server: $address${ca:+
    certificate-authority-data: $ca}${name:+
    tls-server-name: $name}
users:
- name: $account
  user:
    token: $token
contexts:
- name: worker
  context:
    cluster: worker
    user: $account"

check "$result"
printf '%s\n' "$result"
