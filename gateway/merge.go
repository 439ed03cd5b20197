// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

const (
	// streamFor is how long a watch of a worker lasts before it begins again.
	streamFor = 5 * time.Minute
	// maxEarly bounds how much of fast workers is kept until slow ones answer.
	maxEarly = 64
)

// merged is a watch of the hub and of workers. One goroutine has all its state.
type merged struct {
	gateway *Gateway
	q       *question
	out     *eventWriter
	arrive  chan arrival
	// streams are the streams of workers, by worker.
	streams map[v1alpha1.ClusterName]context.CancelFunc
	at      versions
	// ordered is true when the versions of the hub's events rise: after the first objects.
	ordered bool
	// shown are the objects of workers that the client has. hidden are those of copies that the hub's cache does not
	// know yet, or that are not of the present attempt.
	shown  map[keyIn]sight
	hidden map[keyIn]hiding
	// ofJob has the keys in shown and hidden by job, and keys that were there once.
	ofJob map[types.NamespacedName]map[keyIn]bool
	// initial are the workers whose first objects have not come, of a client that waits for the bookmark after them.
	initial map[v1alpha1.ClusterName]bool
	// held is the hub's bookmark after its first objects, until all others have come.
	held *object
	late clock.Timer
	// resumed are workers whose stream began at a version: what the client has of them is not known.
	resumed map[v1alpha1.ClusterName]bool
}

// run works until the hub ends its watch, or the client goes.
func (m *merged) run(ctx context.Context, hub *json.Decoder) {
	changes := make(chan types.NamespacedName, 1024)
	overflow := make(chan struct{}, 1)
	cancel := m.gateway.places.subscribe(func(key types.NamespacedName) {
		if m.q.asked.namespace != "" && key.Namespace != m.q.asked.namespace {
			return
		}
		select {
		case changes <- key:
		default:
			select {
			case overflow <- struct{}{}:
			default:
			}
		}
	})
	defer cancel()
	m.startStreams(ctx)
	for name := range m.streams {
		m.initial[name] = true
	}
	if !m.ordered {
		m.at[ofHub] = unknown
	}
	early := m.await(ctx)
	err := m.out.begin()
	for _, a := range early {
		if err == nil {
			err = m.take(ctx, a)
		}
	}
	go readHub(ctx, hub, m.arrive)
	for err == nil {
		select {
		case <-ctx.Done():
			return
		case a := <-m.arrive:
			err = m.take(ctx, a)
		case key := <-changes:
			err = m.reconsider(ctx, key)
			m.startStreams(ctx)
		case <-overflow:
			for key := range m.ofJob {
				if err == nil {
					err = m.reconsider(ctx, key)
				}
			}
			m.startStreams(ctx)
		case <-m.late.C():
			clear(m.initial)
			err = m.release()
		}
		if err == nil && len(m.arrive) == 0 {
			err = m.out.flush()
		}
	}
	if !errors.Is(err, io.EOF) {
		panic(http.ErrAbortHandler)
	}
	_ = m.out.flush() // The client may have gone.
}

// await waits until each worker has answered, or for as long as a worker may take, and returns what has come meanwhile.
// The header of the answer is the only place for a warning about a worker. The hub's events wait in its connection.
func (m *merged) await(ctx context.Context) (early []arrival) {
	missing := maps.Clone(m.initial)
	for len(missing) > 0 && len(early) < maxEarly {
		select {
		case <-ctx.Done():
			return early
		case a := <-m.arrive:
			early = append(early, a)
			if missing[a.name] && a.words != "" {
				warn(m.out.w, a.words)
			}
			delete(missing, a.name)
		case <-m.late.C():
			for _, name := range slices.Sorted(maps.Keys(missing)) {
				warn(m.out.w, m.gateway.workers.late(ctx, name).Error())
			}
			clear(m.initial)
			return early
		}
	}
	return early
}

