// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	cachetesting "k8s.io/client-go/tools/cache/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/trainyard/trainyard/test/check"
)

// events are what a handler has been told, in order.
type events struct {
	mu   sync.Mutex
	told []string
}

func (e *events) add(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.told = append(e.told, fmt.Sprintf(format, args...))
}

func (e *events) has(prefix string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.told, func(told string) bool { return strings.HasPrefix(told, prefix) })
}

func (e *events) take() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	told := e.told
	e.told = nil
	return told
}

func (e *events) handler() toolscache.ResourceEventHandler {
	name := func(object any) string {
		node := object.(*corev1.Node)
		return node.Name + "@" + node.ResourceVersion
	}
	return toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(object any, first bool) { e.add("add %s first=%t", name(object), first) },
		UpdateFunc: func(before, object any) {
			if name(before) != name(object) { // client-go repeats what has not changed only to those who want resyncs.
				e.add("update %s to %s", name(before), name(object))
			}
		},
		DeleteFunc: func(object any) {
			if unknown, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
				e.add("deleted %s, last seen as %s", unknown.Key, name(unknown.Obj))
				return
			}
			e.add("delete %s", object.(*corev1.Node).Name)
		},
	}
}

// informerOf returns an informer of nodes that runs until the test ends.
func informerOf(t *testing.T, source toolscache.ListerWatcher, transform toolscache.TransformFunc, faults guard) *informer {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c := &caches{ctx: ctx, guard: faults}
	t.Cleanup(func() { cancel(); c.running.Wait() })
	kind := &cachedKind{gvk: corev1.SchemeGroupVersion.WithKind("Node"), options: cache.ByObject{Transform: transform}}
	i := newInformer(kind, source, &corev1.Node{}, toolscache.Indexers{}, c)
	check.Must(t, i.SetWatchErrorHandlerWithContext(func(context.Context, *toolscache.Reflector, error) {}))
	return i
}

func asItIs(object any) (any, error) { return object, nil }

func fatal(t *testing.T) guard {
	return func(what string, value any, stack []byte) { t.Errorf("panic over %s: %v\n%s", what, value, stack) }
}

func nodeAt(name, version string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}}
}

// listing refuses streamed lists, which the source does not know.
type listing struct {
	*cachetesting.FakeControllerSource
}

func (s listing) Watch(options metav1.ListOptions) (watch.Interface, error) {
	if options.SendInitialEvents != nil {
		return nil, apierrors.NewBadRequest("no streamed lists")
	}
	return s.FakeControllerSource.Watch(options)
}

// TestInformerTellsWhatClientGoTells gives an informer and client-go's the same objects and changes.
func TestInformerTellsWhatClientGoTells(t *testing.T) {
	source := listing{cachetesting.NewFakeControllerSource()}
	for n := range 5 {
		source.Add(nodeAt(fmt.Sprint("early-", n), ""))
	}
	ours := informerOf(t, source, asItIs, fatal(t))
	theirs := toolscache.NewSharedIndexInformer(source, &corev1.Node{}, 0, toolscache.Indexers{})
	var told, want events
	joined, err := ours.AddEventHandler(told.handler())
	check.Must(t, err)
	_, err = theirs.AddEventHandler(want.handler())
	check.Must(t, err)
	if ours.HasSynced() || joined.HasSynced() {
		t.Error("it has synced before it runs")
	}
	ours.RunWithContext(t.Context())
	go theirs.RunWithContext(t.Context())
	check.Eventually(t, "both have the first list", func(g gomega.Gomega) {
		g.Expect(ours.HasSynced() && joined.HasSynced() && theirs.HasSynced()).To(gomega.BeTrue())
	})
	random := rand.New(rand.NewPCG(1, 2))
	there := map[string]bool{}
	for range 500 {
		name := fmt.Sprint("node-", random.IntN(20))
		switch {
		case !there[name]:
			source.Add(nodeAt(name, ""))
			there[name] = true
		case random.IntN(3) == 0:
			source.Delete(nodeAt(name, ""))
			there[name] = false
		default:
			source.Modify(nodeAt(name, ""))
		}
	}
	source.Add(nodeAt("last", ""))
	check.Eventually(t, "both have had the last event", func(g gomega.Gomega) {
		g.Expect(told.has("add last@") && want.has("add last@")).To(gomega.BeTrue())
	})
	got, expected := told.take(), want.take()
	slices.Sort(got[:5]) // The first list has no order.
	slices.Sort(expected[:5])
	check.Diff(t, expected, got, "events")
	keys, wanted := ours.GetIndexer().ListKeys(), theirs.GetIndexer().ListKeys()
	slices.Sort(keys)
	slices.Sort(wanted)
	check.Diff(t, wanted, keys, "objects")
}

