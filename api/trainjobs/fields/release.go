// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package fields

import "slices"

// patchedGrace is what a patch of a runtime may set since release 2.3.
const patchedGrace = "runtimePatches.trainingRuntimeSpec.template.spec.replicatedJobs.template.spec.template.spec.terminationGracePeriodSeconds"

// releases are the minor releases of the Kubeflow Trainer that differ in their fields, the newest first, each with a field
// of the TrainJob's spec that releases before it do not have.
var releases = []struct{ name, field string }{
	{"2.3", patchedGrace},
	{"2.2", "runtimePatches"},
	{"2.1", "podTemplateOverrides"},
	{"2.0", "podSpecOverrides"},
}

// Release returns the minor release of the Kubeflow Trainer whose TrainJobs have a spec with this schema, such as "2.1",
// empty if it is none. A CRD does not say its release, so its fields have to. A release after the newest known one that
// only adds fields counts as the newest known one.
func Release(trainJob *Schema) string {
	for _, release := range releases {
		if trainJob.Has(release.field) {
			return release.name
		}
	}
	return ""
}

// Lag returns by how many minor releases one release is older than another: negative if it is newer. It returns false if
// one of them is not known.
func Lag(older, newer string) (releasesBehind int, known bool) {
	from, to := place(older), place(newer)
	return from - to, from >= 0 && to >= 0
}

func place(name string) int {
	for at, release := range slices.All(releases) {
		if release.name == name {
			return at
		}
	}
	return -1
}
