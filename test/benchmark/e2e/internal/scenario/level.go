// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/api"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/fleet"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/load"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/measure"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/trainyard"
)

// Figures of a Level. Memory and sizes are in bytes.
const (
	TrainJobs    = "TrainJobs on the hub"
	Dispatches   = "Dispatches on the hub"
	HubEvents    = "Events on the hub"
	Copies       = "copies on the workers"
	EtcdInUse    = "hub's etcd, in use"
	EtcdSize     = "hub's etcd, file"
	EtcdRSS      = "hub's etcd, memory"
	APIServerRSS = "hub's API server, memory"
	WorkersEtcd  = "workers' etcds, in use"
	ManagerHeap  = "manager, heap after a collection"
	ManagerRSS   = "manager, memory"
	Goroutines   = "manager, goroutines"
	Series       = "manager, series of metrics"
	ArchiveSize  = "archive"
)

// Metrics of etcd.
const (
	etcdInUse = "etcd_mvcc_db_total_size_in_use_in_bytes"
	etcdSize  = "etcd_mvcc_db_total_size_in_bytes"
)

// What is counted.
var dispatchesPath = "/apis/" + v1alpha1.GroupVersion.String() + "/dispatches"

const eventsPath = "/api/v1/events"

// Figures returns the names of the figures in the order of tables, and whether each is in bytes.
func Figures() (names []string, bytes map[string]bool) {
	names = []string{
		TrainJobs, Dispatches, HubEvents, Copies, EtcdInUse, EtcdSize, EtcdRSS, APIServerRSS, WorkersEtcd, ManagerHeap, ManagerRSS, Goroutines,
		Series, ArchiveSize,
	}
	bytes = map[string]bool{
		EtcdInUse: true, EtcdSize: true, EtcdRSS: true, APIServerRSS: true, WorkersEtcd: true, ManagerHeap: true, ManagerRSS: true,
		ArchiveSize: true,
	}
	return names, bytes
}

// Level is what there is at one time.
type Level struct {
	// Seconds since the first job was created.
	Seconds float64 `json:"seconds"`
	// Jobs is how many jobs have ended so far.
	Jobs    int                `json:"jobs"`
	Figures map[string]float64 `json:"figures"`
}

// gauges reads levels.
type gauges struct {
	fleet   *fleet.Fleet
	stream  *stream
	system  *trainyard.Trainyard
	metrics string
	archive string
	began   time.Time
}

// read reads all figures.
func (g *gauges) read(ctx context.Context) (Level, error) {
	finished, _, copies := g.stream.counts()
	l := Level{Seconds: time.Since(g.began).Seconds(), Jobs: finished, Figures: map[string]float64{Copies: float64(copies)}}
	return l, errors.Join(g.readHub(ctx, l.Figures), g.readWorkers(ctx, l.Figures), g.readManager(ctx, l.Figures), g.readArchive(l.Figures))
}

func (g *gauges) readHub(ctx context.Context, to map[string]float64) error {
	hub := g.fleet.Hub
	for name, path := range map[string]string{TrainJobs: api.TrainJobs, Dispatches: dispatchesPath, HubEvents: eventsPath} {
		count, err := count(ctx, hub.API, path)
		if err != nil {
			return err
		}
		to[name] = float64(count)
	}
	etcd, err := etcdOf(ctx, hub)
	if err != nil {
		return err
	}
	for name, metric := range map[string]string{EtcdInUse: etcdInUse, EtcdSize: etcdSize} {
		if to[name], err = etcd.Sum(metric); err != nil {
			return err
		}
	}
	for name, process := range map[string]string{EtcdRSS: "etcd", APIServerRSS: "kube-apiserver"} {
		usage, err := measure.UsageOf(hub.Cluster.Process(process).PID())
		if err != nil {
			return err
		}
		to[name] = float64(usage.RSS)
	}
	return nil
}

func (g *gauges) readWorkers(ctx context.Context, to map[string]float64) error {
	to[WorkersEtcd] = 0
	for _, worker := range g.fleet.Workers {
		etcd, err := etcdOf(ctx, worker)
		if err != nil {
			return err
		}
		inUse, err := etcd.Sum(etcdInUse)
		if err != nil {
			return err
		}
		to[WorkersEtcd] += inUse
	}
	return nil
}

