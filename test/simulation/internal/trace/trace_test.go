// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/simulation/internal/stream"
)

// example is the example in the documentation of the Philly traces, with a second server, another job and a job that
// was never started.
const example = `[
{
    "status": "Pass",
    "vc": "ee9e8c",
    "jobid": "application_1506638472019_14199",
    "attempts": [
        {
            "start_time": "2017-10-07 01:12:09",
            "end_time": "2017-10-07 01:13:09",
            "detail": [{"ip": "m47", "gpus": ["gpu0", "gpu1", "gpu2"]}]
        },
        {
            "start_time": "2017-10-07 01:13:30",
            "end_time": "2017-10-07 01:15:30",
            "detail": [{"ip": "m47", "gpus": ["gpu0", "gpu1"]}, {"ip": "m412", "gpus": ["gpu0", "gpu1"]}, {"ip": "m3", "gpus": ["gpu4"]}]
        }
    ],
    "submitted_time": "2017-10-07 01:11:39",
    "user": "ce2f4c"
},
{"status": "Killed", "vc": "ee9e8c", "jobid": "b", "attempts": [], "submitted_time": "2017-10-07 01:11:40", "user": "x"},
{"status": "Killed", "vc": "ee9e8c", "jobid": "c", "submitted_time": "2017-10-07 01:11:41", "user": "x",
 "attempts": [{"start_time": "2017-10-07 01:12:00", "end_time": null, "detail": []}]},
{"status": "Pass", "vc": "ee9e8c", "jobid": "d", "submitted_time": "2017-10-07 01:10:39", "user": "x",
 "attempts": [{"start_time": "2017-10-07 01:12:00", "end_time": "2017-10-07 01:12:05", "detail": [{"ip": "m1", "gpus": ["gpu0"]}]}]}
]`

func TestReadPhilly(t *testing.T) {
	got, err := ReadPhilly("log.json", strings.NewReader(example))
	check.Must(t, err)
	want := &Trace{
		Jobs: []stream.Job{
			{ID: 0, Name: "d", Duration: 5 * time.Second, Pods: []stream.Pods{{Count: 1, GPUs: 1}}},
			{
				ID: 1, Name: "application_1506638472019_14199", Submitted: time.Minute, Duration: 3 * time.Minute,
				Pods: []stream.Pods{{Count: 2, GPUs: 2}, {Count: 1, GPUs: 1}},
			},
		},
		Omitted: map[string]int{"without an attempt": 1, "with an attempt without start or end": 1},
	}
	check.Diff(t, want, got, "")
}

func TestReadPhillyFaults(t *testing.T) {
	for name, tc := range map[string]struct{ old, new, want string }{
		"Time":   {old: `"2017-10-07 01:13:30"`, new: `"yesterday"`, want: `cannot parse "yesterday"`},
		"Type":   {old: `["gpu4"]`, new: `3`, want: `attempts.detail.gpus of type []string`},
		"NoList": {old: "[\n{", new: "{", want: `log.json: at byte 1: want a list of jobs`},
		"Syntax": {old: `"attempts": [],`, new: `"attempts": [,`, want: "invalid character ','"},
		"Cut":    {old: "}]}\n]", new: "}]}\n", want: "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ReadPhilly("log.json", strings.NewReader(strings.Replace(example, tc.old, tc.new, 1)))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error:\n%v\nwant:\n%s", err, tc.want)
			}
		})
	}
}

const tasks = `job_a,ps,1.0,Terminated,1000.0,2000.0,600.0,29.3,,
job_b,tensorflow,2.0,Terminated,1739162.0,1739200.0,600.0,29.296875,50.0,MISC
job_a,worker,4.0,Failed,1010.0,2020.0,400.0,10,200.0,V100
job_c,worker,1.0,Running,5.0,,600.0,1,100.0,T4
`

func TestReadPAI(t *testing.T) {
	want := &Trace{
		Jobs: []stream.Job{
			{ID: 0, Name: "job_a", Duration: 1020 * time.Second, Pods: []stream.Pods{
				{Count: 1, Millicores: 6000}, {Count: 4, GPUs: 2, Millicores: 4000, Products: []string{"V100"}},
			}},
			{ID: 1, Name: "job_b", Submitted: 1738162 * time.Second, Duration: 38 * time.Second, Pods: []stream.Pods{
				{Count: 2, GPUs: 1, Millicores: 6000, Products: []string{"MISC"}},
			}},
		},
		Omitted: map[string]int{"that have not ended": 1},
	}
	header := strings.Join(paiTaskColumns, ",") + "\n"
	for name, in := range map[string]string{"Published": tasks, "WithNames": header + tasks} {
		t.Run(name, func(t *testing.T) {
			got, err := ReadPAI("tasks.csv", strings.NewReader(in), nil)
			check.Must(t, err)
			check.Diff(t, want, got, "")
		})
	}
}

