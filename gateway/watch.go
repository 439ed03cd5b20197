// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Types of the events of a watch.
const (
	eventAdded    = "ADDED"
	eventModified = "MODIFIED"
	eventDeleted  = "DELETED"
	eventBookmark = "BOOKMARK"
	eventError    = "ERROR"
)

// watchEvent is an event of a watch.
type watchEvent struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

// arrival is what a stream brings to its watch. One with nothing but a worker says that the worker answers.
type arrival struct {
	// worker is the stream's, nil for the hub's.
	worker *worker
	name   v1alpha1.ClusterName
	// event of the hub, or of one object of a worker.
	event watchEvent
	item  shown
	// version is how far the stream is.
	version string
	// all says that items are all objects that the worker has.
	all   bool
	items []shown
	// words say why the worker's objects are not there.
	words string
	// err ends the watch. io.EOF: the hub has ended it.
	err error
}

// watch answers with the events of the hub and of workers.
func (g *Gateway) watch(w http.ResponseWriter, q *question) {
	switch {
	case q.form.table && q.initial():
		fail(w, status(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "sendInitialEvents: list before you watch a table"))
		return
	case !q.initial() && !g.goesOn(q):
		fail(w, status(http.StatusGone, metav1.StatusReasonExpired, "nothing can go on at this resource version: list again"))
		return
	}
	ctx, cancel := context.WithCancel(q.ctx)
	defer cancel()
	res, err := g.hub.as(q.caller).get(ctx, q.info.Path, q.hubQuery(), q.form.accept, true)
	if err != nil {
		fail(w, unavailable("the hub does not answer: %v", err))
		return
	}
	if res.StatusCode != http.StatusOK {
		relay(w, res)
		return
	}
	defer func() { _ = res.Body.Close() }()
	from := q.from()
	m := &merged{
		gateway: g, q: q, out: newEventWriter(w, q), arrive: make(chan arrival, 64), streams: map[v1alpha1.ClusterName]context.CancelFunc{},
		at: from, ordered: from[ofHub] != "", shown: map[keyIn]sight{}, hidden: map[keyIn]hiding{}, ofJob: map[types.NamespacedName]map[keyIn]bool{},
		initial: map[v1alpha1.ClusterName]bool{},
		resumed: map[v1alpha1.ClusterName]bool{}, late: g.clock.NewTimer(g.workers.timeout),
	}
	defer m.late.Stop()
	m.run(ctx, json.NewDecoder(res.Body))
}

// goesOn says whether it is known what a client has of the workers' objects that asks for what comes after its version.
func (g *Gateway) goesOn(q *question) bool {
	targets := g.targets(q)
	for name := range q.at {
		if name != ofHub && !slices.Contains(targets, name) {
			return false // The client may have objects of jobs that have left this worker.
		}
	}
	return !q.at.torn() && (!q.plain || len(targets) == 0)
}

// readHub sends the events of the hub.
func readHub(ctx context.Context, events *json.Decoder, to chan<- arrival) {
	for ctx.Err() == nil {
		a := arrival{}
		a.err = events.Decode(&a.event)
		select {
		case to <- a:
		case <-ctx.Done():
		}
		if a.err != nil {
			return
		}
	}
}

// streamer reads the objects of one worker for one watch, until its context ends.
type streamer struct {
	gateway *Gateway
	q       *question
	name    v1alpha1.ClusterName
	to      chan<- arrival
	// of is the cluster to which the stream's version belongs, empty if it was not reached yet.
	of types.UID
}

// backoff is how long a stream waits after errors.
func backoff() wait.Backoff {
	return wait.Backoff{Duration: time.Second, Factor: 2, Cap: 30 * time.Second, Steps: 10, Jitter: 0.1}
}

// run streams. With a version, it begins there.
func (s *streamer) run(ctx context.Context, version string) {
	pause := backoff()
	for ctx.Err() == nil {
		reached := version
		err := guarded(func() (err error) { reached, err = s.attempt(ctx, version); return err })
		if reached != version {
			pause = backoff()
		}
		version = reached
		if err == nil || ctx.Err() != nil {
			continue // A worker ends its watches now and then.
		}
		var expired *expiredError
		if errors.As(err, &expired) {
			version = ""
			continue
		}
		s.send(ctx, arrival{name: s.name, words: s.gateway.workers.explain(ctx, s.name, err).Error()})
		timer := s.gateway.clock.NewTimer(pause.Step())
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C():
		}
	}
}