func (g *gauges) readManager(ctx context.Context, to map[string]float64) error {
	usage, err := measure.UsageOf(g.system.PID()) // Before the heap is collected.
	if err != nil {
		return err
	}
	heap, err := measure.Heap(ctx, g.system.Pprof())
	if err != nil {
		return err
	}
	metrics, err := measure.ReadExposition(ctx, g.metrics)
	if err != nil {
		return err
	}
	to[ManagerRSS], to[ManagerHeap], to[Series] = float64(usage.RSS), float64(heap), float64(metrics.Series)
	to[Goroutines], err = metrics.Sum("go_goroutines")
	return err
}

func (g *gauges) readArchive(to map[string]float64) error {
	to[ArchiveSize] = 0
	return filepath.WalkDir(g.archive, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			to[ArchiveSize] += float64(info.Size())
		}
		return err
	})
}

func etcdOf(ctx context.Context, cluster *fleet.Cluster) (measure.Exposition, error) {
	text, err := cluster.Cluster.EtcdMetrics(ctx)
	if err != nil {
		return measure.Exposition{}, err
	}
	return measure.ParseExposition(text)
}

// count returns how many objects there are at a path, without reading them all.
func count(ctx context.Context, client *api.Client, path string) (int, error) {
	answer, err := client.Do(ctx, http.MethodGet, path+"?limit=1", "", nil)
	if err != nil {
		return 0, err
	}
	var list struct {
		Metadata struct {
			RemainingItemCount int `json:"remainingItemCount"`
		} `json:"metadata"`
		Items []json.RawMessage `json:"items"`
	}
	err = json.Unmarshal(answer, &list)
	return len(list.Items) + list.Metadata.RemainingItemCount, err
}

const (
	// streamUsers create the jobs of a stream at the same time.
	streamUsers = 8
	// unfinishedJobs is how many jobs of a stream may not have ended: a stream does not become a burst on a busy machine.
	unfinishedJobs = 64
)

// stream creates jobs for a long time, and follows each of them until it is deleted. It keeps nothing of deleted jobs.
type stream struct {
	hub  *api.Client
	load *load.Load
	// free has an element for each job that has ended and may be followed by another job.
	free chan struct{}

	mu sync.Mutex
	// All below are under mu. ended has the UIDs of the jobs on the hub that have ended. finished and deleted are how many
	// jobs have ended and are gone so far. copies is how many copies there are on the workers. err is the first error.
	ended             map[string]bool
	finished, deleted int
	copies            int
	err               error
}

func newStream(hub *api.Client, l *load.Load) *stream {
	s := &stream{hub: hub, load: l, free: make(chan struct{}, unfinishedJobs), ended: map[string]bool{}}
	for range unfinishedJobs {
		s.free <- struct{}{}
	}
	return s
}

// run creates jobs at a rate, per second, until the context ends. It is slower if too many jobs have not ended.
func (s *stream) run(ctx context.Context, perSecond float64) error {
	limiter := rate.NewLimiter(rate.Limit(perSecond), 1)
	names := make(chan string)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer close(names)
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return nil
			case <-s.free:
			}
			if limiter.Wait(ctx) != nil {
				return nil // The context has ended, or ends before the next job is due.
			}
			select {
			case <-ctx.Done():
				return nil
			case names <- fmt.Sprintf("stream-%d", i):
			}
		}
	})
	for range streamUsers {
		group.Go(func() error {
			for name := range names {
				// The context of the stream does not interrupt a request: the job would exist or not.
				_, err := s.hub.Do(context.WithoutCancel(ctx), http.MethodPost, api.TrainJobsIn(fleet.Namespace), api.JSON, s.load.Body(name))
				if err != nil {
					return err
				}
				if err := s.failure(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// onHub sees a change of a job.
func (s *stream) onHub(event *api.Event) {
	uid := event.Object.Metadata.UID
	s.mu.Lock()
	defer s.mu.Unlock()
	switch ended := s.ended[uid]; {
	case event.Type == "DELETED" && !ended:
		s.err = fmt.Errorf("job %s was deleted before its end", event.Object.Metadata.Name)
	case event.Type == "DELETED":
		delete(s.ended, uid)
		s.deleted++
	case event.Object.Complete() && !ended:
		s.ended[uid] = true
		s.finished++
		s.free <- struct{}{} // It has room: each job took an element.
	}
}

// onWorker sees a change of a copy.
func (s *stream) onWorker(event *api.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch event.Type {
	case "ADDED":
		s.copies++
	case "DELETED":
		s.copies--
	}
}

// fail ends the stream.
func (s *stream) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
}

func (s *stream) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// counts returns how many jobs have ended and how many are gone so far, and how many copies there are.
func (s *stream) counts() (finished, deleted, copies int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.finished, s.deleted, s.copies
}
