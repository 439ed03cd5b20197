// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/trainjobs/fields"
	"github.com/trainyard/trainyard/api/trainjobs/translate"
	"github.com/trainyard/trainyard/remote/bounded"
)

// openAPI is how the paths of OpenAPI documents begin.
const openAPI = "/openapi/v3/"

// schemas are what an API server knows of the specs of TrainJobs and of their runtimes.
type schemas struct {
	trainJob *fields.Schema
	// runtime is nil if the API server does not publish it.
	runtime *fields.Schema
}

// document is the OpenAPI document in which an API server says what it knows of TrainJobs.
type document struct {
	http    *http.Client
	address string
	// etag is of the document that was last read.
	etag string
}

func newDocument(host string, client *http.Client) *document {
	address := strings.TrimSuffix(host, "/") + openAPI + "apis/" + trainjobs.GroupVersionKind.GroupVersion().String()
	return &document{http: client, address: address}
}

// reading is what has become of an attempt to read a document.
type reading int

const (
	// failed: another attempt may succeed.
	failed reading = iota
	// fresh: it was read.
	fresh
	// unchanged: it is the document that was last read.
	unchanged
	// withheld: the API server does not show it.
	withheld
)

// read reads the document as a stream, and keeps only its schemas. Its error is about a document that is too large.
func (d *document) read(ctx context.Context) (*schemas, reading, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.address, nil)
	if err != nil {
		return nil, withheld, nil // An address without a document stays so.
	}
	req.Header.Set("Accept", "application/json")
	if d.etag != "" {
		req.Header.Set("If-None-Match", d.etag)
	}
	res, err := d.http.Do(req)
	if err != nil {
		return nil, failed, nil // The probe says what is wrong with the connection.
	}
	defer res.Body.Close()
	switch res.StatusCode {
	case http.StatusNotModified:
		return nil, unchanged, nil
	case http.StatusForbidden:
		return nil, withheld, nil
	case http.StatusOK:
	default:
		return nil, failed, nil
	}
	specs, err := fields.Read(res.Body, trainjobs.GroupVersionKind.Kind, trainer.TrainingRuntimeKind)
	if excess := (*bounded.TooLargeError)(nil); errors.As(err, &excess) || errors.Is(err, fields.ErrTooLarge) {
		return nil, failed, fmt.Errorf("ask for the schema of TrainJobs: %w", err)
	}
	found := &schemas{trainJob: specs[trainjobs.GroupVersionKind.Kind], runtime: specs[trainer.TrainingRuntimeKind]}
	if err != nil || len(found.trainJob.Names()) == 0 {
		return nil, failed, nil
	}
	d.etag = res.Header.Get("Etag")
	return found, fresh, nil
}

// settlingReads is how often the document is read after a change of a CRD. Whoever upgrades changes several CRDs, and an API
// server publishes their schemas a little later.
const settlingReads = 3

// schema returns what the worker knows of TrainJobs and runtimes, and what it lacks of what the hub knows. An API server
// publishes a CRD's schema a little after it serves the CRD. So the result is unsure for some attempts, but not for ever.
func (p *prober) schema(ctx context.Context) (found Trainer, unsure bool, err error) {
	const patience = 10
	onHub := p.hub.current()
	if onHub != p.hubKnew { // The hub knows other fields now, so the worker may lack other fields.
		p.document.etag, p.hubKnew = "", onHub
	}
	onWorker, how, err := p.document.read(ctx)
	switch {
	case how == fresh:
		p.trainer = trainerOf(onHub, onWorker)
	case how == withheld:
		p.trainer = Trainer{}
	case err == nil && how == failed:
		p.attempts++
		unsure = p.attempts%patience != 0
	}
	if how != failed || err != nil {
		p.attempts = 0
	}
	if p.settling > 0 && (how == fresh || how == unchanged) {
		p.settling--
		unsure = true
	}
	found = p.trainer
	found.Version = trainjobs.GroupVersionKind.Version
	return found, unsure, err
}

// trainerOf is what a worker with these schemas has.
func trainerOf(onHub, onWorker *schemas) Trainer {
	found := Trainer{Fields: onWorker.trainJob.Names(), Release: fields.Release(onWorker.trainJob)}
	if onHub == nil {
		return found
	}
	found.Missing = onHub.trainJob.Missing(onWorker.trainJob)
	found.Untranslatable = translate.Lacking(onHub.trainJob, onWorker.trainJob)
	if onHub.runtime != nil && onWorker.runtime != nil {
		found.MissingOfRuntimes = onHub.runtime.Missing(onWorker.runtime)
	}
	return found
}
