// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/api"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/fleet"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/kueue"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/measure"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/trainyard"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/yard"
)

// Dispatchers of MultiKueue: its own two, and Trainyard's.
const (
	AllAtOnce   = "kueue.x-k8s.io/multikueue-dispatcher-all-at-once"
	Incremental = "kueue.x-k8s.io/multikueue-dispatcher-incremental"
	GangFit     = "trainyard.dev/gang-fit"
)

const (
	// atOnce is how long after the last creation a job may start and still have started at once.
	atOnce = 30 * time.Second
	// stillTime without a start is when no further job starts.
	stillTime = 2 * time.Minute
)

// unequalWorkers are nodes of eight GPUs, of four, and of one. unequalJobs all fit on them at the same time, but not
// each job fits everywhere.
var (
	unequalWorkers = []struct {
		nodes int
		gpus  int64
	}{{8, 8}, {16, 4}, {88, 1}}
	unequalJobs = []struct {
		share int // in percent
		pods  int32
		gpus  int64
	}{{6, 1, 8}, {14, 2, 2}, {80, 1, 1}}
)

// Unequal is the result of one dispatcher for a burst of jobs that all fit on unequal workers at the same time.
type Unequal struct {
	Dispatcher string `json:"dispatcher"`
	Jobs       int    `json:"jobs"`
	// AtOnce is the share of the jobs whose pods all had a node half a minute after the last job was created. Ever is the
	// share of the jobs whose pods all had a node when nothing changed any more. No job ended.
	AtOnce float64 `json:"atOnce"`
	Ever   float64 `json:"ever"`
	// Start is from the creation of a job until all its pods have a node.
	Start Percentiles `json:"start"`
	// HubReads and HubWrites are per job, and so are Workloads: requests for Workloads on all workers, whoever makes them.
	HubReads  float64 `json:"hubReads"`
	HubWrites float64 `json:"hubWrites"`
	Workloads float64 `json:"workerWorkloads"`
}

// UnequalWorkers measures one dispatcher of MultiKueue on a fleet of its own.
func UnequalWorkers(ctx context.Context, dispatcher string, jobs int) (result Unequal, err error) {
	var nodes [][]int64
	var quota []int64
	for _, worker := range unequalWorkers {
		var all []int64
		for range worker.nodes {
			all = append(all, worker.gpus)
		}
		nodes, quota = append(nodes, all), append(quota, int64(worker.nodes)*worker.gpus)
	}
	f, err := fleet.Start(ctx, fleet.Options{Workers: len(nodes), GPUs: nodes, Scheduled: true})
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, f.Stop()) }()
	tuning := kueue.Tuned()
	tuning.Groups, tuning.Dispatcher, tuning.GPUs = 1, dispatcher, quota
	k := kueue.New(f, tuning)
	for _, step := range []func(context.Context) error{k.Install, k.Start, k.Connected} {
		if err := step(ctx); err != nil {
			return result, err
		}
	}
	if dispatcher == GangFit {
		if err := startNominating(ctx, f); err != nil {
			return result, err
		}
	}
	return (&unequal{fleet: f, labels: k.Labels()[0], pods: map[string]map[string]bool{}, started: map[string]time.Time{}}).run(ctx, dispatcher, jobs)
}

// startNominating starts a manager that knows the workers by MultiKueue's names, and lets it pack them.
func startNominating(ctx context.Context, f *fleet.Fleet) error {
	var workers []trainyard.Worker
	for _, worker := range f.Workers {
		path, err := worker.WriteKubeconfig()
		if err != nil {
			return err
		}
		workers = append(workers, trainyard.Worker{Name: worker.Name + "-0", Kubeconfig: path})
	}
	y := trainyard.New(f.Hub, workers, trainyard.Options{Args: []string{"--kueue-dispatcher"}})
	if err := y.Install(ctx); err != nil {
		return err
	}
	if err := f.Hub.Admin.Create(ctx, &v1alpha1.DispatchPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "pack"},
		Spec:       v1alpha1.DispatchPolicySpec{Priority: 1, Scoring: []v1alpha1.Score{{Name: v1alpha1.ScoreMostAllocated}}},
	}); err != nil {
		return err
	}
	if err := y.Start(ctx); err != nil {
		return err
	}
	return y.Connected(ctx)
}

// unequal is one run.
type unequal struct {
	fleet  *fleet.Fleet
	labels map[string]string

	mu sync.Mutex
	// pods are the pods with a node, by job. want is how many pods each job has, and started when all had a node. Under
	// mu.
	pods    map[string]map[string]bool
	want    map[string]int32
	started map[string]time.Time
	last    time.Time
}

