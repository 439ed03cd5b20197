// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gap tests that the recorder of package history fills or tells the gaps of its watches. An API server that is
// killed and started again makes them: it has no events from before its start. The tests have a package of their own,
// because they start clusters, and the other tests of package history do not.
package gap
