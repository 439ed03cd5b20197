// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fields compares the fields that objects have with the fields that an API knows.
//
// All releases of the Kubeflow Trainer serve the same version of their API, with different fields. Read reads what one
// cluster knows from its OpenAPI document, and Missing what another cluster does not know of that. Such a list is short:
// releases differ in few fields. Of returns what an object has, and Unknown the fields that are in both lists.
//
// A field is named by its path from the spec down, with dots, as by kubectl explain: the elements of a list have the path
// of the list. "trainer.numProcPerNode (string)" is a scalar with its type.
package fields
