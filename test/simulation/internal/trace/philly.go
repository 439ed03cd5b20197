// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/trainyard/trainyard/test/simulation/internal/stream"
)

// phillyTime is the format of times. Their zone is not known, but all times have the same.
const phillyTime = "2006-01-02 15:04:05"

// recorded is a time in that format. Times that were not recorded are null, "None" or empty.
type recorded struct{ time.Time }

// UnmarshalJSON implements json.Unmarshaler.
func (r *recorded) UnmarshalJSON(data []byte) error {
	var text string
	err := json.Unmarshal(data, &text)
	if err == nil && text != "" && text != "None" {
		r.Time, err = time.Parse(phillyTime, text)
	}
	return err
}

type phillyServers []struct {
	GPUs []string `json:"gpus"`
}

type phillyAttempt struct {
	Start  recorded      `json:"start_time"`
	End    recorded      `json:"end_time"`
	Detail phillyServers `json:"detail"`
}

// phillyJob is an element of the list.
type phillyJob struct {
	Name      string          `json:"jobid"`
	Attempts  []phillyAttempt `json:"attempts"`
	Submitted recorded        `json:"submitted_time"`
}

// ReadPhilly reads cluster_job_log.
func ReadPhilly(file string, in io.Reader) (*Trace, error) {
	d := json.NewDecoder(in)
	trace, first := &Trace{}, recorded{}
	token, err := d.Token()
	if err == nil && token != json.Delim('[') {
		err = errors.New("want a list of jobs")
	}
	for err == nil && d.More() {
		var found phillyJob
		if err = d.Decode(&found); err != nil {
			break
		}
		job, unclear := found.job()
		if unclear != "" {
			trace.omit(unclear)
			continue
		}
		if first.IsZero() {
			first = found.Submitted
		}
		job.Submitted = found.Submitted.Sub(first.Time)
		trace.Jobs = append(trace.Jobs, job)
	}
	if err == nil {
		_, err = d.Token()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: at byte %d: %w", file, d.InputOffset(), err)
	}
	trace.begin()
	return trace, nil
}

// job returns what the simulator needs of a job. If its pods or times are unclear, it says why.
func (p *phillyJob) job() (job stream.Job, unclear string) {
	job.Name = p.Name
	for _, attempt := range p.Attempts {
		if attempt.Start.IsZero() || attempt.End.IsZero() {
			return job, "with an attempt without start or end"
		}
		job.Duration += max(attempt.End.Sub(attempt.Start.Time), 0)
		pods := phillyPods(attempt.Detail)
		if most := (stream.Job{Pods: pods}); most.GPUs() >= job.GPUs() && len(pods) > 0 {
			job.Pods = pods
		}
	}
	switch {
	case p.Submitted.IsZero():
		unclear = "without a time of submission"
	case len(p.Attempts) == 0:
		unclear = "without an attempt"
	case job.GPUs() == 0:
		unclear = "without GPUs"
	case job.Duration == 0:
		unclear = "that took no time"
	}
	return job, unclear
}

// phillyPods are the servers of an attempt, grouped by their number of GPUs.
func phillyPods(servers phillyServers) []stream.Pods {
	var pods []stream.Pods
	for _, server := range servers {
		gpus := len(server.GPUs)
		if at := slices.IndexFunc(pods, func(p stream.Pods) bool { return p.GPUs == gpus }); at >= 0 {
			pods[at].Count++
		} else if gpus > 0 {
			pods = append(pods, stream.Pods{Count: 1, GPUs: gpus})
		}
	}
	slices.SortFunc(pods, func(a, b stream.Pods) int { return b.GPUs - a.GPUs })
	return pods
}
