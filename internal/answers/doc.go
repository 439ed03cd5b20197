// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package answers says what the answer of an API server means (Of). Some answers can be told apart by their messages
// only. A message that is to be recognised is here and nowhere else.
package answers
