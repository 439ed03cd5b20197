// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/trainyard/trainyard/test/simulation/internal/stream"
)

// phillyBegin is the date of the first job of a sample.
var phillyBegin = time.Date(2017, time.October, 1, 0, 0, 0, 0, time.UTC)

// WritePhilly writes jobs as cluster_job_log. They run on servers of their own, as soon as they are submitted.
func WritePhilly(out io.Writer, jobs []stream.Job) error {
	type job struct {
		Status string `json:"status"`
		VC     string `json:"vc"`
		phillyJob
		User string `json:"user"`
	}
	list := make([]job, len(jobs))
	for i := range jobs {
		j := &jobs[i]
		at := phillyBegin.Add(j.Submitted)
		a := phillyAttempt{Start: recorded{at}, End: recorded{at.Add(j.Duration)}}
		for _, p := range j.Pods {
			for range p.Count {
				s := phillyServer{IP: fmt.Sprint("m", len(a.Detail)+1)}
				for g := range p.GPUs {
					s.GPUs = append(s.GPUs, fmt.Sprint("gpu", g))
				}
				a.Detail = append(a.Detail, s)
			}
		}
		list[i] = job{
			Status: "Pass", VC: fmt.Sprintf("vc%d", i%3), User: fmt.Sprintf("user%d", i%7),
			phillyJob: phillyJob{Name: fmt.Sprintf("application_%d", i), Attempts: []phillyAttempt{a}, Submitted: recorded{at}},
		}
	}
	e := json.NewEncoder(out)
	e.SetIndent("", " ")
	return e.Encode(list)
}

// WritePAI writes jobs as pai_task_table.csv, with the line of names, and pai_job_table.csv. Tasks begin a minute after
// submission.
func WritePAI(tasks, table io.Writer, jobs []stream.Job) error {
	lines, names := [][]string{paiTaskColumns}, [][]string{paiJobColumns}
	for i := range jobs {
		j, name := &jobs[i], fmt.Sprintf("job%06d", i)
		begin := j.Submitted + time.Minute
		names = append(names, []string{name, "inst-" + name, "user", "Terminated", decimal(j.Submitted), decimal(begin + j.Duration)})
		for k, p := range j.Pods {
			product := ""
			if len(p.Products) > 0 {
				product = p.Products[0]
			}
			lines = append(lines, []string{
				name, fmt.Sprint("worker", k), strconv.FormatFloat(float64(p.Count), 'f', 1, 64), "Terminated", decimal(begin),
				decimal(begin + j.Duration), strconv.FormatFloat(float64(p.Millicores)/10, 'f', 1, 64), "29.296875",
				strconv.FormatFloat(float64(100*p.GPUs), 'f', 1, 64), product,
			})
		}
	}
	if err := csv.NewWriter(tasks).WriteAll(lines); err != nil {
		return err
	}
	return csv.NewWriter(table).WriteAll(names)
}

func decimal(d time.Duration) string {
	return strconv.FormatFloat(d.Truncate(time.Second).Seconds(), 'f', 1, 64)
}

// WriteOpenB writes the jobs of one pod as openb_pod_list.csv.
func WriteOpenB(out io.Writer, jobs []stream.Job) error {
	lines := [][]string{openBColumns}
	for i := range jobs {
		j := &jobs[i]
		if len(j.Pods) != 1 || j.Pods[0].Count != 1 {
			continue
		}
		p, at := &j.Pods[0], int64(j.Submitted/time.Second)
		product := ""
		if len(p.Products) > 0 {
			product = p.Products[0]
		}
		whole := func(n int64) string { return strconv.FormatInt(n, 10) }
		lines = append(lines, []string{
			fmt.Sprintf("openb-pod-%04d", i), whole(int64(p.Millicores)), "16384", whole(int64(p.GPUs)), "1000", product, "LS", "Succeeded",
			whole(at), whole(at + int64(j.Duration/time.Second)), whole(at),
		})
	}
	return csv.NewWriter(out).WriteAll(lines)
}
