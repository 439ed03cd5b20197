// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/api"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/fleet"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/load"
)

// Records is implemented by a System for which finished jobs can be made that it has not run.
type Records interface {
	// RecordPath is where the hub has the system's records of the jobs in a namespace.
	RecordPath(namespace string) string
	// Pause lets jobs and records be written while the system does not run, until Resume.
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
}

// template is a job that has ended, and the system's record of it, as the hub has them.
type template struct {
	name, uid        string
	job, record      object
	jobStat, recStat []byte
}

type object map[string]any

// templateName is in no other text of the objects.
const templateName = "job-that-is-the-template"

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
	t := &template{name: templateName}
	var err error
	if t.job, t.jobStat, err = w.find(ctx, api.TrainJobsIn(fleet.Namespace)); err != nil {
		return nil, err
	}
	t.uid = fmt.Sprint(t.job["metadata"].(map[string]any)["uid"])
	clean(t.job)
	records := w.System.(Records).RecordPath(fleet.Namespace)
	if t.record, t.recStat, err = w.find(ctx, records); err != nil {
		return nil, err
	}
	clean(t.record)
	return t, nil
}

// find returns the object of the template at a path, and the patch of its status.
func (w *World) find(ctx context.Context, path string) (object, []byte, error) {
	answer, err := w.Fleet.Hub.API.Do(ctx, http.MethodGet, path, "", nil)
	if err != nil {
		return nil, nil, err
	}
	var list struct {
		APIVersion string   `json:"apiVersion"`
		Kind       string   `json:"kind"`
		Items      []object `json:"items"`
	}
	if err := json.Unmarshal(answer, &list); err != nil {
		return nil, nil, err
	}
	for _, item := range list.Items {
		metadata := item["metadata"].(map[string]any)
		if !strings.Contains(fmt.Sprint(metadata["name"]), templateName) {
			continue
		}
		item["apiVersion"], item["kind"] = list.APIVersion, strings.TrimSuffix(list.Kind, "List")
		status, err := json.Marshal(object{"status": item["status"]})
		return item, status, err
	}
	return nil, nil, fmt.Errorf("no object of the job %s at %s", templateName, path)
}

// clean removes what the API server sets.
func clean(o object) {
	delete(o, "status")
	metadata := o["metadata"].(map[string]any)
	for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"} {
		delete(metadata, field)
	}
}

// populate makes finished jobs from one number to another.
func (w *World) populate(ctx context.Context, t *template, from, to int) error {
	if from == to {
		return nil
	}
	records := w.System.(Records)
	if err := records.Pause(ctx); err != nil {
		return err
	}
	job, err := json.Marshal(t.job)
	if err != nil {
		return err
	}
	record, err := json.Marshal(t.record)
	if err != nil {
		return err
	}
	recordName := fmt.Sprint(t.record["metadata"].(map[string]any)["name"])
	hub := w.Fleet.Hub.API
	err = load.Parallel(finishedNames(from, to), func(name string) error {
		uid, err := create(ctx, hub, api.TrainJobsIn(fleet.Namespace), t.as(job, name, t.uid), name, t.jobStat)
		if err != nil {
			return err
		}
		path := records.RecordPath(fleet.Namespace)
		_, err = create(ctx, hub, path, t.as(record, name, uid), strings.ReplaceAll(recordName, t.name, name), t.as(t.recStat, name, uid))
		return err
	})
	if err != nil {
		return err
	}
	return records.Resume(ctx)
}

// as returns a text about the template as a text about another job.
func (t *template) as(text []byte, name, uid string) []byte {
	text = bytes.ReplaceAll(text, []byte(t.name), []byte(name))
	return bytes.ReplaceAll(text, []byte(t.uid), []byte(uid))
}

// create creates an object with a status, and returns its UID.
func create(ctx context.Context, hub *api.Client, path string, body []byte, name string, status []byte) (string, error) {
	answer, err := hub.Do(ctx, http.MethodPost, path, api.JSON, body)
	if err != nil {
		return "", err
	}
	var created api.Job
	if err := json.Unmarshal(answer, &created); err != nil {
		return "", err
	}
	_, err = hub.Do(ctx, http.MethodPatch, path+"/"+name+"/status", api.MergePatch, status)
	return created.Metadata.UID, err
}
