// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package s3 tests the archive of logs in a bucket, against a real server of S3 that builds from Go modules. It is a
// module of its own because of what that server needs.
package s3
