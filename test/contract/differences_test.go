// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package contract

// difference is a test of upstream's that we fail on purpose.
type difference struct {
	suite string
	test  string // all of its name
	fails string // a part of what it says, so that it can fail for no other reason
	why   string
}

const (
	onCreation = "TrainJob Webhook when Creating TrainJob Validate TrainJob on creation "
	markers    = "TrainJob marker validations and defaulting when Creating TrainJob Validate TrainJob on creation "

	code = "Refused as upstream refuses it, but as Invalid (422) with a cause for each field, as the API server itself does it. " +
		"Upstream's answer is Forbidden (403), which is what a missing right looks like, with all in one text."
	earlier = "The test breaks a TrainingRuntime that exists, and expects that a TrainJob of it is refused. " +
		"We refuse to break it. Upstream validates updates of ClusterTrainingRuntimes only."
)

// differences lists all differences. docs/trainjobs.md has the same list in prose.
var differences = []difference{
	{
		suite: "webhooks",
		test:  onCreation + "Should fail in creating trainJob referencing trainingRuntime not present in the namespace",
		fails: `is invalid: spec.runtimeRef.name: Not found: "invalid": there is no such TrainingRuntime`,
		why:   code,
	}, {
		suite: "webhooks",
		test:  onCreation + "Should fail in creating trainJob with trainer config having envs with reserved env names",
		fails: `is invalid: spec.trainer.env[0].name: Invalid value: "PET_NODE_RANK": reserved`,
		why:   code,
	}, {
		suite: "webhooks",
		test:  onCreation + "Should fail in creating TrainJob with Flux numProcPerNode < 1",
		fails: `is invalid: spec.trainer.numProcPerNode: Invalid value: 0: must be greater than or equal to 1`,
		why:   code,
	}, {
		suite: "webhooks",
		test:  onCreation + "Should fail in creating TrainJob with reserved flux-installer init container",
		fails: `InitContainer 'flux-installer' is reserved`,
		why:   code,
	}, {
		suite: "webhooks",
		test:  markers + "Should fail to create trainJob with invalid RuntimePatches manager",
		fails: `is invalid: spec.runtimePatches[0].manager: Invalid value: "kueue.k8s.io/"`,
		why:   code,
	}, {
		suite: "webhooks",
		test: onCreation + "Should fail in creating trainJob with pre-trained model config when referencing a trainingRuntime " +
			"without an initializer",
		fails: `admission webhook "validator.trainingruntime.trainyard.dev" denied the request`,
		why:   earlier,
	}, {
		suite: "webhooks",
		test: onCreation + "Should fail in creating trainJob with dataset initializer when referencing a trainingRuntime " +
			"without an initializer",
		fails: `admission webhook "validator.trainingruntime.trainyard.dev" denied the request`,
		why:   earlier,
	},
}
