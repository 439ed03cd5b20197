# Copyright The Trainyard Authors.
# SPDX-License-Identifier: Apache-2.0

# Everything is built from Go modules: Go, git, make and bash are all that is needed.
# Recipes of more than three lines are scripts in hack/.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# Everything is built with the same flags.
export CGO_ENABLED := $(shell source hack/flags.sh; echo "$$CGO_ENABLED")
export GOFLAGS := $(shell source hack/flags.sh; echo "$$GOFLAGS")

# What to benchmark, as regular expression and packages: make bench BENCH=Decide PKG=./dispatch
BENCH ?= .
PKG ?= ./...

# Of make test-fit.
RELEASE ?= 1.37
CASES ?= 50

.PHONY: help
help: ## Show this help
	@printf 'Usage: make TARGET\n'
	@awk -F ':.*## ' '/^##@ / { printf "\n%s\n", substr($$0, 5) } /^[a-z0-9-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' Makefile

##@ Build

.PHONY: build
build: ## Build bin/manager, bin/worker-agent and bin/kubectl-trainyard
	go run ./hack/gobuild Trainyard -buildvcs=false -o bin/ ./cmd/... # The same sources are the same programs, whatever the commit.
	hack/stamp.sh bin/manager bin/worker-agent bin/kubectl-trainyard

.PHONY: controlplane
controlplane: ## Build the clusters of tests and demo: bin/controlplane, kubectl, jobset-manager, kwok (minutes when cold)
	hack/build-controlplane.sh

.PHONY: helm
helm: ## Build bin/helm, with which the chart is checked (minutes when cold)
	hack/helm.sh version

.PHONY: generate
generate: ## Generate deepcopy functions, CRDs, and the templates of the chart that config/ has
	go generate ./...

.PHONY: clean
clean: ## Remove bin/, _output/ and .demo/; Go's caches stay
	rm -rf bin _output .demo

##@ Release

.PHONY: images
images: ## Write the images as OCI layouts, and load them into Docker (VERSION, REGISTRY, IMAGES_ARGS=flags)
	hack/release.sh images $(IMAGES_ARGS)

.PHONY: test-images
test-images: ## Do the same with the images of programs that only tests run
	hack/release.sh images --test $(IMAGES_ARGS)

.PHONY: push-images
push-images: ## Push what make images has written to a registry (REGISTRY=ghcr.io/example)
	hack/release.sh push

.PHONY: release
release: ## Write the files of a release into _output/release (VERSION, REGISTRY)
	hack/release.sh release

##@ Run

.PHONY: demo
demo: build controlplane ## Start a hub and two workers and run TrainJobs on them (DEMO_EXIT=1: stop when all have ended)
	go run ./hack/gobuild "the demo" -o bin/demo ./hack/demo
	exec bin/demo

.PHONY: demo-kind
demo-kind: build controlplane ## Run the demo on clusters of kind, with our images (KIND_IMAGE=node image, DEMO_EXIT=1)
	hack/kind.sh demo

##@ Test

.PHONY: test
test: ## Run every test that CI runs, but those whose inputs are as they were when it passed (ROWS=1: with less memory)
	hack/all.sh $(ALSO)

.PHONY: check
check: ## Check a change before you push: make verify, and what make test runs because of the change
	hack/all.sh verify bench-smoke

.PHONY: test-unit
test-unit: ## Run the tests that need no API server
	hack/test.sh unit

.PHONY: test-harness
test-harness: ## Run the tests of the simulator, of the benchmark and of the fault tests' own parts
	hack/test.sh harness

.PHONY: test-integration
test-integration: controlplane ## Run the tests on real API servers, three packages at a time
	hack/test.sh integration

.PHONY: test-concurrent
test-concurrent: controlplane ## Run those of packages with goroutines and locks of their own, with the race detector
	hack/test.sh concurrent

.PHONY: test-race
test-race: controlplane ## Run test-integration with the race detector, too
	RACE=all hack/test.sh integration

.PHONY: test-contract
test-contract: controlplane ## Run the Kubeflow Trainer's integration tests against our controller and webhooks
	hack/contract.sh

.PHONY: test-s3
test-s3: ## Run the tests of the log archive against a real S3 server, which is built from Go modules (minutes when cold)
	cd test/s3 && GOWORK=off go build -o ../../bin/versitygw github.com/versity/versitygw/cmd/versitygw
	cd test/s3 && GOWORK=off go test ./...

.PHONY: test-board
test-board: controlplane ## Run the board in headless Chromium, and write screenshots (Debian's package is chromium)
	go -C test/board test ./... -count=1 -timeout 20m -v

.PHONY: pictures
pictures: ## Make the pictures of README and docs from a running demo ("make demo" in another shell), in headless Chromium
	mkdir -p docs/pictures
	go -C test/board test -tags pictures -run TestPictures -count=1 ./...

.PHONY: test-e2e
test-e2e: build controlplane helm ## Run the tests of whole processes on a hub and workers
	hack/test.sh e2e