// expiredError says that the worker has forgotten a version.
type expiredError struct{}

// Error says it.
func (*expiredError) Error() string { return "the worker has forgotten this resource version" }

func (s *streamer) send(ctx context.Context, a arrival) {
	select {
	case s.to <- a:
	case <-ctx.Done():
	}
}

// attempt lists unless there is a version, and watches until the watch ends. It returns how far it has come.
func (s *streamer) attempt(ctx context.Context, version string) (string, error) {
	w, err := s.connect(ctx)
	if err != nil {
		return version, err
	}
	if s.of != "" && s.of != w.clusterID {
		version = "" // Another cluster has taken the name.
	}
	s.of = w.clusterID
	query, wanted := s.q.workerQuery(ctx, w)
	if !wanted {
		s.send(ctx, arrival{name: s.name, worker: w, all: true})
		<-ctx.Done()
		return version, nil
	}
	if version == "" {
		if version, err = s.list(ctx, w); err != nil {
			return "", err
		}
	}
	query.Set("watch", "true")
	query.Set("allowWatchBookmarks", "true")
	query.Set("resourceVersion", version)
	query.Set("timeoutSeconds", strconv.Itoa(int(streamFor.Seconds())))
	res, err := w.server().get(ctx, s.q.info.Path, query, s.q.form.accept, true)
	if err != nil {
		return version, err
	}
	if res.StatusCode != http.StatusOK {
		return version, refusal(statusOf(res))
	}
	defer func() { _ = res.Body.Close() }()
	s.send(ctx, arrival{name: s.name, worker: w}) // It answers, and may be silent for long.
	return s.follow(ctx, w, version, json.NewDecoder(res.Body))
}

// connect gets the connection in time.
func (s *streamer) connect(ctx context.Context) (*worker, error) {
	ctx, cancel := context.WithTimeout(ctx, s.gateway.workers.timeout)
	defer cancel()
	return s.gateway.workers.get(ctx, s.name)
}

// list sends all objects of the worker that may be shown.
func (s *streamer) list(ctx context.Context, w *worker) (version string, err error) {
	query, _ := s.q.workerQuery(ctx, w)
	a := arrival{name: s.name, worker: w, all: true}
	for next := ""; ; {
		found, err := s.gateway.found(ctx, s.q, w, query, next)
		if err != nil {
			return "", err
		}
		for _, item := range found.items {
			s.q.complete(item)
			item.head = found.head
			a.items = append(a.items, item)
		}
		if next = found.next; next == "" {
			a.version = found.version
			s.send(ctx, a)
			return found.version, nil
		}
	}
}

// follow sends the events of a watch.
func (s *streamer) follow(ctx context.Context, w *worker, version string, events *json.Decoder) (string, error) {
	for {
		var e watchEvent
		switch err := events.Decode(&e); {
		case errors.Is(err, io.EOF):
			return version, nil
		case err != nil:
			return version, err
		}
		if e.Type == eventError {
			status := &metav1.Status{}
			if json.Unmarshal(e.Object, status) == nil {
				return version, refusal(status)
			}
			return version, errors.New("the worker's watch has failed")
		}
		item, at, err := s.read(e.Object)
		if err != nil {
			return version, err
		}
		if version = at; e.Type == eventBookmark {
			s.send(ctx, arrival{name: s.name, worker: w, version: version})
			continue
		}
		if err := s.q.kind.learn(ctx, w, item.meta.Namespace, []shown{item}); err != nil {
			return version, err
		}
		s.send(ctx, arrival{name: s.name, worker: w, event: watchEvent{Type: e.Type}, item: item, version: version})
	}
}

// read reads the object of an event: of a table, its only row.
func (s *streamer) read(raw json.RawMessage) (item shown, version string, err error) {
	if !s.q.form.table {
		item.object = &object{}
		err = json.Unmarshal(raw, item.object)
		return item, item.metaVersion(), err
	}
	p, err := parsePage(raw)
	if err != nil {
		return item, "", err
	}
	if len(p.items) != 1 {
		return shown{object: &object{}}, p.version, nil
	}
	item = p.items[0]
	item.head = p.head
	return item, item.metaVersion(), nil
}

func (s shown) metaVersion() string { return s.meta.ResourceVersion }

// keyIn is the key of an object in a watch.
type keyIn struct {
	worker v1alpha1.ClusterName
	types.NamespacedName
}