func (u *unequal) run(ctx context.Context, dispatcher string, count int) (Unequal, error) {
	jobs := u.jobs(count)
	for _, worker := range u.fleet.Workers {
		if err := u.follow(ctx, worker); err != nil {
			return Unequal{}, err
		}
	}
	before, err := measure.ReadRequests(ctx, u.fleet)
	if err != nil {
		return Unequal{}, err
	}
	created := map[string]time.Time{}
	for i := range jobs {
		body, err := json.Marshal(&jobs[i])
		if err != nil {
			return Unequal{}, err
		}
		created[jobs[i].Name] = time.Now()
		if err := u.create(ctx, body); err != nil {
			return Unequal{}, err
		}
	}
	end := time.Now()
	if err := u.wait(ctx, count); err != nil {
		return Unequal{}, err
	}
	after, err := measure.ReadRequests(ctx, u.fleet)
	if err != nil {
		return Unequal{}, err
	}
	r := Unequal{Dispatcher: dispatcher, Jobs: count}
	var start []time.Duration
	u.mu.Lock()
	defer u.mu.Unlock()
	for name, at := range u.started {
		start = append(start, at.Sub(created[name]))
		if at.Sub(end) <= atOnce {
			r.AtOnce += 1 / float64(count)
		}
	}
	r.Ever, r.Start = float64(len(start))/float64(count), percentiles(start)
	spent := after.Minus(before)
	hub := measure.Sum(spent.Hub)
	r.HubReads, r.HubWrites = float64(hub.Reads)/float64(count), float64(hub.Writes)/float64(count)
	for request, n := range spent.Workers {
		if request.Resource == "workloads" {
			r.Workloads += float64(n) / float64(count)
		}
	}
	return r, nil
}

// create creates a job. It tries again as long as Kueue's webhooks do not answer in time.
func (u *unequal) create(ctx context.Context, body []byte) error {
	path := "/apis/batch/v1/namespaces/" + fleet.Namespace + "/jobs"
	for {
		_, err := u.fleet.Hub.API.Do(ctx, http.MethodPost, path, api.JSON, body)
		answer := (*api.Error)(nil)
		if !errors.As(err, &answer) || answer.Code != http.StatusInternalServerError {
			return err
		}
	}
}

// jobs are in the same random order for every dispatcher.
func (u *unequal) jobs(count int) []batchv1.Job {
	var all []batchv1.Job
	u.want = map[string]int32{}
	for _, kind := range unequalJobs {
		for range count * kind.share / 100 {
			name := fmt.Sprintf("job-%d", len(all))
			amounts := corev1.ResourceList{yard.GPU: *resource.NewQuantity(kind.gpus, resource.DecimalSI), corev1.ResourceCPU: resource.MustParse("1")}
			u.want[name] = kind.pods
			all = append(all, batchv1.Job{
				TypeMeta:   metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"},
				ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: name, Labels: u.labels},
				Spec: batchv1.JobSpec{
					ManagedBy: ptr.To(v1alpha1.ManagedByMultiKueue), Parallelism: ptr.To(kind.pods), Completions: ptr.To(kind.pods),
					Template: corev1.PodTemplateSpec{
						ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{clusters.RunForAnnotation: clusters.RunForever}},
						Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{
							Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Requests: amounts, Limits: amounts},
						}}},
					},
				},
			})
		}
	}
	order := rand.New(rand.NewPCG(1, 2)) // The same order for every dispatcher.
	order.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// follow notes which pods of a worker get a node.
func (u *unequal) follow(ctx context.Context, worker *fleet.Cluster) error {
	events, err := worker.Admin.Watch(ctx, &corev1.PodList{})
	if err != nil {
		return err
	}
	go func() {
		defer events.Stop()
		for event := range events.ResultChan() {
			if pod, ok := event.Object.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
				u.see(pod.Labels[batchv1.JobNameLabel], worker.Name+"/"+pod.Name)
			}
		}
	}()
	return nil
}

func (u *unequal) see(job, pod string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.pods[job] == nil {
		u.pods[job] = map[string]bool{}
	}
	u.pods[job][pod] = true
	if _, known := u.started[job]; !known && u.want[job] > 0 && len(u.pods[job]) >= int(u.want[job]) {
		u.last = time.Now()
		u.started[job] = u.last
	}
}

// wait returns when all jobs have started, or none has for a while.
func (u *unequal) wait(ctx context.Context, count int) error {
	began := time.Now()
	for {
		u.mu.Lock()
		started, last := len(u.started), u.last
		u.mu.Unlock()
		if last.Before(began) {
			last = began
		}
		if started == count || time.Since(last) > stillTime {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %d jobs, %d have started: %w", count, started, ctx.Err())
		case <-time.After(time.Second):
		}
	}
}
