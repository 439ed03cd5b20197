// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package board

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/views/explanation"
	"github.com/trainyard/trainyard/views/timeline"
)

// jobView is everything about one job.
type jobView struct {
	Namespace string               `json:"namespace"`
	Name      string               `json:"name"`
	State     string               `json:"state"`
	Tone      tone                 `json:"tone"`
	Headline  string               `json:"headline"`
	Details   []explanation.Detail `json:"details"`
	Tables    []table              `json:"tables,omitempty"`
	Steps     []v1alpha1.Step      `json:"steps,omitempty"`
	Spans     []timeline.Span      `json:"spans"`
	Events    []event              `json:"events,omitempty"`
	// NoEvents says why there are no Events.
	NoEvents string    `json:"noEvents,omitempty"`
	Commands []command `json:"commands"`
}

// table is a table of the plugin.
type table struct {
	Name    string   `json:"name"`
	Columns []string `json:"columns"`
	Rows    [][]any  `json:"rows"`
}

type event struct {
	Last    time.Time `json:"last"`
	Warning bool      `json:"warning"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Count   int32     `json:"count"`
	From    string    `json:"from,omitempty"`
}

// command is a command to copy.
type command struct {
	What string `json:"what"`
	Text string `json:"text"`
}

// jobOf returns the job that a request names. Names that no object can have never reach the hub.
func jobOf(w http.ResponseWriter, r *http.Request) (types.NamespacedName, bool) {
	key := types.NamespacedName{Namespace: r.URL.Query().Get("namespace"), Name: r.URL.Query().Get("name")}
	if len(validation.IsDNS1123Label(key.Namespace)) > 0 || len(validation.IsDNS1123Subdomain(key.Name)) > 0 {
		refuse(w, http.StatusBadRequest, &problem{Error: fmt.Sprintf("namespace %q and name %q name no TrainJob", key.Namespace, key.Name)})
		return key, false
	}
	return key, true
}

// serveJob answers with one job, read with the rights of the caller.
func (b *Board) serveJob(w http.ResponseWriter, r *http.Request, c Caller) {
	key, ok := jobOf(w, r)
	if !ok {
		return
	}
	ctx, cancel := b.patience(r)
	defer cancel()
	h, err := c.Hub()
	if err != nil {
		fail(w, err)
		return
	}
	f, err := explanation.Read(ctx, h, key, b.options.Clock.Now())
	if err != nil {
		fail(w, err)
		return
	}
	f.Complete(ctx, h)
	b.findPlace(ctx, c, &f)
	answer(w, http.StatusOK, b.viewOf(f))
}

// findPlace sets the place of a waiting job in the waiting list, if the caller may know it.
func (b *Board) findPlace(ctx context.Context, c Caller, f *explanation.Observation) {
	if f.State() != explanation.Waiting || b.options.Watched.Namespace != "" || !b.options.Watched.Jobs {
		return
	}
	if lacks, err := missing(ctx, c, ofJobs("")); err != nil || len(lacks) > 0 || b.index.ready(ctx) != nil {
		return
	}
	b.index.mu.RLock()
	list := b.index.waitingList("")
	b.index.mu.RUnlock()
	f.Place, f.Length = list.Find(f.Job.GetUID())
}

func (b *Board) viewOf(f explanation.Observation) *jobView {
	key := types.NamespacedName{Namespace: f.Job.GetNamespace(), Name: f.Job.GetName()}
	view := &jobView{
		Namespace: key.Namespace, Name: key.Name, State: f.Word(), Tone: toneOf(f), Headline: f.Headline(), Details: f.Details(),
		Spans: timeline.Of(f.Job, f.Dispatch), Commands: b.commands(key, f),
	}
	for _, section := range f.Sections() {
		if section.Name != "Warnings" { // The Events have them.
			view.Tables = append(view.Tables, tableOf(section))
		}
	}
	if f.Dispatch != nil {
		view.Steps = f.Dispatch.Status.Steps
	}
	if f.NoEvents != nil {
		view.NoEvents = f.NoEvents.Error()
	}
	for i := range f.Events {
		view.Events = append(view.Events, eventOf(&f.Events[i]))
	}
	slices.SortStableFunc(view.Events, func(a, b event) int { return b.Last.Compare(a.Last) })
	return view
}

func tableOf(section explanation.Section) table {
	shown := table{Name: section.Name}
	for _, column := range section.Table.ColumnDefinitions {
		shown.Columns = append(shown.Columns, strings.ReplaceAll(column.Name, "-", " "))
	}
	for i := range section.Table.Rows {
		shown.Rows = append(shown.Rows, section.Table.Rows[i].Cells)
	}
	return shown
}

func eventOf(e *corev1.Event) event {
	last := e.LastTimestamp
	if e.Series != nil {
		last = metav1.NewTime(e.Series.LastObservedTime.Time)
	}
	for _, other := range []metav1.Time{metav1.NewTime(e.EventTime.Time), e.FirstTimestamp, e.CreationTimestamp} {
		if last.IsZero() {
			last = other
		}
	}
	shown := event{Last: last.Time, Warning: e.Type == corev1.EventTypeWarning, Reason: e.Reason, Message: e.Message, Count: max(e.Count, 1)}
	if e.Series != nil {
		shown.Count = e.Series.Count
	}
	shown.From = cmp.Or(e.ReportingController, e.Source.Component)
	return shown
}

// commands are those that go on where the board ends. Names of objects need no quotes in a shell.
func (b *Board) commands(key types.NamespacedName, f explanation.Observation) []command {
	of := func(what, text string) command {
		full := "kubectl " + text + " --namespace " + key.Namespace
		if b.options.Context != "" {
			full += " " + b.options.Context
		}
		return command{what, full}
	}
	commands := []command{
		of("Explain", "trainyard explain "+key.Name),
		of("Follow the log", "trainyard logs "+key.Name+" --follow"),
		of("Pods", "trainyard pods "+key.Name),
		of("TrainJob", "get trainjob "+key.Name+" --output yaml"),
	}
	if f.Dispatch != nil {
		commands = append(commands, of("Dispatch", "get dispatch "+key.Name+" --output yaml"))
	}
	if f.State() == explanation.Waiting {
		commands = append(commands, of("Ask workers again that have refused it", "trainyard retry "+key.Name))
	}
	return commands
}
