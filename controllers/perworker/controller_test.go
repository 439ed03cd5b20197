// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package perworker

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Nobody but the log says why a reconcile of a worker fails, and of which worker it is.
func TestErrorsAreLogged(t *testing.T) {
	lines := make(chan string, 100)
	log := funcr.New(func(_, line string) {
		select {
		case lines <- line:
		default: // Nobody reads any more.
		}
	}, funcr.Options{})
	fails := reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
		return reconcile.Result{}, errors.New("the worker's words")
	})
	set := NewSet[*link](nil, log, Kind[*link]{
		Name: "kind", Concurrency: 1, Apart: true, New: func(context.Context, v1alpha1.ClusterName, *link) (reconcile.Reconciler, error) { return fails, nil },
	})
	w, err := set.start(t.Context(), "west", &link{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { set.leave("west") })
	w.instances[0].inbox.Add(types.NamespacedName{Namespace: "default", Name: "job"})
	for deadline := time.After(20 * time.Second); ; {
		select {
		case line := <-lines:
			if strings.Contains(line, "the worker's words") && strings.Contains(line, `"workerCluster"="west"`) {
				return
			}
		case <-deadline:
			t.Fatal("the error of a reconcile is not in the log with its worker")
		}
	}
}

// A worker leaves whatever its controllers have to do: whoever waits for them holds up its next connection.
func TestLeaveDoesNotHang(t *testing.T) {
	nothing := reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil })
	set := NewSet[*link](nil, logr.Discard(), Kind[*link]{
		Name: "kind", Concurrency: 2, Apart: true, New: func(context.Context, v1alpha1.ClusterName, *link) (reconcile.Reconciler, error) { return nothing, nil },
	})
	over := make(chan struct{})
	go func() {
		defer close(over)
		for range 500 {
			w, err := set.start(t.Context(), "west", &link{})
			if err != nil {
				t.Error(err)
				return
			}
			var adding sync.WaitGroup
			adding.Go(func() {
				for i := range 20 {
					w.instances[0].inbox.Add(types.NamespacedName{Namespace: "default", Name: strconv.Itoa(i)})
				}
			})
			set.leave("west")
			adding.Wait()
		}
	}()
	select {
	case <-over:
	case <-time.After(time.Minute):
		t.Fatal("the controllers of a worker that leaves do not end")
	}
}
