// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// TrainJobs is the path of all TrainJobs.
const TrainJobs = "/apis/trainer.kubeflow.org/v1alpha1/trainjobs"

// TrainJobsIn is the path of the TrainJobs of a namespace.
func TrainJobsIn(namespace string) string {
	return "/apis/trainer.kubeflow.org/v1alpha1/namespaces/" + namespace + "/trainjobs"
}

// JobSets is the path of all JobSets.
const JobSets = "/apis/jobset.x-k8s.io/v1alpha2/jobsets"

// JobSetsIn is the path of the JobSets of a namespace.
func JobSetsIn(namespace string) string {
	return "/apis/jobset.x-k8s.io/v1alpha2/namespaces/" + namespace + "/jobsets"
}

// Job is what the benchmark has to know of a TrainJob or a JobSet.
type Job struct {
	Metadata struct {
		Namespace         string `json:"namespace"`
		Name              string `json:"name"`
		UID               string `json:"uid"`
		ResourceVersion   string `json:"resourceVersion"`
		DeletionTimestamp string `json:"deletionTimestamp"`
	} `json:"metadata"`
	Spec struct {
		Suspend bool `json:"suspend"`
	} `json:"spec"`
	Status struct {
		Conditions []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions"`
	} `json:"status"`
}

// Complete says whether the job has ended well. The condition of a TrainJob is Complete, that of a JobSet Completed.
func (j *Job) Complete() bool {
	for _, c := range j.Status.Conditions {
		if (c.Type == "Complete" || c.Type == "Completed") && c.Status == "True" {
			return true
		}
	}
	return false
}

// Event is a change of a job.
type Event struct {
	// Type is ADDED, MODIFIED or DELETED.
	Type   string `json:"type"`
	Object Job    `json:"object"`
}

// Watch calls observe for each change of a job from now on, one after the other, in a goroutine of its own until the
// context ends. The path is TrainJobs or JobSets. A watch that the server ends goes on where it stopped. If it cannot,
// failed is called, because the measurement then lacks something.
func (c *Client) Watch(ctx context.Context, path string, observe func(*Event), failed func(error)) error {
	answer, err := c.Do(ctx, http.MethodGet, path+"?limit=1", "", nil)
	if err != nil {
		return err
	}
	var list struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(answer, &list); err != nil {
		return fmt.Errorf("list %s: %w", path, err)
	}
	stream, err := c.stream(ctx, path, list.Metadata.ResourceVersion)
	if err != nil {
		return err
	}
	go func() {
		if err := c.follow(ctx, path, list.Metadata.ResourceVersion, stream, observe); ctx.Err() == nil {
			failed(fmt.Errorf("watch %s of %s: %w", path, c.base, err))
		}
	}()
	return nil
}

func (c *Client) stream(ctx context.Context, path, version string) (io.ReadCloser, error) {
	// A day: a server closes watches sooner where nobody asks for more.
	response, err := c.send(ctx, http.MethodGet, path+"?watch=1&timeoutSeconds=86400&resourceVersion="+version, "", nil)
	if err != nil {
		return nil, err
	}
	return response.Body, nil
}

// follow reads events, from stream after stream, until that is not possible any more, and says why.
func (c *Client) follow(ctx context.Context, path, version string, stream io.ReadCloser, observe func(*Event)) error {
	for {
		decoder := json.NewDecoder(stream)
		for {
			var event Event
			err := decoder.Decode(&event)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
			if event.Type == "ERROR" {
				return errors.New("the server has ended it with an error")
			}
			version = event.Object.Metadata.ResourceVersion
			observe(&event)
		}
		_ = stream.Close() // It has ended.
		var err error
		if stream, err = c.stream(ctx, path, version); err != nil {
			return err
		}
	}
}
