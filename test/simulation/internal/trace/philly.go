// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/trainyard/trainyard/test/simulation/internal/stream"
)

// phillyTime is the format of times. Their zone is not known, but all times have the same.
const phillyTime = "2006-01-02 15:04:05"

const wantPhillyTime = "a time such as \"2017-10-07 01:12:09\", or null"

// ReadPhilly reads cluster_job_log.
func ReadPhilly(file string, in io.Reader) (*Trace, error) {
	d := newDocument(file, in)
	trace := &Trace{}
	first := time.Time{}
	var faults faults
	err := d.array(func(v *value) {
		job, submitted, unclear, err := phillyJob(v)
		switch {
		case err != nil:
			faults.add(err)
		case unclear != "":
			trace.omit(unclear)
		default:
			if first.IsZero() {
				first = submitted
			}
			job.Submitted = submitted.Sub(first)
			trace.Jobs = append(trace.Jobs, job)
		}
	})
	if err != nil {
		faults.add(err)
	}
	trace.begin()
	return trace, faults.err()
}

// phillyJob reads one element of the array. If the job's pods or times are unclear, it says why.
func phillyJob(v *value) (job stream.Job, submitted time.Time, unclear string, err error) {
	defer recoverFault(&err)
	v.want(isObject, "an object with jobid, submitted_time and attempts")
	job.Name = v.field("jobid").text("the name of the job")
	v.field("vc").text("the name of a virtual cluster")
	submitted, known := v.field("submitted_time").time()
	if !known {
		unclear = "without a time of submission"
	}
	attempts := v.field("attempts").elements("a list of attempts")
	if len(attempts) == 0 {
		unclear = "without an attempt"
	}
	for _, attempt := range attempts {
		begin, begun := attempt.field("start_time").time()
		end, ended := attempt.field("end_time").time()
		pods := phillyPods(attempt.field("detail"))
		if begun && ended {
			job.Duration += max(end.Sub(begin), 0)
		} else {
			unclear = "with an attempt without start or end"
		}
		if most := (stream.Job{Pods: pods}); most.GPUs() >= job.GPUs() && len(pods) > 0 {
			job.Pods = pods
		}
	}
	if unclear == "" && job.GPUs() == 0 {
		unclear = "without GPUs"
	}
	if unclear == "" && job.Duration == 0 {
		unclear = "that took no time"
	}
	return job, submitted, unclear, nil
}

// phillyPods are the servers of an attempt, grouped by their number of GPUs.
func phillyPods(detail *value) []stream.Pods {
	var pods []stream.Pods
	for _, server := range detail.elements("a list of servers") {
		server.field("ip").text("the name of a server")
		gpus := len(server.field("gpus").elements("a list of GPUs"))
		if at := slices.IndexFunc(pods, func(p stream.Pods) bool { return p.GPUs == gpus }); at >= 0 {
			pods[at].Count++
		} else if gpus > 0 {
			pods = append(pods, stream.Pods{Count: 1, GPUs: gpus})
		}
	}
	slices.SortFunc(pods, func(a, b stream.Pods) int { return b.GPUs - a.GPUs })
	return pods
}

// time is a field in that format. Times that were not recorded are null, "None" or empty.
func (v *value) time() (at time.Time, known bool) {
	if v.kind == isNull {
		return at, false
	}
	text := v.text(wantPhillyTime)
	if text == "" || text == "None" {
		return at, false
	}
	at, err := time.Parse(phillyTime, text)
	if err != nil {
		v.fault(wantPhillyTime)
	}
	return at, true
}

func index(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }
