// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/simulation/internal/peers"
	"github.com/trainyard/trainyard/test/simulation/internal/scenario"
	"github.com/trainyard/trainyard/test/simulation/internal/stream"
	"github.com/trainyard/trainyard/test/simulation/internal/trace"
	"github.com/trainyard/trainyard/test/simulation/internal/world"
	"github.com/trainyard/trainyard/test/simulation/internal/yard"
)

// system is a row of the comparison.
type system struct {
	// name on the command line, and title in tables.
	name, title string
	make        func(w *world.World, seed uint64, o *options) world.System
}

// forever is a reserveAfter that does not come.
const forever = 100 * 365 * 24 * time.Hour

// systems are all rows, in the order of the tables.
var systems = []system{
	ours("most-allocated", "Trainyard MostAllocated", func(p *v1alpha1.DispatchPolicySpec) {
		p.Scoring = scoring(v1alpha1.ScoreMostAllocated)
	}),
	ours("least-allocated", "Trainyard LeastAllocated", func(p *v1alpha1.DispatchPolicySpec) {
		p.Scoring = scoring(v1alpha1.ScoreLeastAllocated)
	}),
	ours("no-reservation", "Trainyard no reservation", func(p *v1alpha1.DispatchPolicySpec) {
		p.Scoring, p.ReserveAfter = scoring(v1alpha1.ScoreMostAllocated), &metav1.Duration{Duration: forever}
	}),
	ours("strict", "Trainyard StrictFIFO", func(p *v1alpha1.DispatchPolicySpec) {
		p.Scoring, p.Queueing = scoring(v1alpha1.ScoreMostAllocated), v1alpha1.StrictFIFO
	}),
	ours("preemption", "Trainyard preemption", func(p *v1alpha1.DispatchPolicySpec) {
		p.Scoring, p.Preemption = scoring(v1alpha1.ScoreMostAllocated), v1alpha1.PreemptLowerPriority
	}),
	{name: "random", title: "random feasible", make: func(w *world.World, seed uint64, _ *options) world.System {
		return peers.NewRandom(w, seed)
	}},
	kueue("multikueue", "MultiKueue all at once", 0),
	kueue("multikueue-incremental", "MultiKueue incremental", peers.IncrementalStep),
}

func scoring(name v1alpha1.ScoreName) []v1alpha1.Score {
	return []v1alpha1.Score{{Name: name, Weight: 1}}
}

func ours(name, title string, change func(*v1alpha1.DispatchPolicySpec)) system {
	return system{name: name, title: title, make: func(w *world.World, _ uint64, o *options) world.System {
		policy := v1alpha1.DispatchPolicySpec{ReserveAfter: &metav1.Duration{Duration: o.reserveAfter}}
		change(&policy)
		return yard.New(w, policy, time.Now)
	}}
}

func kueue(name, title string, step int) system {
	return system{name: name, title: title, make: func(w *world.World, seed uint64, o *options) world.System {
		return peers.MultiKueue{Step: step, Rate: o.kueueRate}.New(w, seed)
	}}
}

func systemNames() []string {
	var names []string
	for _, s := range systems {
		names = append(names, s.name)
	}
	return names
}

// selectSystems returns the requested systems, in the order of the tables.
func selectSystems(names []string) ([]system, error) {
	for _, name := range names {
		if name != "all" && !slices.Contains(systemNames(), name) {
			return nil, fmt.Errorf("--systems has %q, but there are all, %s", name, strings.Join(systemNames(), ", "))
		}
	}
	var selected []system
	for _, s := range systems {
		if slices.Contains(names, "all") || slices.Contains(names, s.name) {
			selected = append(selected, s)
		}
	}
	if len(selected) == 0 {
		return nil, fmt.Errorf("--systems is empty")
	}
	return selected, nil
}

// newSampleCommand returns the command that writes testdata.
func newSampleCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "sample FOLDER",
		Short: "Write a small invented trace in each of the formats",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return writeSamples(args[0])
		},
	}
}

// sampleEnd is how much time a sample is of.
const sampleEnd = 2 * time.Hour

func writeSamples(folder string) error {
	s, err := scenario.Load("mixed")
	if err != nil {
		return err
	}
	jobs, err := s.Jobs.Generate(1, s.Pools(), 0.1, sampleEnd)
	if err != nil {
		return err
	}
	for i := range jobs { // The formats have seconds.
		jobs[i].Submitted, jobs[i].Duration = jobs[i].Submitted.Truncate(time.Second), jobs[i].Duration.Truncate(time.Second)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	return writeFormats(folder, jobs)
}

func writeFormats(folder string, jobs []stream.Job) error {
	if err := write(folder, "philly_cluster_job_log.json", func(out io.Writer) error { return trace.WritePhilly(out, jobs) }); err != nil {
		return err
	}
	if err := write(folder, "openb_pod_list.csv", func(out io.Writer) error { return trace.WriteOpenB(out, jobs) }); err != nil {
		return err
	}
	return write(folder, "pai_task_table.csv", func(tasks io.Writer) error {
		return write(folder, "pai_job_table.csv", func(table io.Writer) error { return trace.WritePAI(tasks, table, jobs) })
	})
}

func write(folder, name string, content func(io.Writer) error) error {
	file, err := os.Create(filepath.Join(folder, name))
	if err != nil {
		return err
	}
	if err := content(file); err != nil {
		_ = file.Close()
		return err
	}
	return file.Close()
}
