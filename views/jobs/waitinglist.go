// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/views/output"
)

// Place is a job that waits.
type Place struct {
	*v1alpha1.Dispatch
	// Created is when its TrainJob was created, or its Dispatch if that is not known.
	Created metav1.Time
	// Position is the position in the waiting list, from 1. 0: the job does not wait for room.
	Position int
}

// WaitingList has the waiting jobs in order. At the end are the jobs that do not wait for room.
type WaitingList []Place

// NewWaitingList sorts the Dispatches of waiting jobs. created returns when a TrainJob was created, if that is known.
func NewWaitingList(dispatches iter.Seq[*v1alpha1.Dispatch], created func(types.UID) (metav1.Time, bool)) WaitingList {
	var list WaitingList
	for d := range dispatches {
		if !Waits(d) {
			continue
		}
		place := Place{Dispatch: d, Created: d.CreationTimestamp}
		if at, known := created(d.Spec.TrainJob.UID); known {
			place.Created = at
		}
		list = append(list, place)
	}
	slices.SortFunc(list, before)
	for i := range list {
		if isForRoom(list[i].Dispatch) {
			list[i].Position = i + 1
		}
	}
	return list
}

// before is the manager's order. Jobs that do not wait for room come last.
func before(a, b Place) int {
	return cmp.Or(
		compareBool(isForRoom(b.Dispatch), isForRoom(a.Dispatch)),
		cmp.Compare(b.Spec.Priority, a.Spec.Priority),
		a.Created.Compare(b.Created.Time),
		cmp.Compare(a.Spec.TrainJob.UID, b.Spec.TrainJob.UID))
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// Waits is true for the Dispatch of a job that is to be placed. Suspended jobs and jobs of MultiKueue do not wait. Jobs
// that Kueue has to admit are in the list, at its end: the hub may lack what their Workload names.
func Waits(d *v1alpha1.Dispatch) bool {
	return v1alpha1.ReasonKindOf(Reason(d)).IsListed() && record.StateOf(d) == record.Waiting
}

// Reason returns why a job is placed or waits, or "" if nothing is reported yet.
func Reason(d *v1alpha1.Dispatch) string {
	if placed := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchPlaced); placed != nil {
		return placed.Reason
	}
	return ""
}

// Message returns the message that belongs to Reason.
func Message(d *v1alpha1.Dispatch) string {
	if placed := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchPlaced); placed != nil {
		return placed.Message
	}
	return ""
}

// isForRoom says whether a job waits for room, and so has a position.
func isForRoom(d *v1alpha1.Dispatch) bool { return v1alpha1.ReasonKindOf(Reason(d)).IsForRoom() }

// Each returns the Dispatches of a list.
func Each(dispatches []v1alpha1.Dispatch) iter.Seq[*v1alpha1.Dispatch] {
	return func(yield func(*v1alpha1.Dispatch) bool) {
		for i := range dispatches {
			if !yield(&dispatches[i]) {
				return
			}
		}
	}
}

// Of returns the places of one namespace.
func (l WaitingList) Of(namespace string) WaitingList {
	return slices.DeleteFunc(slices.Clone(l), func(p Place) bool { return p.Namespace != namespace })
}

// Find returns the place of a job, or nil, and how many jobs have positions.
func (l WaitingList) Find(uid types.UID) (place *Place, length int) {
	for i := range l {
		if l[i].Position > 0 {
			length++
		}
		if l[i].Spec.TrainJob.UID == uid {
			place = &l[i]
		}
	}
	return place, length
}

// Before counts the jobs before a new job of this priority. It does not count the job itself.
func (l WaitingList) Before(self types.NamespacedName, priority int32) (count int) {
	for _, place := range l {
		isSelf := place.Namespace == self.Namespace && place.Name == self.Name
		if !isSelf && place.Position > 0 && place.Spec.Priority >= priority {
			count++
		}
	}
	return count
}

// TableOptions say what a table of waiting jobs shows.
type TableOptions struct {
	Namespaces bool
	// Positions says whether positions are known, because all namespaces could be read.
	Positions bool
	// Policy returns the policy of a place. It is nil if policies are not shown.
	Policy func(Place) string
	Now    time.Time
}

// Table returns a table of waiting jobs.
func (l WaitingList) Table(o TableOptions) *metav1.Table {
	columns := []output.Column{{Name: "Position"}}
	if o.Namespaces {
		columns = append(columns, output.Column{Name: "Namespace"})
	}
	columns = append(columns, output.Column{Name: "Name"}, output.Column{Name: "Priority"}, output.Column{Name: "Waiting-For"},
		output.Column{Name: "Needs"}, output.Column{Name: "Age"}, output.Column{Name: "Policy", Wide: true}, output.Column{Name: "Message", Wide: true})
	table := output.NewTable(columns...)
	for _, place := range l {
		cells := []any{position(place, o.Positions)}
		if o.Namespaces {
			cells = append(cells, place.Namespace)
		}
		policy := output.Unknown
		if o.Policy != nil {
			policy = o.Policy(place)
		}
		output.Add(table, append(cells, place.Name, place.Spec.Priority, output.Or(Reason(place.Dispatch), output.Unknown),
			Needs(place.Spec.PodSets), output.Age(place.Created, o.Now), policy, Message(place.Dispatch))...)
	}
	return table
}

func position(place Place, known bool) any {
	switch {
	case place.Position == 0:
		return "-"
	case !known:
		return output.Unknown
	}
	return place.Position
}
