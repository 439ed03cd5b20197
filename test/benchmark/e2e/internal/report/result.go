// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/scenario"
)

// The systems.
const (
	Floor      = "floor"
	Trainyard  = "trainyard"
	MultiKueue = "multikueue"
	Tuned      = "multikueue-tuned"
)

// Result is what one system did on one fleet. What was not measured is nil.
type Result struct {
	System  string  `json:"system"`
	Workers int     `json:"workers"`
	RTT     float64 `json:"rttMs"`
	// GarbageCollector: Kubernetes' garbage collector has run on each cluster.
	GarbageCollector bool `json:"garbageCollector,omitempty"`
	// Replicas is how many managers Trainyard had, if there were several.
	Replicas int `json:"managers,omitempty"`
	// Agents is how many worker-agents each worker had.
	Agents   int                 `json:"agentsPerWorker,omitempty"`
	Burst    *scenario.Run       `json:"burst,omitempty"`
	Idle     *scenario.Run       `json:"idle,omitempty"`
	Finished []scenario.Finished `json:"finished,omitempty"`
	Live     *scenario.Live      `json:"live,omitempty"`
	Rate     *scenario.Rate      `json:"rate,omitempty"`
	// Error ended the measuring.
	Error string `json:"error,omitempty"`
}

// Report is all of a run.
type Report struct {
	Date     time.Time         `json:"date"`
	Machine  Machine           `json:"machine"`
	Versions map[string]string `json:"versions"`
	Results  []*Result         `json:"results"`
	// Many is Trainyard with many fake workers.
	Many *scenario.Many `json:"many,omitempty"`
	// Expiry is Trainyard with finished jobs that are archived and deleted.
	Expiry *scenario.Expiry `json:"expiry,omitempty"`
	// Unequal are the dispatchers of MultiKueue on unequal workers, of one run.
	Unequal []scenario.Unequal `json:"unequal,omitempty"`
	// Comparisons are the present tree against a baseline, on different fleets.
	Comparisons []*Comparison `json:"comparisons,omitempty"`
}

// Machine is where it was measured.
type Machine struct {
	CPUs     int    `json:"cpus"`
	Model    string `json:"model"`
	MemoryGB int    `json:"memoryGB"`
	// Load is the average number of processes that wanted a CPU in the minute before: what else ran on the machine.
	Load float64 `json:"loadBefore"`
}

// name of the system, with what is not usual about it and the fleet.
func (r *Result) name() string {
	name := r.System
	if r.GarbageCollector {
		name += ", garbage collector"
	}
	if r.Replicas > 1 {
		name += fmt.Sprintf(", %d managers", r.Replicas)
	}
	if r.Agents > 0 {
		name += fmt.Sprintf(", agents: %d", r.Agents)
	}
	return name
}

// scenarioRun is what the jobs of a scenario took.
type scenarioRun struct {
	scenario string
	*scenario.Run
}

// runs are the runs of the scenarios that were measured.
func (r *Result) runs() []scenarioRun {
	var all []scenarioRun
	if r.Burst != nil {
		all = append(all, scenarioRun{"burst", r.Burst})
	}
	if r.Idle != nil {
		all = append(all, scenarioRun{"one at a time", r.Idle})
	}
	if r.Rate != nil {
		all = append(all, scenarioRun{"rate", &r.Rate.Run})
	}
	return all
}

// sameAs is true for what the same system did on the same fleet.
func (r *Result) sameAs(other *Result) bool {
	return r.System == other.System && r.Workers == other.Workers && r.RTT == other.RTT &&
		r.GarbageCollector == other.GarbageCollector && r.Replicas == other.Replicas && r.Agents == other.Agents
}

// find returns the result of a system with one manager on a fleet without garbage collectors and agents, or nil.
func (r *Report) find(system string, workers int, rtt float64) *Result {
	for _, result := range r.Results {
		usual := &Result{System: system, Workers: workers, RTT: rtt}
		if result.sameAs(usual) && result.Error == "" {
			return result
		}
	}
	return nil
}

// Write writes results.json, results.md and the drawings to a folder, which it creates.
func (r *Report) Write(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "results.json"), append(data, '\n'), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "results.md"), []byte(r.Text()), 0o644); err != nil {
		return err
	}
	for _, c := range r.charts() {
		if err := os.WriteFile(filepath.Join(folder, c.file), []byte(c.svg()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Read reads what Write has written.
func Read(folder string) (*Report, error) {
	data, err := os.ReadFile(filepath.Join(folder, "results.json"))
	if err != nil {
		return nil, err
	}
	r := &Report{}
	return r, json.Unmarshal(data, r)
}

// New returns a report without results about this machine.
func New(now time.Time) *Report {
	return &Report{Date: now, Machine: thisMachine(), Versions: versions()}
}

// Add adds a result. It replaces earlier results of the same system on the same fleet. What was not measured this time
// stays.
func (r *Report) Add(result *Result) {
	for i, earlier := range r.Results {
		if !earlier.sameAs(result) {
			continue
		}
		result.keep(earlier)
		r.Results[i] = result
		return
	}
	r.Results = append(r.Results, result)
}

// keep takes over what has not been measured again.
func (r *Result) keep(earlier *Result) {
	if r.Burst == nil {
		r.Burst = earlier.Burst
	}
	if r.Idle == nil {
		r.Idle = earlier.Idle
	}
	if r.Finished == nil {
		r.Finished = earlier.Finished
	}
	if r.Live == nil {
		r.Live = earlier.Live
	}
	if r.Rate == nil {
		r.Rate = earlier.Rate
	}
}

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
