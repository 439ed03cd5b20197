// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

func at(name, class string, second int) place {
	return place{
		key: types.NamespacedName{Namespace: "default", Name: name}, uid: types.UID("uid-" + name), class: class,
		created: time.Unix(int64(second), 0),
	}
}

func names(keys []types.NamespacedName) []string {
	var list []string
	for _, key := range keys {
		list = append(list, key.Name)
	}
	return list
}

func TestLine(t *testing.T) {
	var l line
	for _, p := range []place{at("third", "big", 3), at("first", "small", 1), at("fourth", "small", 4), at("second", "big", 2)} {
		l.stand(p)
	}
	if diff := cmp.Diff([]string{"first", "second"}, names(l.heads())); diff != "" {
		t.Errorf("the first of each class, the oldest first (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"first", "second", "third", "fourth"}, names(l.all())); diff != "" {
		t.Errorf("all, the oldest first (-want +got):\n%s", diff)
	}
	third := at("third", "", 0).key
	if l.behind(third) {
		t.Error("a job is not behind an older one that is still being decided on")
	}
	l.wait(at("second", "", 0).key)
	l.wait(third)
	if !l.behind(third) || l.behind(at("second", "", 0).key) || l.behind(at("first", "", 0).key) {
		t.Error("a job is behind an older one of its class that has been told to wait, and not behind itself or others")
	}
	if _, ok := l.leave(at("fourth", "", 0).key); ok {
		t.Error("a job that was not the first of its class wakes nobody when it leaves")
	}
	next, ok := l.leave(at("second", "", 0).key)
	if !ok || next.Name != "third" {
		t.Errorf("leave() = %v, %v; the second of a class is woken when the first leaves", next, ok)
	}
	l.stand(at("fifth", "small", 5))
	next, ok = l.stand(at("first", "big", 1))
	if !ok || next.Name != "fifth" {
		t.Errorf("stand() = %v, %v; the second of a class is woken when the first moves to another", next, ok)
	}
	l.leave(at("fifth", "", 0).key)
	if diff := cmp.Diff([]string{"first"}, names(l.heads())); diff != "" {
		t.Errorf("a job stands in one class only, and where its age puts it (-want +got):\n%s", diff)
	}
	l.leave(at("first", "", 0).key)
	l.leave(at("third", "", 0).key)
	if len(l.classes) != 0 || len(l.places) != 0 {
		t.Errorf("an empty line keeps nothing, and keeps %v, %v", l.classes, l.places)
	}
}
