// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package answers recognises answers of API servers that only their messages tell apart. A message that is to be
// recognised is here and nowhere else.
package answers
