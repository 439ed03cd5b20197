// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/api"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/fleet"
	"github.com/trainyard/trainyard/test/clusters"
)

// Records is implemented by a System for which finished jobs can be made that it has not run.
type Records interface {
	// RecordKeys is where the hub's etcd has the system's records of the jobs in a namespace.
	RecordKeys(namespace string) string
}

// template is a job that has ended, and the system's record of it, as the hub's etcd has them. Copies of both are what
// the system itself would have left, in any version of it.
type template struct {
	objects []clusters.KeyValue
	// uids are the UIDs of the objects. The record has the job's UID, too.
	uids []string
}

// templateName is in no other text of the objects.
const templateName = "job-that-is-the-template"

// jobKeys is where the hub's etcd has the TrainJobs of the benchmark.
const jobKeys = "/registry/trainer.kubeflow.org/trainjobs/" + fleet.Namespace + "/"

// template runs a job, and reads the result.
func (w *World) template(ctx context.Context) (*template, error) {
	w.runFor.Store(0)
	if err := w.Load.Create(ctx, templateName); err != nil {
		return nil, err
	}
	if err := w.Jobs.Complete(ctx, []string{templateName}); err != nil {
		return nil, err
	}
	if _, err := w.settle(ctx); err != nil {
		return nil, err
	}
	t := &template{}
	for _, prefix := range []string{jobKeys, w.System.(Records).RecordKeys(fleet.Namespace)} {
		if err := t.add(ctx, w.Fleet.Hub.Cluster, prefix); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// add adds the object of the template below a prefix of keys.
func (t *template) add(ctx context.Context, hub *clusters.Cluster, prefix string) error {
	all, err := hub.Keys(ctx, prefix)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(kv clusters.KeyValue) bool { return strings.Contains(kv.Key, templateName) })
	if i < 0 {
		return fmt.Errorf("no object of the job %s below %s", templateName, prefix)
	}
	var object api.Job
	if err := json.Unmarshal(all[i].Value, &object); err != nil {
		return fmt.Errorf("read %s: %w", all[i].Key, err)
	}
	t.objects = append(t.objects, all[i])
	t.uids = append(t.uids, object.Metadata.UID)
	return nil
}

// as returns the objects of the template as those of another job.
func (t *template) as(name string) []clusters.KeyValue {
	renames := []string{templateName, name}
	for _, uid := range t.uids {
		renames = append(renames, uid, string(uuid.NewUUID()))
	}
	rename := strings.NewReplacer(renames...)
	var all []clusters.KeyValue
	for _, kv := range t.objects {
		all = append(all, clusters.KeyValue{Key: rename.Replace(kv.Key), Value: []byte(rename.Replace(string(kv.Value)))})
	}
	return all
}

// populate makes finished jobs from one number to another.
func (w *World) populate(ctx context.Context, t *template, from, to int) error {
	for names := range slices.Chunk(finishedNames(from, to), 1000) { // Bounds the memory of what is being written.
		var all []clusters.KeyValue
		for _, name := range names {
			all = append(all, t.as(name)...)
		}
		if err := w.Fleet.Hub.Cluster.WriteKeys(ctx, all); err != nil {
			return err
		}
		// The API server reads what is written much more slowly. What is measured next must not wait for it.
		for _, last := range all[len(all)-len(t.objects):] {
			if err := w.awaitServed(ctx, last); err != nil {
				return err
			}
		}
	}
	return nil
}

// awaitServed returns when the API server's cache has an object that was written to etcd.
func (w *World) awaitServed(ctx context.Context, kv clusters.KeyValue) error {
	var object metav1.TypeMeta
	if err := json.Unmarshal(kv.Value, &object); err != nil {
		return fmt.Errorf("read %s: %w", kv.Key, err)
	}
	// The key is /registry/GROUP/RESOURCE/NAMESPACE/NAME.
	parts := strings.Split(kv.Key, "/")
	resource, namespace, name := parts[3], parts[4], parts[5]
	// Version 0 asks for what the cache has.
	path := fmt.Sprintf("/apis/%s/namespaces/%s/%s/%s?resourceVersion=0", object.APIVersion, namespace, resource, name)
	return wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		_, err := w.Fleet.Hub.API.Do(ctx, http.MethodGet, path, "", nil)
		if answer := (*api.Error)(nil); errors.As(err, &answer) && answer.Code == http.StatusNotFound {
			return false, nil
		}
		return err == nil, err
	})
}
