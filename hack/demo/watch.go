// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/hashicorp/go-multierror"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/yard"
)

const refresh = 250 * time.Millisecond

// row is what the table says of one job.
type row struct {
	job    job
	where  string
	state  string
	why    string
	waited bool
	age    time.Duration
}

const (
	waiting  = "Waiting"
	starting = "Starting"
	running  = "Running"
)

func (r row) ended() bool {
	return r.state == trainer.TrainJobComplete || r.state == trainer.TrainJobFailed
}

// watch shows the jobs until all have ended, and returns what did not go as it should. It asks again when the hub does
// not answer.
func watch(ctx context.Context, hub client.Client, out *os.File) error {
	screen := newScreen(out)
	rows := make([]row, len(jobs()))
	for i, j := range jobs() {
		rows[i] = row{job: j}
	}
	ticker := time.NewTicker(refresh)
	defer ticker.Stop()
	for {
		all, last := true, error(nil)
		for i := range rows {
			err := rows[i].update(ctx, hub)
			if refused(err) {
				return err
			}
			last = errors.Join(last, err)
			all = all && rows[i].ended()
		}
		screen.show(rows)
		if all {
			return judge(rows)
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("waiting for the jobs to end: %w", context.Cause(ctx)), last)
		case <-ticker.C:
		}
	}
}

// update reads job and Dispatch from the hub.
func (r *row) update(ctx context.Context, hub client.Client) error {
	if r.ended() {
		return nil
	}
	key := client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: r.job.Name}
	var tj trainer.TrainJob
	if err := hub.Get(ctx, key, &tj); err != nil {
		return fmt.Errorf("get TrainJob %q: %w", r.job.Name, err)
	}
	var dispatch v1alpha1.Dispatch
	if err := hub.Get(ctx, key, &dispatch); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("get Dispatch %q: %w", r.job.Name, err)
	}
	r.age = time.Since(tj.CreationTimestamp.Time)
	r.where = string(dispatch.Spec.Cluster)
	if r.job.ManagedBy == v1alpha1.ManagedByBuiltIn {
		r.where = yard.HubName
		if dispatch.Name != "" {
			r.where = "dispatched" // Which judge objects to.
		}
	}
	r.state, r.why = stateOf(&tj, &dispatch)
	r.waited = r.waited || r.state == waiting
	return nil
}

// stateOf sums up a job for a reader.
func stateOf(tj *trainer.TrainJob, dispatch *v1alpha1.Dispatch) (state, why string) {
	for _, kind := range []string{trainer.TrainJobComplete, trainer.TrainJobFailed} {
		if condition := meta.FindStatusCondition(tj.Status.Conditions, kind); condition != nil && condition.Status == metav1.ConditionTrue {
			return kind, condition.Reason + ": " + condition.Message
		}
	}
	for _, status := range tj.Status.JobsStatus {
		if status.Active != nil && *status.Active > 0 {
			return running, ""
		}
	}
	placed := meta.FindStatusCondition(dispatch.Status.Conditions, v1alpha1.DispatchPlaced)
	if dispatch.Spec.Cluster == "" && placed != nil && placed.Status == metav1.ConditionFalse {
		return waiting, placed.Message
	}
	return starting, ""
}

// judge returns what did not go as it should.
func judge(rows []row) error {
	var faults *multierror.Error
	fault := func(r row, format string, args ...any) {
		faults = multierror.Append(faults, fmt.Errorf("%s: %s", r.job.Name, fmt.Sprintf(format, args...)))
	}
	for _, r := range rows {
		if r.state != r.job.ends {
			fault(r, "is %s (%s), and should be %s", r.state, r.why, r.job.ends)
		}
		if r.job.where != "" && r.where != r.job.where {
			fault(r, "ran on %q, and should have run on %q", r.where, r.job.where)
		}
		if r.where == "" {
			fault(r, "ended without having been placed")
		}
		if r.job.waits && !r.waited {
			fault(r, "did not wait, and should have")
		}
	}
	return faults.ErrorOrNil()
}

// screen shows the table: on a terminal always in the same place, elsewhere a line for each change.
type screen struct {
	out      io.Writer
	terminal bool
	lines    int
	last     map[string]string
	began    time.Time
}

func newScreen(out *os.File) *screen {
	info, err := out.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0
	return &screen{out: out, terminal: terminal, last: map[string]string{}, began: time.Now()}
}

func (s *screen) show(rows []row) {
	if s.terminal {
		s.redraw(rows)
		return
	}
	if len(s.last) == 0 {
		fmt.Fprintf(s.out, "  TIME  %-16s %-6s %-9s %s\n", "JOB", "WHERE", "STATE", "WHY")
	}
	for _, r := range rows {
		line := fmt.Sprintf("%-16s %-6s %-9s %s", r.job.Name, r.where, r.state, r.why)
		if s.last[r.job.Name] != line {
			s.last[r.job.Name] = line
			fmt.Fprintf(s.out, "%5.1fs  %s\n", time.Since(s.began).Seconds(), line)
		}
	}
}

func (s *screen) redraw(rows []row) {
	var text bytes.Buffer
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "JOB\tWHERE\tSTATE\tAGE\tWHY")
	for _, r := range rows {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", r.job.Name, r.where, r.state, duration.ShortHumanDuration(r.age), r.why)
	}
	_ = table.Flush()
	if s.lines > 0 {
		fmt.Fprintf(s.out, "\x1b[%dA\x1b[J", s.lines)
	}
	s.lines = bytes.Count(text.Bytes(), []byte("\n"))
	_, _ = text.WriteTo(s.out)
}
