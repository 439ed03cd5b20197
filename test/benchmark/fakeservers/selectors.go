// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package fakeservers

import (
	"fmt"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// selection is what a list or watch is about.
type selection struct {
	kind      *kind
	namespace string // Empty: all.
	labels    labels.Selector
	fields    fields.Selector
}

// podFields are fields by which pods can be selected besides name and namespace.
var podFields = map[string][]string{
	"spec.nodeName": {"spec", "nodeName"}, "spec.schedulerName": {"spec", "schedulerName"}, "status.phase": {"status", "phase"},
}

func newSelection(k *kind, namespace string, query url.Values) (selection, error) {
	s := selection{kind: k, namespace: namespace}
	var err error
	if s.labels, err = labels.Parse(query.Get("labelSelector")); err != nil {
		return s, apierrors.NewBadRequest(err.Error())
	}
	if s.fields, err = fields.ParseSelector(query.Get("fieldSelector")); err != nil {
		return s, apierrors.NewBadRequest(err.Error())
	}
	for _, requirement := range s.fields.Requirements() {
		switch _, ofPods := podFields[requirement.Field]; {
		case requirement.Field == "metadata.name", requirement.Field == "metadata.namespace" && k.namespaced, ofPods && k.Kind == "Pod":
		default:
			return s, apierrors.NewBadRequest(fmt.Sprintf("field label not supported: %s", requirement.Field))
		}
	}
	return s, nil
}

func (s selection) matches(o *object) bool {
	switch {
	case o == nil, s.namespace != "" && o.key.Namespace != s.namespace, !s.labels.Matches(labels.Set(o.meta.GetLabels())):
		return false
	case s.fields.Empty():
		return true
	}
	values := fields.Set{"metadata.name": o.key.Name, "metadata.namespace": o.key.Namespace}
	if o.kind.Kind == "Pod" {
		for field, path := range podFields {
			values[field], _, _ = unstructured.NestedString(o.content(), path...)
		}
	}
	return s.fields.Matches(values)
}
