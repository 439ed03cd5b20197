// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fieldselector "k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// events are the Events about copies, and about their JobSets, Jobs and pods. group is the API group in which the caller
// asks: the same Events have other fields in each.
type events struct {
	copies *copies
	group  string
}

// about is what an Event is about.
type about struct {
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
}

// about returns the name of the field that says what an Event is about.
func (e events) about() string {
	if e.group == groupEvents {
		return "regarding"
	}
	return "involvedObject"
}

// include asks for whole Events: their metadata does not say what they are about.
func (events) include(metav1.IncludeObjectPolicy) metav1.IncludeObjectPolicy {
	return metav1.IncludeObject
}

func (e events) query(ctx context.Context, w *worker, asked *wanted) (url.Values, bool) {
	selector, ok := asked.atWorker(w.name)
	query := url.Values{}
	if selector != "" {
		query.Set("labelSelector", selector)
	}
	if fields := e.fieldsAt(ctx, w, asked); fields != "" {
		query.Set("fieldSelector", fields)
	}
	return query, ok
}

// fieldsAt is the field selector for a worker, where the copy of a job has another UID than the job.
func (e events) fieldsAt(ctx context.Context, w *worker, asked *wanted) string {
	uid, byUID := asked.fields.RequiresExactMatch(e.about() + ".uid")
	name, named := asked.fields.RequiresExactMatch(e.about() + ".name")
	if !byUID || !named {
		return asked.fields.String()
	}
	d := dispatchIn(ctx, e.copies.hub, types.NamespacedName{Namespace: asked.namespace, Name: name})
	if d == nil || d.Spec.TrainJob.UID != types.UID(uid) || d.Spec.Cluster != w.name {
		return asked.fields.String()
	}
	of, err := e.copies.ofDispatch(ctx, w, d)
	if err != nil || of == "" {
		return asked.fields.String() // Nothing there has this UID.
	}
	changed, err := asked.fields.Transform(func(field, value string) (string, string, error) {
		if field == e.about()+".uid" {
			value = string(of)
		}
		return field, value, nil
	})
	if err != nil {
		return asked.fields.String()
	}
	return changed.String()
}

// of finds the copy by the UID of what the Event is about. learn has read which UIDs are whose.
func (e events) of(w *worker, o *object) (belonging, bool) {
	a, _ := e.aboutOf(o)
	set, known := e.copies.parts.Get(ownerKey{clusterID: w.clusterID, jobSet: a.UID})
	if !known {
		return belonging{}, false
	}
	return e.copies.belongs(w, set.(jobSet))
}

func (e events) aboutOf(o *object) (a about, ok bool) {
	raw := o.fields[e.about()]
	return a, raw != nil && json.Unmarshal(raw, &a) == nil && a.UID != ""
}

// learn reads which JobSets the objects have that Events are about.
func (e events) learn(ctx context.Context, w *worker, namespace string, found []shown) error {
	unknown := map[about]bool{}
	for _, o := range found {
		a, ok := e.aboutOf(o.object)
		if ok && !e.copies.has(ownerKey{clusterID: w.clusterID, jobSet: a.UID}) && e.mayShow(ctx, w, a) {
			unknown[a] = true
		}
	}
	sets, err := e.copies.learnParts(ctx, w, namespace, unknown)
	if err != nil {
		return err
	}
	return e.copies.learn(ctx, w, namespace, sets)
}

// mayShow says whether the hub has placed a job on the worker to which an object of this name may belong.
func (e events) mayShow(ctx context.Context, w *worker, a about) bool {
	switch a.Kind {
	case kindPod, kindJob, kindJobSet, trainer.TrainJobKind:
	default:
		return false
	}
	for _, d := range e.copies.byPod(ctx, a.Namespace, a.Name) {
		if d.Spec.Cluster == w.name {
			return true
		}
	}
	return false
}

const kindPod, kindJob, kindJobSet = "Pod", "Job", "JobSet"

// partKinds are the kinds that a JobSet makes, with the label that says of which JobSet they are.
var partKinds = map[string]schema.GroupVersionResource{
	kindPod: corev1.SchemeGroupVersion.WithResource(resourcePods),
	kindJob: batchv1.SchemeGroupVersion.WithResource("jobs"),
}

// edit gives an Event about the copy the UID of the hub's job.
func (e events) edit(d *v1alpha1.Dispatch, o *object) error {
	if a, _ := e.aboutOf(o); a.Kind != trainer.TrainJobKind {
		return nil
	}
	return o.fields.edit(e.about(), func(inner fields) error { return inner.set("uid", d.Spec.TrainJob.UID) })
}

// fill gives an Event of core/v1 the times and the count that newer writers of Events leave out and older readers need:
// the Kubeflow SDK drops Events without a first time. Writers who say no eventTime have filled in the others.
func (e events) fill(o *object) (bool, error) {
	first := o.fields["eventTime"]
	if e.group == groupEvents || empty(first) {
		return false, nil
	}
	series := struct {
		Count int32           `json:"count"`
		Last  json.RawMessage `json:"lastObservedTime"`
	}{Count: 1, Last: first}
	if raw := o.fields["series"]; !empty(raw) {
		if err := json.Unmarshal(raw, &series); err != nil {
			return false, fmt.Errorf("decode series: %w", err)
		}
	}
	for name, value := range map[string]json.RawMessage{"firstTimestamp": first, "lastTimestamp": series.Last} {
		if empty(o.fields[name]) {
			o.fields[name] = inSeconds(value)
		}
	}
	if raw := o.fields["count"]; empty(raw) || string(raw) == "0" {
		return true, o.fields.set("count", series.Count)
	}
	return true, nil
}

func empty(raw json.RawMessage) bool { return len(raw) == 0 || bytes.Equal(raw, []byte("null")) }

// inSeconds makes a time with seconds out of one with microseconds.
func inSeconds(raw json.RawMessage) json.RawMessage {
	var precise metav1.MicroTime
	if precise.UnmarshalJSON(raw) != nil {
		return raw
	}
	seconds, err := metav1.NewTime(precise.Time).MarshalJSON()
	if err != nil {
		return raw
	}
	return seconds
}

var _, _ kind = pods{}, events{}

// named is the field selector for one object.
func named(name string) string {
	return fieldselector.OneTermEqualSelector(metav1.ObjectNameField, name).String()
}
