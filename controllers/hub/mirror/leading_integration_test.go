// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/stage"
)

// A manager that was paused with a creation pending finds its caches as it left them. Another manager may lead. It may
// have ended the attempt and placed the job elsewhere. So the paused manager creates neither the copy nor what it
// needs, and writes nothing else to the worker.
func TestFormerLeaderWritesNothing(t *testing.T) {
	s := newScene(t, setting{hubOnly: true})
	var leads atomic.Bool
	own := *s.worker
	own.Join(stage.StartFleet(t, remote.Options{Scheme: s.Scheme, Leading: leads.Load}), workerName)
	stage.AwaitConnected(t, own.Connection)
	s.options.Worker = own.Connection
	s.restart()
	s.Clock.Step(time.Minute) // The hub's caches are believed.
	before := s.dispatch(t)
	for range 3 {
		check.Equal(t, time.Second, s.reconcile(t).RequeueAfter, "it looks again after")
	}
	var namespace corev1.Namespace
	err := s.worker.Admin.Get(t.Context(), types.NamespacedName{Name: s.key.Namespace}, &namespace)
	if client.IgnoreNotFound(err) != nil || err == nil || s.copy(t) != nil {
		t.Fatalf("something was created: the namespace (%v), or the copy", err)
	}
	check.Equal(t, before.ResourceVersion, s.dispatch(t).ResourceVersion, "the Dispatch was written")
	leads.Store(true)
	s.reconcile(t)
	created := s.copy(t)
	if created == nil {
		t.Fatal("the leader creates no copy")
	}
	leads.Store(false)
	must(t, s.Hub.Admin.Delete(t.Context(), s.job(t)))
	eventually(t, "cache of the connection", func(g gomega.Gomega) {
		g.Expect(read(t, own.Connection.Cache(), s.key)).NotTo(gomega.BeNil())
	})
	s.reconcile(t)
	if copy := s.copy(t); copy == nil || copy.GetDeletionTimestamp() != nil {
		t.Error("a copy was deleted by a process that may lead no more")
	}
}

// Fault: a manager is paused while its copy is there. The worker's agent stops and deletes the copy. The next leader
// creates another copy, and has not written anything about it yet. The paused manager goes on, with the old copy in its
// caches. It would write the UID of a copy that is gone. The optimistic lock would not stop this write, because the
// Dispatch has not changed. So a manager that may not lead writes nothing.
func TestFormerLeaderSaysNothing(t *testing.T) {
	s := newScene(t, setting{})
	var leads atomic.Bool
	leads.Store(true)
	config := rest.CopyConfig(s.Hub.Cluster.Config)
	config.Wrap(remote.OnlyLeaderWrites(leads.Load))
	hub, err := client.New(config, client.Options{Scheme: s.Scheme})
	must(t, err)
	s.options.Hub = hub
	s.restart()
	s.reconcile(t)
	s.settle(t)
	s.reconcile(t)
	before := s.dispatch(t)
	leads.Store(false)
	s.Clock.Step(runningDelay)
	check.Equal(t, time.Second, s.reconcile(t).RequeueAfter, "it looks again after")
	check.Diff(t, before, s.dispatch(t), "a process that may not lead has written on the hub")
	leads.Store(true)
	s.reconcile(t)
	check.Equal(t, s.copy(t).GetUID(), s.dispatch(t).Status.CopyUID, "the leader wrote that the copy")
}
