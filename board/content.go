// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package board

import (
	"maps"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/accelerators"
	"github.com/trainyard/trainyard/views/explanation"
	"github.com/trainyard/trainyard/views/fleet"
	"github.com/trainyard/trainyard/views/jobs"
	"github.com/trainyard/trainyard/views/output"
)

const (
	// mostWaiting is how many waiting jobs the queue shows, the first ones.
	mostWaiting = 100
	// mostReasons is how many workers it says about each of them.
	mostReasons = 8
	// mostNamespaces is how many namespaces are offered.
	mostNamespaces = 500
)

// version changes when something changes that can be on a page.
func (x *index) version(q query) int64 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.versionOf(q)
}

// versionOf is version. mu must be held.
func (x *index) versionOf(q query) int64 {
	if q.page == fleetPage {
		return x.fleetVersion
	}
	namespace := q.namespace
	if q.whole {
		namespace = ""
	}
	if l := x.lists[namespace]; l != nil {
		return l.version
	}
	return 0
}

// compute computes a page.
func (x *index) compute(q query) *content {
	switch q.page {
	case fleetPage:
		return x.fleet()
	case queuePage:
		return x.queue(q)
	default:
		return x.jobs(q)
	}
}

// fleet shows all workers, by name.
func (x *index) fleet() *content {
	x.mu.RLock()
	c, all := &content{version: x.fleetVersion}, make([]v1alpha1.WorkerCluster, 0, len(x.workers))
	for _, name := range slices.Sorted(maps.Keys(x.workers)) {
		all = append(all, *x.workers[name])
	}
	x.mu.RUnlock()
	known, summary := accelerators.Seen(all), fleet.Summary{}
	for i := range all {
		card := fleet.CardOf(&all[i], known)
		summary.Add(&all[i], &card)
		c.items = append(c.items, encoded(card.Name, struct {
			Key   string `json:"key"`
			Title string `json:"title"`
			Tone  tone   `json:"tone"`
			fleet.Card
		}{card.Name, card.Title(), toneOfWorker(&card), card}))
	}
	c.head = encoded("", summary).bytes
	return c
}

func toneOfWorker(card *fleet.Card) tone {
	switch {
	case card.IsReady() && len(card.Notes) == 0:
		return good
	case card.IsReady():
		return waits
	case card.Message == "": // An admin has decided that it gets no jobs.
		return quiet
	}
	return bad
}

// jobsHead says what the page of jobs leaves out.
type jobsHead struct {
	// Counts says how many jobs are in a state, without a filter.
	Counts map[string]int `json:"counts"`
	// Total is how many jobs there are, Matching how many pass the filter, as far as they were counted.
	Total    int `json:"total"`
	Matching int `json:"matching"`
	// More is true if there are more than the page shows.
	More       bool     `json:"more"`
	Namespaces []string `json:"namespaces,omitempty"`
}

// jobs shows the newest jobs that pass the filter.
func (x *index) jobs(q query) *content {
	x.mu.RLock()
	defer x.mu.RUnlock()
	c, head := &content{version: x.versionOf(q)}, jobsHead{Counts: map[string]int{}}
	if l := x.lists[q.namespace]; l != nil {
		head.Counts, head.Total = l.counts, l.rows.Len()
		l.rows.Ascend(func(r *row) bool {
			if !q.matches(r) {
				return true
			}
			if len(c.items) == q.rows {
				head.More = true
				return false
			}
			c.items = append(c.items, r.item())
			return true
		})
	}
	head.Matching = len(c.items)
	if q.namespace == "" {
		head.Namespaces = x.namespaces()
	}
	c.head = encoded("", head).bytes
	return c
}

// namespaces are those that have jobs. mu must be held.
func (x *index) namespaces() []string {
	var names []string
	for name, l := range x.lists {
		if name != "" && l.rows.Len() > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names[:min(len(names), mostNamespaces)]
}

func (q *query) matches(r *row) bool {
	return (q.state == "" || r.word == q.state) && (q.worker == "" || r.worker() == q.worker) && (q.name == "" || r.key.Name == q.name) &&
		(q.text == "" || strings.Contains(r.key.Name, q.text))
}

// waitingJob is what the queue shows of a job.
type waitingJob struct {
	Key       string `json:"key"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Position is nil if it is not known, and 0 for a job that does not wait for room.
	Position *int      `json:"position"`
	Priority int32     `json:"priority"`
	Needs    string    `json:"needs"`
	Created  time.Time `json:"created"`
	Reason   string    `json:"reason"`
	Tone     tone      `json:"tone"`
	Message  string    `json:"message,omitempty"`
	Advice   string    `json:"advice,omitempty"`
	// Workers say why each worker does not take the job, the nearest first. More is how many are left out.
	Workers []explanation.Line `json:"workers,omitempty"`
	More    int                `json:"more,omitempty"`
}

// queueHead counts the waiting jobs.
type queueHead struct {
	Total int `json:"total"`
	// Room is how many wait for room, and Repair how many until somebody repairs something.
	Room   int  `json:"room"`
	Repair int  `json:"repair"`
	Whole  bool `json:"whole"`
}

// queue shows the waiting jobs, in order.
func (x *index) queue(q query) *content {
	namespace := q.namespace
	if q.whole {
		namespace = "" // Positions count all jobs.
	}
	x.mu.RLock()
	list, version := x.waitingList(namespace), x.versionOf(q)
	x.mu.RUnlock()
	c, head := &content{version: version}, queueHead{Whole: q.whole}
	for i := range list {
		place := &list[i]
		if q.namespace != "" && place.Namespace != q.namespace {
			continue
		}
		head.Total++
		kind := v1alpha1.ReasonKindOf(jobs.Reason(place.Dispatch))
		if kind.IsForRoom() {
			head.Room++
		}
		if kind.NeedsRepair() {
			head.Repair++
		}
		if len(c.items) < mostWaiting {
			c.items = append(c.items, encoded(place.Namespace+"/"+place.Name, q.waitingJob(place)))
		}
	}
	c.head = encoded("", head).bytes
	return c
}

func (q *query) waitingJob(place *jobs.Place) waitingJob {
	f := (&row{key: client.ObjectKeyFromObject(place.Dispatch), dispatch: place.Dispatch}).observation()
	shown := waitingJob{
		Key: place.Namespace + "/" + place.Name, Namespace: place.Namespace, Name: place.Name, Priority: place.Spec.Priority,
		Needs: jobs.Needs(place.Spec.PodSets), Created: place.Created.Time, Reason: output.Or(jobs.Reason(place.Dispatch), output.Unknown),
		Tone: toneOf(f), Message: explanation.Message(place.Dispatch), Advice: f.Advice(), Workers: explanation.Lines(place.Dispatch),
	}
	if q.whole || place.Position == 0 {
		shown.Position = &place.Position
	}
	if more := len(shown.Workers) - mostReasons; more > 0 {
		shown.Workers, shown.More = shown.Workers[:mostReasons], more
	}
	return shown
}
