// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"fmt"
	"os"

	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/fleet"
)

// CPU is CPU time by role. A role is what a process is and where: "hub: etcd", "workers: worker-agent". All processes of
// a role count together.
type CPU map[string]float64

// Benchmark is the role of the benchmark's own process: users, stubs, watches, distance, and the floor's dispatching.
const Benchmark = "benchmark"

// ReadCPU reads the CPU seconds of all processes that run.
func ReadCPU(f *fleet.Fleet) (CPU, error) {
	cpu := CPU{}
	for i, cluster := range f.Clusters() {
		side := "workers"
		if i == 0 {
			side = "hub"
		}
		for _, process := range cluster.Cluster.Processes() {
			usage, err := UsageOf(process.PID())
			if err != nil {
				return nil, fmt.Errorf("read the CPU time of %s of %s: %w", process.Name, cluster.Name, err)
			}
			cpu[side+": "+process.Name] += usage.CPU
		}
	}
	own, err := UsageOf(os.Getpid())
	if err != nil {
		return nil, err
	}
	cpu[Benchmark] = own.CPU
	return cpu, nil
}

// Minus is what was used since. It is an error if a process has ended since, because what it used is not known.
func (c CPU) Minus(earlier CPU) (CPU, error) {
	since := CPU{}
	for role, used := range earlier {
		if c[role] < used {
			return nil, fmt.Errorf("a process of the role %q has ended", role)
		}
	}
	for role, used := range c {
		since[role] = used - earlier[role]
	}
	return since, nil
}

// PerJob is CPU seconds as milliseconds per job.
func (c CPU) PerJob(jobs int) CPU {
	perJob := CPU{}
	for role, used := range c {
		perJob[role] = 1000 * used / float64(jobs)
	}
	return perJob
}

// Sum is the CPU time of all roles.
func (c CPU) Sum() (sum float64) {
	for _, used := range c {
		sum += used
	}
	return sum
}
