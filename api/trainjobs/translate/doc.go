// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package translate says with the fields of an older Kubeflow Trainer what a TrainJob of the hub says.
//
// Each release has one field of spec that changes the pods of a runtime: 2.0 podSpecOverrides, 2.1 podTemplateOverrides,
// and later releases runtimePatches. Into returns the field that a worker has, Spec translates runtimePatches into it, and
// Lacking says what it cannot express there, so that a job which uses it does not come to that worker. The table of rules
// says which part becomes which. What the parts have below is compared by the schemas of both clusters.
//
// A translation is exact: the older release makes the same JobSet of it, as far as the same release would make the same
// JobSet of the same spec. Three facts of the older releases decide the form:
//
//   - Both take the entries of a list one after another, as runtimePatches are taken. So the order stays.
//   - The webhook of 2.0 refuses a list in which two entries name the same replicated job. So all patches of a replicated
//     job become one entry. A list with keys, such as containers, may come from one patch only: in which order the elements
//     of two patches stand depends on the runtime. Fields names such a list with Twice.
//   - Older releases take labels and annotations of the JobSet from spec.labels and spec.annotations.
package translate
