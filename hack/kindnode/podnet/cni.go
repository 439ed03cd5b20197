// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
)

// cniFile is read by the container runtime of the node.
const cniFile = "/etc/cni/net.d/10-podnet.conflist"

// cniConfig returns the configuration of the CNI plugins for a node with the pod CIDR.
func cniConfig(podCIDR string) ([]byte, error) {
	type object = map[string]any
	return json.MarshalIndent(object{
		"cniVersion": "0.3.1",
		"name":       "podnet",
		"plugins": []object{
			{
				"type":   "ptp",
				"ipMasq": true,
				"ipam": object{
					"type":   "host-local",
					"ranges": [][]object{{{"subnet": podCIDR}}},
					"routes": []object{{"dst": "0.0.0.0/0"}},
				},
			},
			{"type": "portmap", "capabilities": object{"portMappings": true}},
		},
	}, "", "  ")
}

// writeCNI writes the configuration unless it is there. A rename makes sure that the runtime never reads half of it.
func writeCNI(podCIDR string) error {
	config, err := cniConfig(podCIDR)
	if err != nil {
		return err
	}
	if old, err := os.ReadFile(cniFile); err == nil && bytes.Equal(old, config) {
		return nil
	}
	part := filepath.Join(filepath.Dir(cniFile), ".podnet.part")
	if err := os.WriteFile(part, config, 0o600); err != nil {
		return err
	}
	slog.Info("Write CNI configuration", "podCIDR", podCIDR)
	return os.Rename(part, cniFile)
}
