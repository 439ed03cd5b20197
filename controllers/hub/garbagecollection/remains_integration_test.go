// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection_test

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
)

// Fault: somebody deletes an unknown copy in the background. Its job waits until the copy's JobSet is gone, which may
// still make pods. A hub that may not read JobSets, or not delete them, does not wait.
func TestUnknownCopyIsGoneWithItsJobSet(t *testing.T) {
	for name, test := range map[string]struct {
		reason        string
		hidden, stays bool
		other         bool
		waits         bool
	}{
		"Own":    {reason: "the JobSet may make pods", waits: true},
		"Other":  {reason: "the JobSet is another TrainJob's", other: true},
		"Hidden": {reason: "the hub may not read JobSets", hidden: true},
		"Stays":  {reason: "the hub may not delete JobSets", stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.options[workerName].Worker = limited{s.Worker(workerName).Connection, test.hidden, test.stays}
			s.restart()
			copy := s.createCopy(t, "origin", "1")
			s.sweep(t, workerName)
			s.collect(t)
			if test.other {
				s.createJobSet(t, "another")
			} else {
				s.createJobSet(t, copy.GetUID())
			}
			must(t, s.Worker(workerName).Admin.Delete(t.Context(), copy))
			s.settle(t)
			result := s.collect(t)
			_, held := s.quarantine.Of(s.key, "origin")
			if held != test.waits || test.waits != (result.RequeueAfter > 0) {
				t.Fatalf("the job waits: %t, looked at again after %s; want %t: %s", held, result.RequeueAfter, test.waits, test.reason)
			}
			jobSet := s.jobSet(t)
			check.Equal(t, test.waits, jobSet.GetDeletionTimestamp() != nil,
				"the JobSet is being deleted: %s", test.reason)
			if !test.waits {
				return
			}
			jobSet.SetFinalizers(nil) // As the garbage collector does when what the JobSet owns is gone.
			must(t, s.Worker(workerName).Admin.Update(t.Context(), jobSet))
			s.collect(t)
			if _, held := s.quarantine.Of(s.key, "origin"); held {
				t.Error("the job waits although nothing of the copy is left")
			}
		})
	}
}

// A foreign TrainJob has got the name of an unknown copy whose pods are still alive. The job waits for these pods.
func TestUnknownCopyWhoseNameIsTaken(t *testing.T) {
	s := newScene(t)
	copy := s.createCopy(t, "origin", "1")
	s.sweep(t, workerName)
	s.collect(t)
	endPod := s.run(t, workerName)
	must(t, s.Worker(workerName).Admin.Delete(t.Context(), copy))
	foreign := s.newJob()
	must(t, s.Worker(workerName).Admin.Create(t.Context(), foreign))
	s.settle(t)
	if result := s.collect(t); result.RequeueAfter == 0 {
		t.Error("nobody looks whether the pods of the copy have gone")
	}
	if _, held := s.quarantine.Of(s.key, "origin"); !held {
		t.Error("the job can be placed while a pod of its unknown copy is alive")
	}
	endPod()
	s.collect(t)
	if _, held := s.quarantine.Of(s.key, "origin"); held {
		t.Error("the job waits for a foreign TrainJob")
	}
	if now := s.copy(t); now == nil || now.GetUID() != foreign.GetUID() || now.GetDeletionTimestamp() != nil {
		t.Errorf("the foreign TrainJob was touched: %v", now)
	}
}

// The hub is restored, and the copy on record is gone from its worker, but not the copy's JobSet. No other copy is
// adopted before the JobSet is gone.
func TestNoAdoptionBesideTheJobSetOfTheCopyOnRecord(t *testing.T) {
	s := newScene(t)
	job := s.submit(t)
	s.place(t, job.GetUID(), workerName, 2)
	s.recordCopy(t, "gone")
	s.createJobSet(t, "gone")
	s.createCopyOn(t, otherName, job.GetUID(), "3")
	s.sweep(t, workerName)
	s.sweep(t, otherName)
	s.collectOn(t, otherName, s.key)
	s.Clock.Step(2 * time.Minute) // No creation can be under way any more.
	result := s.collectOn(t, otherName, s.key)
	if d := s.dispatch(t); d.Spec.Cluster != workerName || result.RequeueAfter == 0 {
		t.Fatalf("the Dispatch has %+v, looked at again after %s", d.Spec, result.RequeueAfter)
	}
	jobSet := s.jobSet(t)
	jobSet.SetFinalizers(nil)
	must(t, s.Worker(workerName).Admin.Update(t.Context(), jobSet))
	s.collectOn(t, otherName, s.key)
	if d := s.dispatch(t); d.Spec.Cluster != otherName || d.Spec.Attempt != 3 {
		t.Errorf("nothing is left of the copy on record, and the Dispatch has %+v", d.Spec)
	}
	s.told(t, "")
}

// The copy on record is the job's, even if somebody has given it the label of another hub. No other copy is adopted.
func TestNoAdoptionBesideARelabelledCopyOnRecord(t *testing.T) {
	s := newScene(t)
	job := s.submit(t)
	s.place(t, job.GetUID(), workerName, 2)
	there := s.createCopy(t, job.GetUID(), "2")
	s.recordCopy(t, there.GetUID())
	labels := there.GetLabels()
	labels[v1alpha1.LabelHub] = "hub-2"
	there.SetLabels(labels)
	must(t, s.Worker(workerName).Admin.Update(t.Context(), there))
	s.settle(t)
	s.createCopyOn(t, otherName, job.GetUID(), "3")
	s.sweep(t, otherName)
	s.collectOn(t, otherName, s.key)
	s.Clock.Step(2 * time.Minute)
	s.collectOn(t, otherName, s.key)
	if d := s.dispatch(t); d.Spec.Cluster != workerName || d.Spec.Attempt != 2 {
		t.Errorf("the job runs on, and the Dispatch has %+v", d.Spec)
	}
	s.told(t, "")
}

// limited is a connection whose user may not do all that is needed with JobSets.
type limited struct {
	*remote.Cluster
	hidden, stays bool
}

// APIReader implements copies.Connection.
func (l limited) APIReader() (client.Reader, error) {
	live, err := l.Cluster.APIReader()
	return limitedReader{live, l.hidden}, err
}

// Client implements copies.Connection.
func (l limited) Client() (client.Client, error) {
	c, err := l.Cluster.Client()
	return limitedClient{c, l.stays}, err
}

type limitedReader struct {
	client.Reader
	hidden bool
}

// Get implements client.Reader.
func (r limitedReader) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if r.hidden && isJobSet(object) {
		return forbidden(key)
	}
	return r.Reader.Get(ctx, key, object, options...)
}

type limitedClient struct {
	client.Client
	stays bool
}

// Delete implements client.Writer.
func (c limitedClient) Delete(ctx context.Context, object client.Object, options ...client.DeleteOption) error {
	if c.stays && isJobSet(object) {
		return forbidden(client.ObjectKeyFromObject(object))
	}
	return c.Client.Delete(ctx, object, options...)
}

func isJobSet(object client.Object) bool {
	return object.GetObjectKind().GroupVersionKind().Kind == "JobSet"
}

func forbidden(key types.NamespacedName) error {
	return apierrors.NewForbidden(schema.GroupResource{Group: "jobset.x-k8s.io", Resource: "jobsets"}, key.Name, nil)
}
