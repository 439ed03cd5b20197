// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/trainyard/trainyard/test/simulation/internal/scenario"
	"github.com/trainyard/trainyard/test/simulation/internal/stream"
	"github.com/trainyard/trainyard/test/simulation/internal/trace"
)

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