// TestReadPAISubmissions: a job is submitted when the table of jobs says so.
func TestReadPAISubmissions(t *testing.T) {
	submissions, err := ReadPAIJobs("jobs.csv", strings.NewReader("job_b,inst,user,Terminated,900.0,1739200.0\n"))
	check.Must(t, err)
	got, err := ReadPAI("tasks.csv", strings.NewReader(tasks), submissions)
	check.Must(t, err)
	if got.Jobs[0].Name != "job_b" || got.Jobs[1].Submitted != 100*time.Second {
		t.Errorf("job_b was submitted at 900 and job_a began at 1000, but the jobs are %+v", got.Jobs)
	}
}

const pods = `name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
openb-pod-0009,12000,16384,1,1000,V100M16|V100M32,LS,Running,100,400,150
openb-pod-0005,20000,65536,0,0,,LS,Running,90,95,91
openb-pod-0061,11908,47104,1,1000,,BE,Pending,10001278,10001403,
`

func TestReadOpenB(t *testing.T) {
	got, err := ReadOpenB("pods.csv", strings.NewReader(pods))
	check.Must(t, err)
	want := &Trace{
		Jobs: []stream.Job{
			{ID: 0, Name: "openb-pod-0005", Duration: 4 * time.Second, Pods: []stream.Pods{{Count: 1, Millicores: 20000}}},
			{ID: 1, Name: "openb-pod-0009", Submitted: 10 * time.Second, Duration: 250 * time.Second, Pods: []stream.Pods{
				{Count: 1, GPUs: 1, Millicores: 12000, Products: []string{"V100M16", "V100M32"}},
			}},
		},
		Omitted: map[string]int{"that were never scheduled, or have not ended": 1},
	}
	check.Diff(t, want, got, "")
}

func TestTableFaults(t *testing.T) {
	for name, tc := range map[string]struct{ in, old, new, want string }{
		"Number":   {in: tasks, old: ",50.0,", new: ",half,", want: `t.csv:2: plan_gpu is "half": want a number`},
		"Negative": {in: tasks, old: "1739162.0", new: "-5", want: `t.csv:2: start_time is "-5": want a number of at least 0`},
		"Fraction": {in: tasks, old: "4.0", new: "4.5", want: `t.csv:3: inst_num is "4.5": want a whole number of at least 1`},
		"Status":   {in: tasks, old: "Failed", new: "Lost", want: `t.csv:3: status is "Lost": want one of Terminated, Failed`},
		"Columns":  {in: tasks, old: ",MISC", new: "", want: "record on line 2: wrong number of fields"},
		"First":    {in: tasks, old: ",,\n", new: ",\n", want: "want the columns job_name,task_name"},
		"Required": {in: pods, old: "12000", new: "", want: `t.csv:2: cpu_milli is "": want a whole number`},
		"NoColumn": {in: pods, old: "num_gpu", new: "gpus", want: "there is no column num_gpu"},
		"Quote":    {in: pods, old: "openb-pod-0009", new: `"openb`, want: "t.csv: "},
		"Empty":    {in: pods, old: pods, new: "", want: "t.csv: read the first line: EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			in := strings.NewReader(strings.Replace(tc.in, tc.old, tc.new, 1))
			var err error
			if tc.in == tasks {
				_, err = ReadPAI("t.csv", in, nil)
			} else {
				_, err = ReadOpenB("t.csv", in)
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error:\n%v\nwant:\n%s", err, tc.want)
			}
		})
	}
}

func FuzzRead(f *testing.F) {
	f.Add(Philly, example)
	f.Add(PAI, tasks)
	f.Add(OpenB, pods)
	f.Fuzz(func(t *testing.T, format, in string) {
		name := filepath.Join(t.TempDir(), "trace")
		check.Must(t, os.WriteFile(name, []byte(in), 0o600))
		got, err := Read(format, name, "")
		if err != nil {
			return
		}
		for _, j := range got.Jobs {
			if j.Submitted < 0 || j.Duration <= 0 || len(j.Pods) == 0 {
				t.Errorf("job %+v", j)
			}
		}
	})
}
