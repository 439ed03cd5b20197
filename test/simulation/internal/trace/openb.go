// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"io"
	"math"
	"strings"

	"github.com/trainyard/trainyard/test/simulation/internal/stream"
)

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
		cpus := t.required("cpu_milli", "an amount of CPU in thousandths such as 12000")
		gpus := t.required("num_gpu", "a whole number of GPUs from 0 to 8")
		if t.valid && gpus != math.Trunc(gpus) {
			t.fault("num_gpu", "a whole number of GPUs from 0 to 8")
		}
		created := t.required("creation_time", "a time in seconds such as 9437497")
		begin, begun := t.number("scheduled_time", wantTime)
		end, ended := t.number("deletion_time", wantTime)
		switch {
		case !t.valid:
			continue
		case !begun || !ended:
			trace.omit("that were never scheduled, or have not ended")
			continue
		case end <= begin:
			trace.omit("that took no time")
			continue
		}
		pods := stream.Pods{Count: 1, GPUs: int(gpus), Millicores: int(cpus)}
		if spec := t.text("gpu_spec"); spec != "" && spec != "nan" && gpus > 0 {
			pods.Products = strings.Split(spec, "|")
		}
		job.Submitted, job.Duration, job.Pods = seconds(created), seconds(end-begin), []stream.Pods{pods}
		trace.Jobs = append(trace.Jobs, job)
	}
	trace.begin()
	return trace, t.faults.err()
}
