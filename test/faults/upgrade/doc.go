// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package upgrade tests the upgrade from an older version of Trainyard to this one, and the way back: what
// docs/upgrade.md says, with the programs, CRDs and rights of both versions on a hub and two workers.
//
// hack/upgrade.sh builds the older version and runs the tests.
package upgrade
