// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package archive keeps finished jobs beyond their deletion from the hub: one line of JSON for each job, with its
// TrainJob and its Dispatch, to a file (Dir) or to an HTTPS endpoint (Endpoint).
//
// A job is archived at least once. A crash between the write and the deletion makes the next leader write it again;
// lines of the same job have the same metadata.uid. A crash in the middle of a write leaves a part of a line. The next
// line begins on a line of its own, so a reader skips what is not JSON.
package archive
