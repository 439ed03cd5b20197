// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package board_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/board"
	"github.com/trainyard/trainyard/test/check"
)

const (
	manyJobs, fewJobs = 50_000, 50
	manyWorkers       = 200
	// clientOf is the variable by which the test starts itself as a browser that only reads a stream.
	clientOf = "TRAINYARD_TEST_BOARD_STREAM"
)

func TestMain(m *testing.M) {
	if address := os.Getenv(clientOf); address != "" {
		res, err := http.Get(address)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		_, _ = io.Copy(os.Stdout, res.Body)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// loaded is a world with workers of 16 nodes and jobs in ten namespaces.
func loaded(t testing.TB, jobs int, change ...func(*board.Options)) *world {
	t.Helper()
	w := newWorld(t, change...)
	for i := range manyWorkers {
		w.put(t, largeWorker(i, 0))
	}
	for i := range jobs {
		worker := v1alpha1.ClusterName(fmt.Sprintf("worker-%d", i%manyWorkers))
		if i%10 == 0 {
			worker = ""
		}
		w.job(t, fmt.Sprintf("team-%d", i%10*min(1, jobs/manyJobs)), fmt.Sprintf("job-%d", i), time.Duration(i)*time.Second, worker)
	}
	return w
}

func largeWorker(i int, used int64) *v1alpha1.WorkerCluster {
	w := workerCluster(fmt.Sprintf("worker-%d", i), metav1.ConditionTrue)
	amounts := func(gpus int64) corev1.ResourceList {
		return corev1.ResourceList{"nvidia.com/gpu": *resource.NewQuantity(gpus, resource.DecimalSI), "cpu": resource.MustParse("96"), "memory": resource.MustParse("1Ti")}
	}
	w.Status.NodeGroups = []v1alpha1.NodeGroup{{
		Product: "NVIDIA-H100-80GB-HBM3", Resource: "nvidia.com/gpu", Unit: "Device", Nodes: 16, Allocatable: amounts(8),
		Free: []v1alpha1.FreeNodes{{GPUs: 8 - used, Nodes: 8, Free: amounts(8 - used)}, {GPUs: 0, Nodes: 8, Free: amounts(0)}},
	}}
	return w
}

// assets are the files that a page loads first.
var assets = []string{"app.js", "dom.js", "live.js", "fleet.js", "jobs.js", "job.js", "logs.js", "timeline.js", "queue.js", "whatif.js", "board.css", "icon.svg"}

// load loads a page with everything that it loads, and with a change before, so that it is computed.
func (w *world) load(t testing.TB, page, data string) {
	t.Helper()
	w.put(t, largeWorker(0, time.Now().UnixNano()%7))
	w.job(t, "team-0", "job-0", 0, "")
	for _, path := range append([]string{page, "api/me", data}, assets...) {
		if strings.Contains(path, ".") {
			path = "assets/" + path
		}
		if code, body := w.get(t, "/"+path); code != http.StatusOK {
			t.Fatalf("%s: %d %s", path, code, body)
		}
	}
}

// loads are the pages that a hub with very many jobs must not make slow, with what they read.
var loads = map[string]string{"jobs": "api/jobs?namespace=team-0", "fleet": "api/fleet"}

// TestManyJobs: the pages of a hub with very many jobs make hardly more than those of one with few. Unlike their time,
// what they allocate does not depend on what else the machine does.
func TestManyJobs(t *testing.T) {
	few, many := loaded(t, fewJobs), loaded(t, manyJobs)
	check.Equal(t, 200, len(many.page(t, "/api/jobs?namespace=team-0").Items), "rows of the first page")
	check.Equal(t, any(float64(manyJobs)), many.page(t, "/api/jobs").Head["total"], "jobs")
	for page, data := range loads {
		made := func(w *world) uint64 {
			w.load(t, page, data) // Warm up.
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for range 5 {
				w.load(t, page, data)
			}
			runtime.ReadMemStats(&after)
			return after.TotalAlloc - before.TotalAlloc
		}
		// The first page of jobs has 50 rows in one case and 200 in the other.
		if small, large := made(few), made(many); large > 2*small {
			t.Errorf("page %s allocates %d bytes with %d jobs and %d with %d", page, large, manyJobs, small, fewJobs)
		}
	}
}

// BenchmarkManyJobs compares the time of a page with very many jobs and with few.
func BenchmarkManyJobs(b *testing.B) {
	few, many := loaded(b, fewJobs), loaded(b, manyJobs)
	for page, data := range loads {
		b.Run(page, func(b *testing.B) {
			// The shortest of several: what else the machine does makes some longer.
			shortest := [2]time.Duration{time.Hour, time.Hour}
			for b.Loop() {
				for i, w := range []*world{few, many} {
					began := time.Now()
					w.load(b, page, data)
					shortest[i] = min(shortest[i], time.Since(began))
				}
			}
			b.ReportMetric(float64(shortest[1])/float64(time.Millisecond), "ms/page")
			b.ReportMetric(float64(shortest[1])/float64(shortest[0]), "times-as-long")
		})
	}
}

// TestSharedPages: a page is computed once for all who have it open, and seldom, however often it changes.
func TestSharedPages(t *testing.T) {
	w := newWorld(t)
	count := w.CountPages()
	var streams []*stream
	for range 10 {
		s := w.stream(t, "/api/stream/fleet")
		s.page(t)
		streams = append(streams, s)
	}
	count.Store(0)
	defer w.run(t)()
	const changes, rounds = 100, 5
	for round := range rounds {
		for i := range changes {
			w.put(t, largeWorker(i, int64((round+i)%8)))
		}
		// The change that each of them has last is the last one that the test has made.
		last := fmt.Sprintf("round-%d", round)
		w.put(t, workerCluster(last, metav1.ConditionTrue))
		var change string
		for at, s := range streams {
			text := ""
			for !strings.Contains(text, last) {
				_, text = s.next(t)
			}
			switch {
			case strings.HasPrefix(text, `{"whole":true`): // One that was slow gets the whole page.
			case change == "":
				change = text
			case text != change:
				t.Errorf("page %d got other bytes than those before", at)
			}
		}
	}
	if n := count.Load(); n < rounds || n > 4*rounds {
		t.Errorf("the page was computed %d times for %d changes and %d open pages", n, rounds*changes, len(streams))
	}
}

// BenchmarkTenBoards compares the CPU that ten open boards take with that of one. TestSharedPages shows why it is the same.
func BenchmarkTenBoards(b *testing.B) {
	w := loaded(b, manyJobs/10, func(o *board.Options) { o.Clock = clock.RealClock{} })
	self, err := os.Executable()
	check.Must(b, err)
	spent := func(boards int) time.Duration {
		ctx, stop := context.WithCancel(b.Context())
		for range boards {
			browser := exec.CommandContext(ctx, self)
			browser.Env = append(os.Environ(), clientOf+"="+w.server.URL+"/api/stream/fleet")
			out, err := browser.StdoutPipe()
			check.Must(b, err)
			check.Must(b, browser.Start())
			defer func() { _ = browser.Wait() }()
			_, err = out.Read(make([]byte, 1)) // It has begun.
			check.Must(b, err)
			go func() { _, _ = io.Copy(io.Discard, out) }()
		}
		defer stop()
		before := cpu(b)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for i := range 100 { // Two seconds of a busy hub.
			<-tick.C
			w.put(b, largeWorker(i%manyWorkers, int64(i%8)))
			for j := range 10 {
				w.job(b, fmt.Sprintf("team-%d", j), fmt.Sprintf("job-%d", 10*i+j), time.Duration(10*i+j)*time.Second, "worker-1")
			}
		}
		return cpu(b) - before
	}
	spent(1) // Warm up.
	var one, ten time.Duration
	for b.Loop() { // In turns, because the machine does other things too.
		one += spent(1)
		ten += spent(10)
	}
	b.ReportMetric(float64(ten)/float64(one), "times-the-CPU")
}

// cpu is what this process has spent, without the processes that it has started.
func cpu(t testing.TB) time.Duration {
	t.Helper()
	var usage unix.Rusage
	check.Must(t, unix.Getrusage(unix.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
