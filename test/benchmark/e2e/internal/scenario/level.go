// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"path/filepath"
	"time"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/api"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/fleet"
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
