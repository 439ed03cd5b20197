// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package board

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/views/explanation"
	"github.com/trainyard/trainyard/views/simulation"
)

const (
	// maxText is how long a pasted text may be, in bytes. An API server takes objects of 1.5 MiB with all that they have.
	maxText = 256 << 10
	// maxJobs is how many jobs it may have.
	maxJobs = 20
	// maxSimulations is how many simulations run at a time.
	maxSimulations = 2
)

// simulated is what a job would do.
type simulated struct {
	Name     string               `json:"name"`
	Placed   bool                 `json:"placed"`
	Headline string               `json:"headline"`
	Details  []explanation.Detail `json:"details"`
	Workers  []explanation.Line   `json:"workers,omitempty"`
}

// serveWhatIf says where pasted TrainJobs would run. It takes no other kinds: a policy or a runtime is tried with the
// plugin, on the machine of its user.
func (b *Board) serveWhatIf(w http.ResponseWriter, r *http.Request, c Caller) {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxText))
	if err != nil {
		refuse(w, http.StatusRequestEntityTooLarge, &problem{Error: fmt.Sprintf("the text is longer than %d KiB", maxText>>10)})
		return
	}
	files, err := pasted(text, r.URL.Query().Get("namespace"))
	if err != nil {
		refuse(w, http.StatusUnprocessableEntity, &problem{Error: err.Error(), Todo: "correct the text"})
		return
	}
	ctx, cancel := b.patience(r)
	defer cancel()
	select {
	case b.simulations <- struct{}{}:
		defer func() { <-b.simulations }()
	case <-ctx.Done():
		refuse(w, http.StatusServiceUnavailable, &problem{Error: "others are simulating", Todo: "try again"})
		return
	}
	h, err := c.Hub()
	if err != nil {
		fail(w, err)
		return
	}
	outcome, err := simulation.Run(ctx, &shared{Client: h, board: b, caller: c}, files, b.options.Clock.Now())
	if err != nil {
		refuseSimulation(w, h.Hint(err))
		return
	}
	shown := struct {
		Results []simulated `json:"results"`
		Notes   []string    `json:"notes,omitempty"`
	}{Notes: append(files.Ignored, outcome.Notes...)}
	for _, result := range outcome.Results {
		shown.Results = append(shown.Results, simulated{
			Name: result.Dispatch.Namespace + "/" + result.Dispatch.Name, Placed: result.Dispatch.Spec.Cluster != "", Headline: result.Headline(),
			Details: result.Details(), Workers: explanation.Lines(result.Dispatch),
		})
	}
	answer(w, http.StatusOK, shown)
}

// refuseSimulation answers with the API server's code, or says that the text has a fault.
func refuseSimulation(w http.ResponseWriter, err error) {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		fail(w, err)
		return
	}
	refuse(w, http.StatusUnprocessableEntity, &problem{Error: err.Error(), Todo: "correct the text, or create what it names"})
}

// pasted returns the TrainJobs of a text.
func pasted(text []byte, namespace string) (*simulation.Files, error) {
	files, err := simulation.Parse("the text", strings.NewReader(string(text)))
	if err != nil {
		return nil, err
	}
	jobs, _ := simulation.Of[*trainer.TrainJob](files)
	switch {
	case len(jobs) == 0:
		return nil, errors.New(strings.Join(append([]string{"the text has no TrainJob"}, files.Ignored...), "; "))
	case len(jobs) > maxJobs:
		return nil, fmt.Errorf("the text has %d TrainJobs: try at most %d at once", len(jobs), maxJobs)
	case len(jobs) < files.Len():
		return nil, errors.New("the text has objects besides TrainJobs that count: kubectl trainyard simulate takes policies, runtimes and workers too")
	}
	if namespace == "" {
		namespace = "default"
	}
	return files, files.SetNamespace(namespace, false)
}

// shared reads the hub with the caller's rights, and takes Dispatches from the index if the caller may list them: a hub
// can have very many, and few of them count.
type shared struct {
	client.Client
	board  *Board
	caller Caller
}

// List implements client.Client.
func (s *shared) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	dispatches, ok := list.(*v1alpha1.DispatchList)
	if !ok || s.board.options.Watched.Namespace != "" || !s.board.options.Watched.Jobs {
		return s.Client.List(ctx, list, options...)
	}
	lacks, err := missing(ctx, s.caller, ofJobs(""))
	switch {
	case err != nil:
		return err
	case len(lacks) > 0:
		return apierrors.NewForbidden(schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "dispatches"}, "", errors.New(strings.Join(lacks, "; ")))
	}
	if err := s.board.index.ready(ctx); err != nil {
		return err
	}
	dispatches.Items = s.board.index.unfinished()
	return nil
}

// unfinished returns the Dispatches of jobs that have not ended.
func (x *index) unfinished() (all []v1alpha1.Dispatch) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, r := range x.rows {
		if r.dispatch != nil && record.AttemptOf(r.dispatch) != record.Finished {
			all = append(all, *r.dispatch)
		}
	}
	return all
}

// me is what the page has to know first.
type me struct {
	Namespace string `json:"namespace"`
	// All is true if the caller may see the jobs of all namespaces, and Workers if the workers.
	All     bool `json:"all"`
	Workers bool `json:"workers"`
	// Fixed is true if only Namespace can be shown.
	Fixed bool `json:"fixed"`
}

// serveMe says what the caller may see.
func (b *Board) serveMe(w http.ResponseWriter, r *http.Request, c Caller) {
	ctx, cancel := b.patience(r)
	defer cancel()
	shown := me{Namespace: b.options.Namespace, Fixed: b.options.Watched.Namespace != ""}
	for _, scope := range []struct {
		set *bool
		q   query
	}{{&shown.All, query{page: jobsPage}}, {&shown.Workers, query{page: fleetPage}}} {
		_, code, p := b.authorize(ctx, c, scope.q)
		if code == http.StatusBadGateway || code == http.StatusUnauthorized {
			refuse(w, code, p)
			return
		}
		*scope.set = p == nil
	}
	answer(w, http.StatusOK, shown)
}
