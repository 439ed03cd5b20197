// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package floor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/api"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/fleet"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/stub"
)

// Floor dispatches the jobs of a hub.
type Floor struct {
	hub     *api.Client
	workers []worker
	body    func(name string) []byte
	failed  func(error)
	turn    atomic.Int64
}

type worker struct {
	name string
	*api.Client
}

// Start starts a floor, which runs until the context ends. body is a user's job, from which the copies are made. failed
// gets later errors.
func Start(ctx context.Context, f *fleet.Fleet, body func(name string) []byte, failed func(error)) error {
	floor := &Floor{body: body, failed: failed}
	for _, cluster := range f.Workers {
		// It has clients of its own: its requests are counted, and it is as far away as any dispatcher.
		client, err := clientOf(cluster)
		if err != nil {
			return err
		}
		floor.workers = append(floor.workers, worker{cluster.Name, client})
		if err := client.Watch(ctx, api.TrainJobs, func(e *api.Event) { floor.onWorker(ctx, e) }, failed); err != nil {
			return err
		}
	}
	var err error
	if floor.hub, err = clientOf(f.Hub); err != nil {
		return err
	}
	return floor.hub.Watch(ctx, api.TrainJobs, func(e *api.Event) { floor.onHub(ctx, e) }, failed)
}

func clientOf(cluster *fleet.Cluster) (*api.Client, error) {
	config := rest.CopyConfig(cluster.Cluster.Config)
	config.Host = cluster.URL
	return api.New(config)
}

// onHub places a job that is new.
func (f *Floor) onHub(ctx context.Context, event *api.Event) {
	if event.Type != "ADDED" {
		return
	}
	job := event.Object.Metadata
	go func() {
		worker := f.workers[int(f.turn.Add(1))%len(f.workers)]
		if err := f.place(ctx, worker, job.Namespace, job.Name, types.UID(job.UID)); err != nil && ctx.Err() == nil {
			f.failed(fmt.Errorf("floor: %w", err))
		}
	}()
}

func (f *Floor) place(ctx context.Context, to worker, namespace, name string, uid types.UID) error {
	record, err := json.Marshal(&v1alpha1.Dispatch{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Dispatch"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.DispatchSpec{
			TrainJob: v1alpha1.TrainJobReference{Name: name, UID: uid}, Cluster: v1alpha1.ClusterName(to.name), Attempt: 1,
		},
	})
	if err != nil {
		return err
	}
	path := "/apis/" + v1alpha1.GroupVersion.String() + "/namespaces/" + namespace + "/dispatches"
	if _, err := f.hub.Do(ctx, http.MethodPost, path, api.JSON, record); err != nil {
		return err
	}
	// The copy is the worker's own job.
	copied := bytes.Replace(f.body(name), []byte(v1alpha1.ManagedByMultiKueue), []byte(v1alpha1.ManagedByBuiltIn), 1)
	_, err = to.Do(ctx, http.MethodPost, api.TrainJobsIn(namespace), api.JSON, copied)
	return err
}

// onWorker brings the end of a copy to the hub.
func (f *Floor) onWorker(ctx context.Context, event *api.Event) {
	if event.Type != "MODIFIED" || !event.Object.Complete() {
		return
	}
	job := event.Object.Metadata
	go func() {
		path := api.TrainJobsIn(job.Namespace) + "/" + job.Name + "/status"
		_, err := f.hub.Do(ctx, http.MethodPatch, path, api.MergePatch, stub.Completion(time.Now()))
		if err != nil && ctx.Err() == nil {
			f.failed(fmt.Errorf("floor: %w", err))
		}
	}()
}
