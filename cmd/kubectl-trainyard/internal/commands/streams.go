// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"fmt"
	"io"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/output"
)

// streams are the plugin's input and output, and what several commands print.
type streams struct {
	genericiooptions.IOStreams
	// raw is Out for the logs of containers, which are printed as they are.
	raw io.Writer
}

// newStreams returns streams that show the control characters in words of workers and users, and do not send them.
func newStreams(std genericiooptions.IOStreams) streams {
	shown := genericiooptions.IOStreams{In: std.In, Out: output.Escaped(std.Out), ErrOut: output.Escaped(std.ErrOut)}
	return streams{IOStreams: shown, raw: std.Out}
}

// say prints what was done with a worker, as kubectl does.
func (s streams) say(worker *v1alpha1.WorkerCluster, done string) error {
	_, err := fmt.Fprintf(s.Out, "workercluster/%s %s\n", worker.Name, done)
	return err
}

// remark prints to standard error what is not part of the answer.
func (s streams) remark(format string, args ...any) error {
	_, err := fmt.Fprintf(s.ErrOut, format+"\n", args...)
	return err
}

func (s streams) notes(texts []string) error {
	for _, text := range texts {
		if err := s.remark("note: %s", text); err != nil {
			return err
		}
	}
	return nil
}

func (s streams) printLines(lines []string) error {
	for _, line := range lines {
		if _, err := fmt.Fprintln(s.Out, line); err != nil {
			return err
		}
	}
	return nil
}
