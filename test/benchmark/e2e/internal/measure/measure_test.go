// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"bufio"
	"os"
	"strings"
	"testing"

	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/api"
	"github.com/trainyard/trainyard/test/check"
)

func TestParse(t *testing.T) {
	metrics := `# HELP apiserver_request_total Counter of apiserver requests
apiserver_request_total{code="201",component="apiserver",dry_run="",group="a",resource="trainjobs",scope="resource",subresource="",verb="POST",version="v1"} 300
apiserver_request_total{code="409",component="apiserver",dry_run="",group="a",resource="trainjobs",scope="resource",subresource="",verb="POST",version="v1"} 2
apiserver_request_total{code="201",component="apiserver",dry_run="All",group="a",resource="workloads",scope="resource",subresource="",verb="POST",version="v1"} 1.5e+03
apiserver_request_total{code="200",component="apiserver",dry_run="",group="a",resource="trainjobs",scope="resource",subresource="status",verb="PATCH",version="v1"} 7
apiserver_request_total{code="200",component="apiserver",dry_run="",group="a",resource="trainjobs",scope="cluster",subresource="",verb="WATCH",version="v1"} 5
apiserver_request_total{code="200",component="",dry_run="",group="",resource="",scope="",subresource="/readyz",verb="GET",version=""} 9
apiserver_request_slo_duration_seconds_count{resource="trainjobs",verb="POST"} 1
`
	got, err := parse([]byte(metrics))
	check.Must(t, err)
	want := api.Counts{
		{Verb: "POST", Resource: "trainjobs"}:                         302,
		{Verb: "POST", Resource: "workloads", DryRun: true}:           1500,
		{Verb: "PATCH", Resource: "trainjobs", Subresource: "status"}: 7,
	}
	check.Diff(t, want, got, "requests")
}

func TestSum(t *testing.T) {
	got := Sum(api.Counts{
		{Verb: "POST", Resource: "workloads", DryRun: true}: 1,
		{Verb: "PUT", Resource: "leases"}:                   10,
		{Verb: "PATCH", Resource: "executionleases"}:        100,
		{Verb: "PUT", Resource: "capacityreports"}:          200,
		{Verb: "GET", Resource: "namespaces"}:               20,
		{Verb: "POST", Resource: "namespaces"}:              2,
		{Verb: "GET", Resource: "trainjobs"}:                4,
		{Verb: "LIST", Resource: "trainjobs"}:               5,
		{Verb: "LIST", Resource: "services"}:                3,
	})
	check.Diff(t, Sums{Reads: 9, Writes: 3, Background: 333}, got, "sums")
}

func TestUsageOfThisProcess(t *testing.T) {
	usage, err := UsageOf(os.Getpid())
	if err != nil {
		t.Skipf("there is no /proc here: %v", err)
	}
	if usage.RSS <= 0 || usage.Peak < usage.RSS || usage.CPU < 0 {
		t.Errorf("got %+v", usage)
	}
}

// TestCPUMinus: a role that is new has used nothing before. A role that has used less than before has lost a process.
func TestCPUMinus(t *testing.T) {
	got, err := CPU{"hub: etcd": 3, "benchmark": 5}.Minus(CPU{"hub: etcd": 1})
	check.Must(t, err)
	check.Diff(t, CPU{"hub: etcd": 500, "benchmark": 1250}, got.PerJob(4), "milliseconds per job")
	for name, later := range map[string]CPU{"one of two": {"workers: etcd": 1}, "the only one": {}} {
		if _, err := later.Minus(CPU{"workers: etcd": 2}); err == nil {
			t.Errorf("%s has ended, and there is no error", name)
		}
	}
}

func TestHeapAlloc(t *testing.T) {
	got, err := heapAlloc(bufio.NewScanner(strings.NewReader("heap profile: 1: 2\n# Alloc = 5\n# HeapAlloc = 7340032\n# HeapSys = 9\n")))
	if err != nil || got != 7340032 {
		t.Errorf("got %d, %v", got, err)
	}
	if _, err := heapAlloc(bufio.NewScanner(strings.NewReader("no profile"))); err == nil {
		t.Error("what is no profile has a heap")
	}
}

func TestExposition(t *testing.T) {
	e, err := ParseExposition([]byte(`# HELP jobs Jobs by {cluster}.
# TYPE jobs gauge
jobs{cluster="a",why="no } room"} 2
jobs{cluster="b"} 3.5 1700000000000

size_bytes 1.5e+06
`))
	check.Must(t, err)
	check.Equal(t, 3, e.Series, "series: comments and empty lines are none")
	for name, want := range map[string]float64{"jobs": 5.5, "size_bytes": 1.5e6} {
		if got, err := e.Sum(name); err != nil || got != want {
			t.Errorf("Sum(%q) = %v, %v, want %v", name, got, err, want)
		}
	}
	if _, err := e.Sum("job"); err == nil {
		t.Error("a metric that does not exist has a sum")
	}
	if _, err := ParseExposition([]byte("jobs{cluster=\"a\"} many\n")); err == nil {
		t.Error("a value that is no number is read")
	}
}
