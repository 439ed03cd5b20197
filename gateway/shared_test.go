// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// TestSharedIsNeverOld: who asks while an answer is under way shares the next one with all others who do.
func TestSharedIsNeverOld(t *testing.T) {
	s := newShared(time.Minute)
	fetches, proceed := make(chan int, 10), make(chan struct{})
	count := 0
	fetch := func(context.Context) (*chunk, error) {
		count++ // One fetch at a time: the race detector would say otherwise.
		number := count
		fetches <- number
		<-proceed
		return &chunk{version: strconv.Itoa(number)}, nil
	}
	first := s.join(t.Context(), "key", fetch)
	check.Equal(t, 1, <-fetches, "fetch that is under way")
	var later []*turn
	for range 5 {
		later = append(later, s.join(t.Context(), "key", fetch))
	}
	close(proceed)
	<-first.done
	check.Equal(t, "1", first.chunk.version, "first answer")
	for _, one := range later {
		<-one.done
		check.Equal(t, "2", one.chunk.version, "later answer")
	}
	next := s.join(t.Context(), "key", fetch)
	<-next.done
	check.Equal(t, "3", next.chunk.version, "answer to who asks when nothing is under way")
}

// TestSharedPanics: a panic over an answer is an error of those who wait for it, and of nobody else.
func TestSharedPanics(t *testing.T) {
	s := newShared(time.Minute)
	_, err := s.get(t.Context(), "key", func(context.Context) (*chunk, error) { panic("evil answer") })
	if err == nil || !strings.Contains(err.Error(), "evil answer") {
		t.Errorf("the error is %v", err)
	}
	_, err = s.get(t.Context(), "key", func(context.Context) (*chunk, error) { return nil, nil })
	check.Must(t, err)
}

// TestPlaces: the workers of a namespace follow its Dispatches, and watchers learn of each change.
func TestPlaces(t *testing.T) {
	p := newPlaces()
	var told []types.NamespacedName
	cancel := p.subscribe(func(key types.NamespacedName) { told = append(told, key) })
	d := func(namespace, name string, at v1alpha1.ClusterName) *v1alpha1.Dispatch {
		return &v1alpha1.Dispatch{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1alpha1.DispatchSpec{Cluster: at}}
	}
	p.changed(d("a", "one", ""), false)
	check.Diff(t, []v1alpha1.ClusterName(nil), p.of("a"), "workers of a job that waits")
	p.changed(d("a", "one", "east"), false)
	p.changed(d("a", "two", "east"), false)
	p.changed(d("b", "one", "west"), false)
	check.Diff(t, []v1alpha1.ClusterName{"east"}, p.of("a"), "workers of a namespace")
	check.Diff(t, []v1alpha1.ClusterName{"east", "west"}, p.of(""), "workers of all namespaces")
	p.changed(d("a", "one", "west"), false)
	check.Diff(t, []v1alpha1.ClusterName{"east", "west"}, p.of("a"), "workers after a move")
	p.changed(toolscache.DeletedFinalStateUnknown{Obj: d("a", "two", "east")}, true)
	check.Diff(t, []v1alpha1.ClusterName{"west"}, p.of("a"), "workers after a deletion")
	check.Equal(t, 6, len(told), "changes that were told")
	cancel()
	p.changed(d("a", "one", "east"), true)
	check.Equal(t, 6, len(told), "changes that were told after the end")
	check.Diff(t, []v1alpha1.ClusterName{"west"}, p.of(""), "workers at the end")
}

// TestLimitsOfOneAndAll: what one does leaves room for others, and all together have a limit.
func TestLimitsOfOneAndAll(t *testing.T) {
	l := newLimits(2, 3, nil)
	leave, ok := l.enter("ada")
	check.Equal(t, true, ok, "first")
	_, ok = l.enter("ada")
	check.Equal(t, true, ok, "second")
	_, ok = l.enter("ada")
	check.Equal(t, false, ok, "third of one")
	_, ok = l.enter("bob")
	check.Equal(t, true, ok, "first of another")
	_, ok = l.enter("eve")
	check.Equal(t, false, ok, "fourth of all")
	leave()
	_, ok = l.enter("eve")
	check.Equal(t, true, ok, "after one has left")
}

// TestWorkerConnections: a connection is checked once and shared, a failure is not repeated at once, and what nobody uses
// is closed.
func TestWorkerConnections(t *testing.T) {
	s := &workerServer{}
	w := newWorld(t, s)
	clock := clocktesting.NewFakeClock(time.Now())
	all := newWorkers(w.records, w.loader(), clock, time.Minute)
	one, err := all.get(t.Context(), "east")
	check.Must(t, err)
	again, err := all.get(t.Context(), "east")
	check.Must(t, err)
	if one != again {
		t.Error("there are two connections")
	}
	check.Equal(t, 1, len(w.worker.all()), "checks of the identity")
	clock.Step(idleFor + time.Second)
	all.sweep()
	check.Equal(t, 0, len(all.byName), "connections after nobody has used them")

	cluster := clusterOf("east", "another")
	check.Must(t, w.records.Update(t.Context(), withVersion(t, w, cluster)))
	for range 3 {
		if _, err = all.get(t.Context(), "east"); err == nil || !strings.Contains(err.Error(), "another cluster answers") {
			t.Fatalf("the error is %v", err)
		}
	}
	check.Equal(t, 2, len(w.worker.all()), "checks of the identity after a failure")
	clock.Step(retryAfter + time.Second)
	_, err = all.get(t.Context(), "east")
	if said := (*unusableError)(nil); !errors.As(err, &said) {
		t.Fatalf("the error is %v", err)
	}
	check.Equal(t, 3, len(w.worker.all()), "checks of the identity after a while")
}

func withVersion(t *testing.T, w *world, cluster *v1alpha1.WorkerCluster) *v1alpha1.WorkerCluster {
	t.Helper()
	now := &v1alpha1.WorkerCluster{}
	check.Must(t, w.records.Get(t.Context(), types.NamespacedName{Name: cluster.Name}, now))
	cluster.ResourceVersion = now.ResourceVersion
	return cluster
}
