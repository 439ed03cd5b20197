// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package yard starts a whole Trainyard on this machine: a hub and workers with real API servers (package clusters), the manager,
// and a worker-agent on every cluster. The end-to-end tests and the demo stand on it.
//
// Every process runs as its service account with the RBAC of config/, and workers are registered by the scripts that admins use.
// Nothing runs as the admin, so that a missing right is found here.
package yard