// startStreams starts a stream for each worker that has something to show, and ends those of workers that no longer have.
func (m *merged) startStreams(ctx context.Context) {
	targets := m.gateway.targets(m.q)
	for _, name := range targets {
		if m.streams[name] != nil {
			continue
		}
		ctx, cancel := context.WithCancel(ctx)
		m.streams[name] = cancel
		version := m.at[name]
		m.resumed[name] = version != ""
		go (&streamer{gateway: m.gateway, q: m.q, name: name, to: m.arrive}).run(ctx, version)
	}
	for name, cancel := range m.streams {
		if !slices.Contains(targets, name) && !m.has(name) {
			cancel()
			delete(m.streams, name)
			delete(m.at, name)
		}
	}
}

// has says whether the client has objects of a worker.
func (m *merged) has(name v1alpha1.ClusterName) bool {
	for key := range m.shown {
		if key.worker == name {
			return true
		}
	}
	return false
}

// take handles what a stream brings.
func (m *merged) take(ctx context.Context, a arrival) error {
	if a.name == ofHub {
		return m.takeHub(a)
	}
	if m.streams[a.name] == nil {
		return nil // The stream has ended meanwhile.
	}
	var err error
	if a.all {
		m.at[a.name] = unknown // A client that goes now has a part of them.
		err = m.takeAll(ctx, a)
		delete(m.at, a.name) // A worker without a version has nothing that the client asks for.
	}
	if a.version != "" {
		m.at[a.name] = a.version
	}
	if a.event.Type != "" {
		err = m.takeObject(ctx, a)
	}
	if err == nil && (a.all || a.words != "" || m.resumed[a.name]) {
		delete(m.initial, a.name)
		err = m.release()
	}
	return err
}

// takeHub passes events of the hub on. They keep their resource versions, so that objects of the hub can be written.
func (m *merged) takeHub(a arrival) error {
	if a.err != nil {
		return a.err
	}
	if a.event.Type == eventBookmark {
		return m.takeBookmark(a.event)
	}
	var o object
	if err := json.Unmarshal(a.event.Object, &o); err != nil {
		return err
	}
	if m.ordered {
		m.at[ofHub] = cmp.Or(o.meta.ResourceVersion, m.at[ofHub])
	}
	filled, err := m.q.kind.fill(&o)
	if err != nil {
		return err
	}
	if filled {
		a.event.Object = o.fields.raw()
	}
	return m.out.write(a.event)
}

// takeBookmark passes a bookmark on, with how far all streams are.
func (m *merged) takeBookmark(e watchEvent) error {
	var o object
	if err := json.Unmarshal(e.Object, &o); err != nil {
		return err
	}
	m.at[ofHub], m.ordered = o.meta.ResourceVersion, true
	var annotations struct {
		Annotations map[string]string `json:"annotations"`
	}
	if err := json.Unmarshal(o.fields["metadata"], &annotations); err != nil {
		return err
	}
	if annotations.Annotations[metav1.InitialEventsAnnotationKey] == "true" {
		m.held = &o
		return m.release()
	}
	return m.bookmark(&o)
}

func (m *merged) bookmark(o *object) error {
	if err := o.fields.setVersion(m.at.String()); err != nil {
		return err
	}
	return m.out.write(watchEvent{Type: eventBookmark, Object: o.fields.raw()})
}

// release sends the bookmark that ends the first objects, once all streams have had theirs.
func (m *merged) release() error {
	if m.held == nil || len(m.initial) > 0 {
		return nil
	}
	o := m.held
	m.held = nil
	return m.bookmark(o)
}

// takeAll compares what a worker has with what the client has.
func (m *merged) takeAll(ctx context.Context, a arrival) error {
	m.resumed[a.name] = false
	there := map[keyIn]bool{}
	for _, item := range a.items {
		there[keyOf(a.name, item)] = true
		one := arrival{name: a.name, worker: a.worker, item: item, event: watchEvent{Type: eventAdded}}
		if err := m.takeObject(ctx, one); err != nil {
			return err
		}
	}
	for key := range m.shown {
		if key.worker == a.name && !there[key] {
			if err := m.hide(key); err != nil {
				return err
			}
		}
	}
	maps.DeleteFunc(m.hidden, func(key keyIn, _ hiding) bool { return key.worker == a.name && !there[key] })
	return nil
}
