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
	// maxHidden bounds how many objects of a watch are kept that may be shown later.
	maxHidden = 1000
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

// sight is what the client has of an object. gone is what it gets when the object is gone, without the resource version
// of that event.
type sight struct {
	belonging
	version string
	gone    shown
}

// hiding is an object that the client does not have.
type hiding struct {
	belonging
	arrival
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

// takeObject shows an object if it belongs to the present attempt of a job.
func (m *merged) takeObject(ctx context.Context, a arrival) error {
	key := keyOf(a.name, a.item)
	b, ours := m.q.kind.of(a.worker, a.item.object)
	had, has := m.shown[key]
	delete(m.hidden, key)
	switch {
	case a.event.Type == eventDeleted && has:
		return m.hide(key)
	case a.event.Type == eventDeleted && ours && m.resumed[a.name]: // The client may have it.
		gone, err := stub(a.item)
		if err != nil {
			return err
		}
		return m.delete(a.name, gone)
	case a.event.Type == eventDeleted, !ours, has && had.version == a.item.meta.ResourceVersion:
		return nil
	}
	if d := m.gateway.copies.shows(ctx, a.name, b); d != nil {
		return m.show(d, key, b, a)
	}
	if has {
		if err := m.hide(key); err != nil {
			return err
		}
	}
	if len(m.hidden) < maxHidden {
		m.hidden[key] = hiding{b, a}
		m.note(b.set.key(), key)
	}
	return nil
}

func (m *merged) show(d *v1alpha1.Dispatch, key keyIn, b belonging, a arrival) error {
	_, has := m.shown[key]
	now := sight{belonging: b, version: a.item.meta.ResourceVersion}
	if err := m.q.dress(d, a.item.object, m.at); err != nil {
		return err
	}
	_, err := m.q.kind.fill(a.item.object)
	if err != nil {
		return err
	}
	if now.gone, err = stub(a.item); err != nil {
		return err
	}
	e := watchEvent{Type: eventAdded}
	if has || m.resumed[a.name] && a.event.Type == eventModified {
		e.Type = eventModified
	}
	e.Object = a.item.alone(m.q.include)
	m.shown[key] = now
	m.note(b.set.key(), key)
	return m.out.write(e)
}

// hide tells the client that an object is gone.
func (m *merged) hide(key keyIn) error {
	had := m.shown[key]
	delete(m.shown, key)
	m.forget(had.set.key(), key)
	return m.delete(key.worker, had.gone)
}

// delete says that an object of a worker is gone. The event has the version of now: a watch can go on there.
func (m *merged) delete(name v1alpha1.ClusterName, gone shown) error {
	if err := gone.mark(name, m.at.String()); err != nil {
		return err
	}
	return m.out.write(watchEvent{Type: eventDeleted, Object: gone.alone(m.q.include)})
}

// reconsider looks again at the objects of a job after its Dispatch has changed.
func (m *merged) reconsider(ctx context.Context, job types.NamespacedName) error {
	var changes []func() error
	for key := range m.ofJob[job] {
		had, has := m.shown[key]
		one, hidden := m.hidden[key]
		switch {
		case !has && !hidden:
			m.forget(job, key)
		case has && m.gateway.copies.shows(ctx, key.worker, had.belonging) == nil:
			changes = append(changes, func() error { return m.hide(key) })
		case hidden:
			if d := m.gateway.copies.shows(ctx, key.worker, one.belonging); d != nil {
				delete(m.hidden, key)
				changes = append(changes, func() error { return m.show(d, key, one.belonging, one.arrival) })
			}
		}
	}
	return m.together(changes)
}

// together makes changes of which no stream has a version. A watch can go on after the last one only: the servers would
// not send the others again.
func (m *merged) together(changes []func() error) error {
	at := m.at
	defer func() { m.at = at }()
	for i, change := range changes {
		if m.at = at; i < len(changes)-1 {
			m.at = versions{ofHub: unknown}
		}
		if err := change(); err != nil {
			return err
		}
	}
	return nil
}

// note remembers to which job a key belongs.
func (m *merged) note(job types.NamespacedName, key keyIn) {
	if m.ofJob[job] == nil {
		m.ofJob[job] = map[keyIn]bool{}
	}
	m.ofJob[job][key] = true
}

func (m *merged) forget(job types.NamespacedName, key keyIn) {
	if delete(m.ofJob[job], key); len(m.ofJob[job]) == 0 {
		delete(m.ofJob, job)
	}
}

func keyOf(name v1alpha1.ClusterName, item shown) keyIn {
	return keyIn{worker: name, NamespacedName: types.NamespacedName{Namespace: item.meta.Namespace, Name: item.meta.Name}}
}
