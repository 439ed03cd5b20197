// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhookserver has what the manager and the worker-agent share to serve admission webhooks: flags, the server,
// and its certificates, which are given, or which the process makes and renews itself.
//
// Use: make Options with the process' own words, call AddFlags and Validate, and then New. Give the Server to the
// controller manager. If there are Certificates, add them to the same controller manager, and call Remove at the end.
package webhookserver
