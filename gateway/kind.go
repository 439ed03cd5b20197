// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"net/url"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fieldselector "k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// kind is what pods and Events do not have in common.
type kind interface {
	// include returns how whole the objects of tables have to be, for a caller who asks for a policy.
	include(policy metav1.IncludeObjectPolicy) metav1.IncludeObjectPolicy
	// query returns with which query a worker is asked. ok is false if the worker has nothing that the caller asks for.
	query(ctx context.Context, w *worker, asked *wanted) (query url.Values, ok bool)
	// learn reads from the worker what of needs to know of objects of one namespace, or of all if it is empty.
	learn(ctx context.Context, w *worker, namespace string, objects []shown) error
	// of returns to which copy an object belongs. ok is false if it belongs to no copy of this hub's.
	of(w *worker, o *object) (b belonging, ok bool)
	// edit changes an object that belongs to the job of a Dispatch so that it looks as if it were one of the hub.
	edit(d *v1alpha1.Dispatch, o *object) error
	// fill gives an object, also one of the hub, what clients read and its writer has left out. It returns whether it has.
	fill(o *object) (bool, error)
}

// wanted is which objects a caller asks for.
type wanted struct {
	namespace string
	labels    labels.Requirements
	fields    fieldselector.Selector
	// name is that of the only pod, or of what Events are about, and job that of the only job, if the caller asks for one.
	name, job string
	// archived is true if the caller asks for pods whose logs are kept.
	archived bool
}

// matches says whether the caller asks for an object. Of its fields, only the names can be asked for.
func (s *wanted) matches(object *metav1.ObjectMeta) bool {
	for _, requirement := range s.labels {
		if !requirement.Matches(labels.Set(object.Labels)) {
			return false
		}
	}
	return s.fields.Matches(fieldselector.Set{"metadata.name": object.Name, "metadata.namespace": object.Namespace})
}

// wantedOf reads the selectors of a request. The error is about one that the hub refuses too.
func wantedOf(info *apirequest.RequestInfo, query url.Values) (*wanted, error) {
	s := &wanted{namespace: info.Namespace}
	selector, err := labels.Parse(query.Get("labelSelector"))
	if err != nil {
		return nil, err
	}
	s.labels, _ = selector.Requirements()
	if s.fields, err = fieldselector.ParseSelector(query.Get("fieldSelector")); err != nil {
		return nil, err
	}
	if info.Resource == resourcePods {
		s.name = info.Name
	} else {
		s.name, _ = s.fields.RequiresExactMatch(events{group: info.APIGroup}.about() + ".name")
	}
	for _, requirement := range s.labels {
		if requirement.Key() == v1alpha1.LabelLogArchived && info.Resource == resourcePods {
			s.archived = requirement.Matches(labels.Set{v1alpha1.LabelLogArchived: "true"}) && !requirement.Matches(labels.Set{})
		}
		if requirement.Key() != jobsetv1alpha2.JobSetNameKey || requirement.Values().Len() != 1 {
			continue
		}
		if op := requirement.Operator(); op == selection.Equals || op == selection.DoubleEquals || op == selection.In {
			s.job, _ = requirement.Values().PopAny()
		}
	}
	return s, nil
}

// atWorker returns the label selector for a worker. The worker does not know v1alpha1.LabelCluster, so the requirements
// on it are checked here. ok is false if they leave the worker out.
func (s *wanted) atWorker(name v1alpha1.ClusterName, more ...labels.Requirement) (selector string, ok bool) {
	all := labels.NewSelector()
	for _, requirement := range s.labels {
		if requirement.Key() != v1alpha1.LabelCluster {
			all = all.Add(requirement)
		} else if !requirement.Matches(labels.Set{v1alpha1.LabelCluster: string(name)}) {
			return "", false
		}
	}
	return all.Add(more...).String(), true
}

// pods are the pods of copies.
type pods struct{ copies *copies }

// include asks for the labels: they say whose a pod is.
func (pods) include(policy metav1.IncludeObjectPolicy) metav1.IncludeObjectPolicy {
	if policy == metav1.IncludeNone {
		return metav1.IncludeMetadata
	}
	return policy
}

var ofJobSet = func() labels.Requirement {
	r, err := labels.NewRequirement(jobsetv1alpha2.JobSetUIDKey, selection.Exists, nil)
	if err != nil {
		panic(err) // It is a constant.
	}
	return *r
}()

func (p pods) query(_ context.Context, w *worker, asked *wanted) (url.Values, bool) {
	selector, ok := asked.atWorker(w.name, ofJobSet)
	query := url.Values{"labelSelector": {selector}}
	if !asked.fields.Empty() {
		query.Set("fieldSelector", asked.fields.String())
	}
	return query, ok
}

func (p pods) learn(ctx context.Context, w *worker, namespace string, objects []shown) error {
	sets := map[jobSet]bool{}
	for _, o := range objects {
		if set, ok := jobSetOf(o.meta.Namespace, o.meta.Labels); ok && p.copies.mayShow(ctx, w.name, set) {
			sets[set] = true
		}
	}
	return p.copies.learn(ctx, w, namespace, sets)
}

func (p pods) of(w *worker, o *object) (belonging, bool) {
	set, ok := jobSetOf(o.meta.Namespace, o.meta.Labels)
	if !ok {
		return belonging{}, false
	}
	return p.copies.belongs(w, set)
}

func (pods) edit(*v1alpha1.Dispatch, *object) error { return nil }

func (pods) fill(*object) (bool, error) { return false, nil }
