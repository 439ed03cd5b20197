#!/usr/bin/env bash
# Copyright The Trainyard Authors.
# SPDX-License-Identifier: Apache-2.0

set -euo pipefail

usage() {
  cat <<'EOF'
Registers a worker cluster on a Trainyard hub. Reads the worker's kubeconfig from
standard input, and writes a Secret and a WorkerCluster.

Usage: hack/worker-kubeconfig.sh --context WORKER | hack/register-worker.sh NAME [flags]

  --hub-kubeconfig FILE   kubeconfig of the hub (default: $KUBECONFIG or ~/.kube/config)
  --hub-context CONTEXT   context of the hub in it (default: the current one)
  --namespace NAME        namespace of the manager (default: trainyard-system)
  --label KEY=VALUE       a label that policies can select on; may be repeated
  --wait TIME             wait so long for the worker to be Ready, such as 60s
  --help                  show this

The same again, with a new kubeconfig, renews the credentials.
EOF
}

fail() {
  echo "error: $*" >&2
  exit 1
}

worker='' hub_kubeconfig='' hub_context='' wait_for='' labels=''
namespace=trainyard-system

while (($# > 0)); do
  case $1 in
  --help | -h)
    usage
    exit
    ;;
  --*)
    (($# > 1)) || fail "$1 needs a value"
    case $1 in
    --hub-kubeconfig) hub_kubeconfig=$2 ;;
    --hub-context) hub_context=$2 ;;
    --namespace) namespace=$2 ;;
    --wait) wait_for=$2 ;;
    --label)
      [[ $2 =~ ^([^=]+)=([-A-Za-z0-9_.]*)$ ]] || fail "--label $2 is not KEY=VALUE"
      labels+=$'\n'"    ${BASH_REMATCH[1]}: \"${BASH_REMATCH[2]}\""
      ;;
    *) fail "unknown flag $1 (see --help)" ;;
    esac
    shift 2
    ;;
  *)
    [[ -z $worker ]] || fail "one worker at a time: $worker or $1?"
    worker=$1
    shift
    ;;
  esac
done

[[ $worker =~ ^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$ ]] || fail "NAME must be the name of an object, and is '$worker' (see --help)"
[[ -z $hub_kubeconfig || -r $hub_kubeconfig ]] || fail "cannot read $hub_kubeconfig"
[[ ! -t 0 ]] || fail "pipe the worker's kubeconfig into this script (see --help)"
kubeconfig=$(cat)
[[ -n $kubeconfig ]] || fail "standard input is empty: there is no kubeconfig to register"

# shellcheck source=hack/kubectl.sh
source "$(dirname "${BASH_SOURCE[0]}")/kubectl.sh"

hub() {
  run_kubectl ${hub_kubeconfig:+--kubeconfig="$hub_kubeconfig"} ${hub_context:+--context="$hub_context"} \
    --request-timeout=30s "$@"
}

# Server-side, so that no annotation holds the token a second time.
apply() { hub apply --server-side --force-conflicts --field-manager=register-worker -f -; }

run_kubectl create secret generic "$worker-kubeconfig" --namespace "$namespace" \
  --from-file=kubeconfig=/dev/stdin --dry-run=client -o yaml <<<"$kubeconfig" | apply

apply <<EOF
apiVersion: trainyard.dev/v1alpha1
kind: WorkerCluster
metadata:
  name: $worker${labels:+
  labels:$labels}
spec:
  connection:
    kubeconfigSecretRef:
      name: $worker-kubeconfig
EOF

if [[ -n $wait_for ]]; then
  if ! hub wait --for=condition=Ready "workercluster/$worker" --request-timeout=0 --timeout="$wait_for"; then
    hub get workercluster "$worker" -o jsonpath='{.status.conditions[?(@.type=="Ready")].message}{"\n"}' >&2
    exit 1
  fi
fi
