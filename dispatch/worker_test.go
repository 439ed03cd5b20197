// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"reflect"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// unset returns the fields of a struct that have their zero value, without some.
func unset(value any, without ...string) []string {
	var names []string
	for v, i := reflect.ValueOf(value), 0; i < v.NumField(); i++ {
		if name := v.Type().Field(i).Name; v.Field(i).IsZero() && !slices.Contains(without, name) {
			names = append(names, name)
		}
	}
	return names
}

// TestWorkerOf: what the manager, the webhook and the plugin know of a worker is filled in by one function.
func TestWorkerOf(t *testing.T) {
	cluster := &v1alpha1.WorkerCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "east", Labels: map[string]string{"region": "eu"}},
		Spec: v1alpha1.WorkerClusterSpec{
			Drain: true, Kueue: v1alpha1.WorkerKueue{WorkerQueue: "team"},
			Price: v1alpha1.Prices{gpu: resource.MustParse("2")},
		},
		Status: v1alpha1.WorkerClusterStatus{
			Jobs: 3, KubernetesVersion: "v1.36.2", NodeGroups: []v1alpha1.NodeGroup{{Nodes: 1}},
		},
	}
	worker := WorkerOf(cluster, NewNodes(nil), Resources{gpu: 8})
	if missing := unset(worker, "NotReady", "Queued", "Revision"); len(missing) > 0 {
		t.Errorf("WorkerOf does not fill in %v: fill it in, or name it in this test if each caller counts it for itself", missing)
	}
}

// TestJobOf: what a job's object says is filled in by one function.
func TestJobOf(t *testing.T) {
	object := &metav1.ObjectMeta{
		UID: "uid", Name: "llm", Namespace: "team",
		Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"},
	}
	added := []string{"Priority", "WorkerQueue", "QueuedOnHub", "Nominated", "PodSets", "Admitted", "Previous", "Excluded"}
	if missing := unset(JobOf(object, map[string]string{"e": "f"}), added...); len(missing) > 0 {
		t.Errorf("JobOf does not fill in %v: fill it in, or name it in this test if it is not in the object", missing)
	}
}
