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

// load returns how long a page takes with everything that it loads, and with a change before, so that it is computed.
func (w *world) load(t testing.TB, page, data string) time.Duration {
	t.Helper()
	w.put(t, largeWorker(0, time.Now().UnixNano()%7))
	w.job(t, "team-0", "job-0", 0, "")
	began := time.Now()
	for _, path := range append([]string{page, "api/me", data}, assets...) {
		if strings.Contains(path, ".") {
			path = "assets/" + path
		}
		if code, body := w.get(t, "/"+path); code != http.StatusOK {
			t.Fatalf("%s: %d %s", path, code, body)
		}
	}
	return time.Since(began)
}

// TestManyJobs: the pages of a hub with very many jobs take hardly longer than those of one with few.
func TestManyJobs(t *testing.T) {
	few, many := loaded(t, fewJobs), loaded(t, manyJobs)
	check.Equal(t, 200, len(many.page(t, "/api/jobs?namespace=team-0").Items), "rows of the first page")
	check.Equal(t, any(float64(manyJobs)), many.page(t, "/api/jobs").Head["total"], "jobs")
	for page, data := range map[string]string{"jobs": "api/jobs?namespace=team-0", "fleet": "api/fleet"} {
		// The shortest of several: what else the machine does makes some longer.
		shortest := [2]time.Duration{time.Hour, time.Hour}
		for range 15 {
			for i, w := range []*world{few, many} {
				shortest[i] = min(shortest[i], w.load(t, page, data))
			}
		}
		t.Logf("page %s: %s with %d jobs, %s with %d jobs", page, shortest[0], fewJobs, shortest[1], manyJobs)
		if shortest[1] > shortest[0]*3/2 {
			t.Errorf("page %s takes %s with %d jobs and %s with %d", page, shortest[0], fewJobs, shortest[1], manyJobs)
		}
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

// TestTenBoards: ten open boards cost hardly more CPU than one.
func TestTenBoards(t *testing.T) {
	w := loaded(t, manyJobs/10, func(o *board.Options) { o.Clock = clock.RealClock{} })
	self, err := os.Executable()
	check.Must(t, err)
	spent := func(boards int) time.Duration {
		ctx, stop := context.WithCancel(t.Context())
		for range boards {
			browser := exec.CommandContext(ctx, self)
			browser.Env = append(os.Environ(), clientOf+"="+w.server.URL+"/api/stream/fleet")
			out, err := browser.StdoutPipe()
			check.Must(t, err)
			check.Must(t, browser.Start())
			defer func() { _ = browser.Wait() }()
			_, err = out.Read(make([]byte, 1)) // It has begun.
			check.Must(t, err)
			go func() { _, _ = io.Copy(io.Discard, out) }()
		}
		defer stop()
		before := cpu(t)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for i := range 100 { // Two seconds of a busy hub.
			<-tick.C
			w.put(t, largeWorker(i%manyWorkers, int64(i%8)))
			for j := range 10 {
				w.job(t, fmt.Sprintf("team-%d", j), fmt.Sprintf("job-%d", 10*i+j), time.Duration(10*i+j)*time.Second, "worker-1")
			}
		}
		return cpu(t) - before
	}
	spent(1) // Warm up.
	var one, ten time.Duration
	for range 3 { // In turns, because the machine does other things too.
		one += spent(1)
		ten += spent(10)
	}
	t.Logf("one board: %s of CPU, ten: %s", one, ten)
	if ten > one*12/10 {
		t.Errorf("ten boards take %s of CPU, one %s", ten, one)
	}
}

// cpu is what this process has spent, without the processes that it has started.
func cpu(t *testing.T) time.Duration {
	t.Helper()
	var usage unix.Rusage
	check.Must(t, unix.Getrusage(unix.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