// TestInformerReplacesList checks what handlers are told when a list comes in place of missed events.
func TestInformerReplacesList(t *testing.T) {
	i := informerOf(t, &toolscache.ListWatch{}, asItIs, fatal(t))
	var told events
	joined, err := i.AddEventHandler(told.handler())
	check.Must(t, err)
	s := store{i}
	check.Must(t, s.Replace([]any{nodeAt("a", "1"), nodeAt("b", "2"), nodeAt("c", "3")}, "3"))
	check.Diff(t, []string{"add a@1 first=true", "add b@2 first=true", "add c@3 first=true"}, told.take(), "the first list")
	check.Must(t, s.Replace([]any{nodeAt("a", "1"), nodeAt("c", "7"), nodeAt("d", "8")}, "8"))
	check.Diff(t, []string{"deleted b, last seen as b@2", "update c@3 to c@7", "add d@8 first=false"}, told.take(), "the next list")
	if _, there, _ := i.GetIndexer().GetByKey("b"); there {
		t.Error("an object that the list does not have is still there")
	}
	var late events
	_, err = i.AddEventHandler(late.handler())
	check.Must(t, err)
	if got := late.take(); len(got) != 3 {
		t.Errorf("a handler that joins late is told %q, want the three objects", got)
	}
	check.Must(t, i.RemoveEventHandler(joined))
	check.Must(t, s.Delete(nodeAt("a", "9")))
	check.Equal(t, 0, len(told.take()), "events to a handler that has left")
	check.Diff(t, []string{"delete a"}, late.take(), "events to the other one")
}

// TestInformerKeepsOnAfterPanics checks that a panic over one object or event costs neither the objects nor the events
// after it.
func TestInformerKeepsOnAfterPanics(t *testing.T) {
	var faults []string
	strip := func(object any) (any, error) {
		if object.(*corev1.Node).Name == "poison" {
			panic("poison")
		}
		return object, nil
	}
	i := informerOf(t, &toolscache.ListWatch{}, strip, func(what string, _ any, stack []byte) {
		if len(stack) == 0 {
			t.Error("no stack")
		}
		faults = append(faults, what)
	})
	broken := toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { panic("add") }, UpdateFunc: func(any, any) { panic("update") }, DeleteFunc: func(any) { panic("delete") },
	}
	var told events
	for _, handler := range []toolscache.ResourceEventHandler{broken, told.handler()} {
		_, err := i.AddEventHandler(handler)
		check.Must(t, err)
	}
	s := store{i}
	check.Must(t, s.Replace([]any{nodeAt("a", "1")}, "1"))
	check.Must(t, s.Update(nodeAt("a", "2")))
	check.Must(t, s.Add(nodeAt("poison", "3")))
	check.Must(t, s.Delete(nodeAt("a", "4")))
	check.Diff(t, []string{"add a@1 first=true", "update a@1 to a@2", "add poison@3 first=false", "delete a"}, told.take(), "events")
	check.Diff(t, []string{"an event of a Node", "an event of a Node", "a Node", "an event of a Node", "an event of a Node"}, faults, "faults")
}
