// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package hubcache

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
)

var dispatchShapes shapes[v1alpha1.Dispatch]

// finishedDispatch is a packed Dispatch.
type finishedDispatch struct {
	identity
	// shape has all that is not in the other fields: where the job ran, and how it ended.
	shape *v1alpha1.Dispatch
	// trainJob is the UID of the TrainJob, and copy that of the last copy.
	trainJob, copy uid
	// finished is when the Dispatch became Finished, in seconds since 1970.
	finished int64
	// earlier are the attempts before the last one, nil for most jobs.
	earlier *[]v1alpha1.Attempt
}

// packDispatch returns nil for a Dispatch that has to stay as it is: one that has not finished, or is being deleted.
func packDispatch(d *v1alpha1.Dispatch) *finishedDispatch {
	if record.StateOf(d) != record.Finished {
		return nil
	}
	p := &finishedDispatch{}
	known := [3]bool{}
	p.identity, known[0] = identityOf(d)
	p.trainJob, known[1] = parseUID(d.Spec.TrainJob.UID)
	p.copy, known[2] = parseUID(d.Status.CopyUID)
	if known != [3]bool{true, true, true} {
		return nil
	}
	p.finished = meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchFinished).LastTransitionTime.Unix()
	if last := len(d.Status.History) - 1; last > 0 {
		p.earlier = earlierOf(d.Status.History[:last])
	}
	if p.shape = dispatchShapes.of(shapeOfDispatch(d)); p.shape == nil {
		return nil
	}
	return p
}

// earlierOf keeps which attempts there were, where, and how they ended.
func earlierOf(history []v1alpha1.Attempt) *[]v1alpha1.Attempt {
	earlier := make([]v1alpha1.Attempt, len(history))
	for i := range history {
		past := &history[i]
		earlier[i] = v1alpha1.Attempt{Attempt: past.Attempt, Cluster: past.Cluster, To: past.To, Outcome: past.Outcome, Message: past.Message}
		share(&earlier[i].Cluster)
		share(&earlier[i].Message)
	}
	return &earlier
}

// shapeOfDispatch returns a new Dispatch without what other fields of a finishedDispatch have.
func shapeOfDispatch(d *v1alpha1.Dispatch) *v1alpha1.Dispatch {
	shape := &v1alpha1.Dispatch{
		ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Labels: d.Labels, Finalizers: d.Finalizers, OwnerReferences: slices.Clone(d.OwnerReferences)},
		Spec: v1alpha1.DispatchSpec{
			Cluster: d.Spec.Cluster, ClusterID: d.Spec.ClusterID, Attempt: d.Spec.Attempt, Priority: d.Spec.Priority, Failover: d.Spec.Failover,
		},
		Status: v1alpha1.DispatchStatus{
			Phase: d.Status.Phase, Reason: d.Status.Reason, Cluster: d.Status.Cluster, Attempt: d.Status.Attempt,
			Conditions: slices.Clone(d.Status.Conditions),
		},
	}
	for i := range shape.OwnerReferences {
		owner := &shape.OwnerReferences[i]
		drop(&owner.Name, d.Name)
		drop(&owner.UID, d.Spec.TrainJob.UID)
	}
	for i := range shape.Status.Conditions {
		shape.Status.Conditions[i].LastTransitionTime, shape.Status.Conditions[i].ObservedGeneration = metav1.Time{}, 0
	}
	if last := len(d.Status.History) - 1; last >= 0 {
		end := &d.Status.History[last]
		shape.Status.History = []v1alpha1.Attempt{{Attempt: end.Attempt, Cluster: end.Cluster, Outcome: end.Outcome, Message: end.Message}}
	}
	return shape
}

// unpack implements packed. The times of conditions other than Finished are lost.
func (p *finishedDispatch) unpack() client.Object {
	d := *p.shape // Its lists are replaced where they change.
	d.Name, d.UID, d.ResourceVersion, d.CreationTimestamp = p.name, p.uid.of(), p.resourceVersion(), timeOf(p.created)
	d.Spec.TrainJob = v1alpha1.TrainJobReference{Name: p.name, UID: p.trainJob.of()}
	d.Status.CopyUID = p.copy.of()
	d.OwnerReferences = slices.Clone(p.shape.OwnerReferences)
	for i := range d.OwnerReferences {
		owner := &d.OwnerReferences[i]
		fill(&owner.Name, d.Name)
		fill(&owner.UID, d.Spec.TrainJob.UID)
	}
	d.Status.Conditions = slices.Clone(p.shape.Status.Conditions)
	meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchFinished).LastTransitionTime = timeOf(p.finished)
	if len(p.shape.Status.History) > 0 {
		end := p.shape.Status.History[0]
		end.To = timeOf(p.finished)
		d.Status.History = nil
		if p.earlier != nil {
			d.Status.History = slices.Clone(*p.earlier)
		}
		d.Status.History = append(d.Status.History, end)
	}
	return &d
}

// GetObjectMeta implements metav1.ObjectMetaAccessor.
func (p *finishedDispatch) GetObjectMeta() metav1.Object { return p.meta(p.shape.Namespace) }

// drop empties a field that has this value, and fill puts the value back.
func drop[T comparable](field *T, value T) {
	var empty T
	if *field == value {
		*field = empty
	}
}

func fill[T comparable](field *T, value T) {
	var empty T
	if *field == empty {
		*field = value
	}
}

// GetObjectKind and DeepCopyObject make it a runtime.Object, which some informers ask for.
func (p *finishedDispatch) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object. Nobody changes a packed object.
func (p *finishedDispatch) DeepCopyObject() runtime.Object { return p }
