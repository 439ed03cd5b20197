// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gateway makes configs that lead through the gateway of a hub, as the manager publishes it in a ConfigMap.
//
//	published, err := gateway.Parse(configMap.Data)
//	config, err := published.Reach(configOfTheHub)
//	kubeconfig := gateway.Kubeconfig(config, "hub", "team-a")
//
// It does no I/O. The gateway passes the caller's token on to the hub, so a config keeps its credentials, and client
// certificates are of no use there.
package gateway
