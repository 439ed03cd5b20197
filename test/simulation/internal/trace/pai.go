// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"io"
	"math"
	"slices"
	"time"

	"github.com/trainyard/trainyard/test/simulation/internal/stream"
)

var (
	paiTaskColumns = []string{
		"job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu", "plan_mem", "plan_gpu", "gpu_type",
	}
	paiJobColumns = []string{"job_name", "inst_id", "user", "status", "start_time", "end_time"}
	paiStates     = []string{"Terminated", "Failed", "Running", "Waiting"}
)

// paiJob is a job while its tasks are being read.
type paiJob struct {
	pods       []stream.Pods
	begin, end time.Duration
	// unclear is why the job cannot be used, empty if it can.
	unclear string
}

// ReadPAI reads pai_task_table.csv. A job that is not in the map counts as submitted when its first task began.
func ReadPAI(file string, in io.Reader, submissions map[string]time.Duration) (*Trace, error) {
	t, err := newTable(file, in, paiTaskColumns)
	if err != nil {
		return nil, err
	}
	jobs, names := map[string]*paiJob{}, []string{}
	for t.next() {
		name := t.text("job_name")
		job := jobs[name]
		if job == nil {
			job = &paiJob{begin: math.MaxInt64}
			jobs[name] = job
			names = append(names, name)
		}
		job.addTask(t)
	}
	if err := t.faults.err(); err != nil {
		return nil, err
	}
	trace := &Trace{}
	for _, name := range names {
		job := jobs[name]
		if job.unclear == "" && job.end <= job.begin {
			job.unclear = "that took no time"
		}
		if job.unclear != "" {
			trace.omit(job.unclear)
			continue
		}
		submitted, known := submissions[name]
		if !known {
			submitted = job.begin
		}
		trace.Jobs = append(trace.Jobs, stream.Job{Name: name, Submitted: submitted, Duration: job.end - job.begin, Pods: job.pods})
	}
	trace.begin()
	return trace, nil
}

// addTask adds the task of a line.
func (j *paiJob) addTask(t *table) {
	count := t.required("inst_num", wantCount)
	if t.valid && (count < 1 || count != math.Trunc(count)) {
		t.fault("inst_num", wantCount)
	}
	status := t.text("status")
	if !slices.Contains(paiStates, status) {
		t.fault("status", "one of Terminated, Failed, Running, Waiting")
	}
	begin, begun := t.number("start_time", wantTime)
	end, ended := t.number("end_time", wantTime)
	cpus, _ := t.number("plan_cpu", "a percentage of CPU cores such as 600.0, or empty")
	gpus, _ := t.number("plan_gpu", "a percentage of GPUs such as 50.0, or empty")
	if !begun || !ended || status == "Running" || status == "Waiting" {
		j.unclear = "that have not ended"
		return
	}
	j.begin, j.end = min(j.begin, seconds(begin)), max(j.end, seconds(end))
	pods := stream.Pods{Count: int(count), GPUs: int(math.Ceil(gpus / 100)), Millicores: int(cpus * 10)}
	if product := t.text("gpu_type"); product != "" && pods.GPUs > 0 {
		pods.Products = []string{product}
	}
	j.pods = append(j.pods, pods)
}

// ReadPAIJobs reads pai_job_table.csv, and returns when each job was submitted.
func ReadPAIJobs(file string, in io.Reader) (map[string]time.Duration, error) {
	t, err := newTable(file, in, paiJobColumns)
	if err != nil {
		return nil, err
	}
	submissions := map[string]time.Duration{}
	for t.next() {
		if at, known := t.number("start_time", wantTime); known {
			submissions[t.text("job_name")] = seconds(at)
		}
	}
	return submissions, t.faults.err()
}
