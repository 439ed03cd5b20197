// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
)

// thisMachine is what /proc says.
func thisMachine() Machine {
	m := Machine{CPUs: runtime.NumCPU(), Model: "unknown"}
	for line := range strings.Lines(read("/proc/cpuinfo")) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			m.Model = strings.TrimSpace(value)
		}
	}
	if fields := strings.Fields(read("/proc/meminfo")); len(fields) > 1 {
		kilobytes, _ := strconv.Atoi(fields[1])
		m.MemoryGB = (kilobytes + 1<<19) >> 20
	}
	if fields := strings.Fields(read("/proc/loadavg")); len(fields) > 0 {
		m.Load, _ = strconv.ParseFloat(fields[0], 64)
	}
	return m
}

func read(path string) string {
	data, _ := os.ReadFile(path) // If there is no such file, the report says nothing about it.
	return string(data)
}

// versions are the versions of everything that matters for the results.
func versions() map[string]string {
	all := map[string]string{"go": runtime.Version(), "kueue": "v0.19.2"}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return all
	}
	for _, module := range info.Deps {
		switch module.Path {
		case "github.com/kubeflow/trainer/v2", "k8s.io/client-go", "sigs.k8s.io/controller-runtime", "github.com/Shopify/toxiproxy/v2":
			all[module.Path] = module.Version
		}
	}
	return all
}
