// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trainyard/trainyard/test/check"
)

func TestValidate(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"System":   {args: []string{"--systems", "best"}, want: `--systems has "best", but there are all,`},
		"None":     {args: []string{"--systems", ""}, want: "--systems is empty"},
		"Negative": {args: []string{"--load", "-1"}, want: "--load is negative"},
		"Seeds":    {args: []string{"--seeds", "0"}, want: "--seeds and --parallel are at least 1"},
		"Format":   {args: []string{"--trace", "x"}, want: `--trace-format is "", but one of philly, pai, openb is needed`},
		"NoTrace":  {args: []string{"--trace-format", "pai"}, want: "are for a --trace"},
		"JobTable": {args: []string{"--trace", "x", "--trace-format", "openb", "--trace-job-table", "y"}, want: "is for --trace-format pai"},
		"Output":   {args: []string{"-o", "x.txt"}, want: "its name ends in .json or .csv"},
		"Scenario": {args: []string{"--scenario", "none"}, want: `no scenario "none" is built in`},
		"Missing":  {args: []string{"--trace", "/none", "--trace-format", "philly"}, want: "/none"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := execute(t, tc.args...); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want %s", err, tc.want)
			}
		})
	}
}

func execute(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	command := newCommand()
	command.SetArgs(args)
	command.SetOut(&out)
	command.SetErr(&bytes.Buffer{})
	err := command.ExecuteContext(t.Context())
	return out.String(), err
}

// TestSamples: every format in testdata can be simulated.
func TestSamples(t *testing.T) {
	for format, args := range map[string][]string{
		"philly": {"--trace", "testdata/philly_cluster_job_log.json"},
		"pai":    {"--trace", "testdata/pai_task_table.csv", "--trace-job-table", "testdata/pai_job_table.csv"},
		"openb":  {"--trace", "testdata/openb_pod_list.csv", "--load", "0.5"},
	} {
		t.Run(format, func(t *testing.T) {
			out, err := execute(t, append(args, "--trace-format", format, "--seeds", "1", "--systems", "most-allocated,random")...)
			check.Must(t, err)
			if !strings.Contains(out, "recorded jobs") || !strings.Contains(out, "random feasible") {
				t.Errorf("printed:\n%s", out)
			}
		})
	}
}

// TestRun writes everything that can be written.
func TestRun(t *testing.T) {
	folder := t.TempDir()
	for _, output := range []string{"runs.json", "runs.csv"} {
		out, err := execute(t, "--systems", "random,multikueue", "--seeds", "2", "--warmup", "1h", "--window", "2h", "--cooldown", "1h", "--details",
			"-o", filepath.Join(folder, output), "--plots", filepath.Join(folder, "plots"))
		check.Must(t, err)
		if !strings.Contains(out, "measured from 1h0m0s to 3h0m0s; 2 seeds") {
			t.Errorf("printed:\n%s", out)
		}
	}
	for _, name := range []string{"runs.json", "runs.csv", "plots/wait-cdf.svg"} {
		if info, err := os.Stat(filepath.Join(folder, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestInterrupt: it ends without a table.
func TestInterrupt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	command := newCommand()
	command.SetArgs([]string{"--systems", "random", "--parallel", "1", "--seeds", "100", "--window", "1h", "--warmup", "1m", "--cooldown", "1m"})
	command.SetOut(&bytes.Buffer{})
	command.SetErr(&bytes.Buffer{})
	if err := command.ExecuteContext(ctx); err == nil {
		t.Error("there was no error")
	}
}
