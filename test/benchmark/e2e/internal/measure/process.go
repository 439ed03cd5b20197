// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/fleet"
)

// ticksPerSecond is the unit of the times in /proc/PID/stat: USER_HZ, which is 100 on every architecture that Go runs
// on.
const ticksPerSecond = 100

// Usage is what a process has used.
type Usage struct {
	// CPU seconds since it was started.
	CPU float64
	// RSS is its resident memory, and Peak the maximum of that since ResetPeak, in bytes.
	RSS, Peak int64
}

// UsageOf reads the usage of a process.
func UsageOf(pid int) (Usage, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Usage{}, err
	}
	// The name, in parentheses, may have spaces.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 13 {
		return Usage{}, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	var usage Usage
	for _, field := range fields[11:13] { // utime and stime
		ticks, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return Usage{}, err
		}
		usage.CPU += ticks / ticksPerSecond
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Usage{}, err
	}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		kilobytes, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		switch name {
		case "VmRSS":
			usage.RSS = kilobytes << 10
		case "VmHWM":
			usage.Peak = kilobytes << 10
		}
	}
	return usage, nil
}

// ResetPeak makes Peak begin again.
func ResetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}

// Heap is what a Go process has on its heap after a garbage collection, in bytes, by its pprof endpoint.
func Heap(ctx context.Context, pprof string) (int64, error) {
	var heap int64
	for range 2 { // Objects with finalizers are freed by the second collection.
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+pprof+"/debug/pprof/heap?gc=1&debug=1", http.NoBody)
		if err != nil {
			return 0, err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return 0, err
		}
		heap, err = heapAlloc(bufio.NewScanner(response.Body))
		_ = response.Body.Close()
		if err != nil {
			return 0, err
		}
	}
	return heap, nil
}

// Goroutines is how many a Go process has.
func Goroutines(ctx context.Context, pprof string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+pprof+"/debug/pprof/goroutine?debug=1", http.NoBody)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	line, err := bufio.NewReader(response.Body).ReadString('\n')
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "goroutine profile: total")))
}

// Profile writes a CPU profile of the next so many seconds of a Go process to a file.
func Profile(ctx context.Context, pprof, path string, seconds int) error {
	url := fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", pprof, seconds)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	profile, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	return os.WriteFile(path, profile, 0o644)
}

func heapAlloc(profile *bufio.Scanner) (int64, error) {
	profile.Buffer(nil, 1<<20)
	for profile.Scan() {
		if value, found := strings.CutPrefix(profile.Text(), "# HeapAlloc = "); found {
			return strconv.ParseInt(value, 10, 64)
		}
	}
	return 0, fmt.Errorf("no HeapAlloc in the heap profile: %w", profile.Err())
}

// CPU is CPU time by role. A role is what a process is and where: "hub: etcd", "workers: worker-agent". All processes
// of a role count together.
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