.PHONY: test-kind
test-kind: build controlplane ## Run the end-to-end tests and a real training on clusters of kind (KIND_IMAGE=node image)
	hack/kind.sh test

.PHONY: model
model: ## Explore the model of fencing with spin, and that each of its rules is needed (MODEL=large: further)
	hack/model.sh

.PHONY: explore
explore: ## Look for courses of events that break a promise, with seeds that nobody has tried (EXPLORER_STEPS=steps)
	EXPLORER_SEED=$${EXPLORER_SEED:-$$(date +%s)} EXPLORER_STEPS=$${EXPLORER_STEPS:-20000000} go test ./test/explorer -run TestExplore -count=1 -timeout 24h -v

.PHONY: test-lives
test-lives: controlplane ## Let random things happen to TrainJobs on a cluster (LIVES=seeds)
	CGO_ENABLED=1 TRAINYARD_LIVES=$${LIVES:-10} go test ./controllers/worker/trainjob -race -run TestRandomLives -count=1 -timeout 2h -v

.PHONY: test-soak
test-soak: build controlplane ## Break workers, links and processes for 45 s, under load: 14 kinds of faults
	hack/faults.sh short

.PHONY: test-faults
test-faults: build controlplane ## Run the tests of what happens when clusters, networks and processes fail, and a soak of three minutes
	hack/build-kueue.sh
	hack/faults.sh

.PHONY: soak
soak: build controlplane ## Break everything at random, under load (SOAK_ARGS="-duration 30m -rate 5 -seed N")
	hack/faults.sh soak $(SOAK_ARGS)

.PHONY: test-faults-broken
test-faults-broken: build controlplane ## Break one promise after the other, and see that the tests of faults notice (half an hour)
	hack/build-kueue.sh
	hack/faults.sh broken

.PHONY: test-upgrade
test-upgrade: build controlplane ## Upgrade a hub and workers with jobs from an older version, and go back (UPGRADE_FROM=commit)
	hack/upgrade.sh

.PHONY: test-versions
test-versions: build controlplane helm ## Run the end-to-end tests with hubs and workers of several Kubernetes releases (VERSIONS="HUB:WORKER ...")
	hack/versions.sh $(VERSIONS)

.PHONY: test-fit
test-fit: ## Compare our fit with what the scheduler of another Kubernetes release does (RELEASE=1.37 CASES=50)
	hack/build-controlplane.sh $(RELEASE)
	TRAINYARD_RELEASE=$(RELEASE) go test ./test/fit -cases $(CASES) -timeout 60m -v

.PHONY: test-kueue
test-kueue: build controlplane ## Run the tests with a real Kueue on the hub and on workers, which is built first (minutes when cold)
	hack/build-kueue.sh
	go -C test/benchmark/e2e test ./beside -count=1 -timeout 40m -v
	go -C test/faults test ./behind -count=1 -timeout 20m -v

.PHONY: test-trainers
test-trainers: build controlplane ## Run the tests with older releases of the Kubeflow Trainer on workers, which are built first (minutes when cold)
	hack/build-trainers.sh
	go -C test/contract test ./older -count=1 -timeout 40m -v

.PHONY: test-fakeservers
test-fakeservers: controlplane ## Compare the fake workers of benchmarks with a real API server
	go -C test/benchmark test ./fakeservers -count=1 -timeout 20m

.PHONY: bench
bench: ## Run the benchmarks of the product's packages (BENCH=regexp PKG=packages)
	go test -run '^$$' -bench '$(BENCH)' -benchmem $(PKG)

.PHONY: bench-e2e
bench-e2e: build controlplane ## Measure Trainyard beside MultiKueue, end to end (BENCH=smoke|quick|long; BENCH_ARGS="--baseline COMMIT": or against a commit)
	BENCH='$(BENCH)' hack/bench-e2e.sh $(BENCH_ARGS)

.PHONY: bench-expiry
bench-expiry: build controlplane ## Measure whether finished jobs that are deleted leave something behind (BENCH_ARGS=flags: --rate, --rate-for, --ttl)
	BENCH=expiry hack/bench-e2e.sh $(BENCH_ARGS)

.PHONY: bench-smoke
bench-smoke: build controlplane ## Check what a job costs in requests, end to end
	BENCH=smoke hack/bench-e2e.sh

.PHONY: simulate
simulate: ## Make the report of docs/simulation.md again (SIMULATE_ARGS=flags of test/simulation)
	go -C test/simulation build -o ../../_output/ .
	_output/simulation --seeds 5 --plots docs/simulation $(SIMULATE_ARGS)

##@ Check

.PHONY: lint
lint: ## Run golangci-lint (LINT_ARGS=--fix: repair what it can)
	hack/lint.sh $(LINT_ARGS)

.PHONY: fmt
fmt: ## Format the Go code as lint wants it
	hack/lint.sh fmt

.PHONY: verify
verify: ## Check that generated files, go.mod files, manifests and formats are in order; vet and lint
	hack/verify.sh

.PHONY: method-sets
method-sets: ## Print the types on which most methods can be called, and check the largest
	go run ./hack/methodsets
