// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bundle makes the files of a release that are no images: archives of binaries, manifests, the chart, the
// manifest of kubectl's plugin for krew, bills of materials and checksums. The same commit gives the same bytes.
package bundle
