// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package older tests jobs on workers with older releases of the Kubeflow Trainer, by the code of these releases:
// hack/build-trainers.sh builds them from their modules (test/trainers).
//
//	make test-trainers
//	go -C test/contract test ./older -run 'TestSamePodTemplates|TestReplacedResources' -v     # without clusters, after hack/build-trainers.sh
package older
