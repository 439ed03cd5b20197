// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"io"
	"math"
	"slices"
	"strings"
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
	if t.err != nil {
		return nil, t.err
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
	count := t.whole("inst_num", 1)
	status := t.text("status")
	if !slices.Contains(paiStates, status) {
		t.fault("status", "one of "+strings.Join(paiStates, ", "))
	}
	begin, begun := t.number("start_time")
	end, ended := t.number("end_time")
	cpus, _ := t.number("plan_cpu")
	gpus, _ := t.number("plan_gpu")
	if !begun || !ended || status == "Running" || status == "Waiting" {
		j.unclear = "that have not ended"
		return
	}
	j.begin, j.end = min(j.begin, seconds(begin)), max(j.end, seconds(end))
	pods := stream.Pods{Count: count, GPUs: int(math.Ceil(gpus / 100)), Millicores: int(cpus * 10)}
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
		if at, known := t.number("start_time"); known {
			submissions[t.text("job_name")] = seconds(at)
		}
	}
	return submissions, t.err
}

var openBColumns = []string{
	"name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos", "pod_phase",
	"creation_time", "deletion_time", "scheduled_time",
}

// ReadOpenB reads openb_pod_list_*.csv.
func ReadOpenB(file string, in io.Reader) (*Trace, error) {
	t, err := newTable(file, in, openBColumns)
	if err != nil {
		return nil, err
	}
	trace := &Trace{}
	for t.next() {
		job := stream.Job{Name: t.text("name")}
		pods := stream.Pods{Count: 1, GPUs: t.whole("num_gpu", 0), Millicores: t.whole("cpu_milli", 0)}
		created := t.whole("creation_time", 0)
		begin, begun := t.number("scheduled_time")
		end, ended := t.number("deletion_time")
		switch {
		case !begun || !ended:
			trace.omit("that were never scheduled, or have not ended")
			continue
		case end <= begin:
			trace.omit("that took no time")
			continue
		}
		if spec := t.text("gpu_spec"); spec != "" && spec != "nan" && pods.GPUs > 0 {
			pods.Products = strings.Split(spec, "|")
		}
		job.Submitted, job.Duration, job.Pods = seconds(float64(created)), seconds(end-begin), []stream.Pods{pods}
		trace.Jobs = append(trace.Jobs, job)
	}
	trace.begin()
	return trace, t.err
}
