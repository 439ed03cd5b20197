// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// maxHidden bounds how many objects of a watch are kept that may be shown later.
const maxHidden = 1000

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
