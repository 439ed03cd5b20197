// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package kueue

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/trainyard/trainyard/api/kueues"
)

const (
	// crdName is the CustomResourceDefinition that says whether Kueue is installed.
	crdName = "workloads." + kueues.Group
	// minRetry and maxRetry are how long to wait until the next request, while an API is being installed or cannot be
	// read.
	minRetry, maxRetry = 200 * time.Millisecond, 30 * time.Second
)

// Options are the options of a Watch. All are required but Checks.
type Options struct {
	// Config and HTTPClient reach the hub.
	Config     *rest.Config
	HTTPClient *http.Client
	Logger     logr.Logger
	// Checks is the controller of the admission checks that the caller decides about: CheckController, or empty for none.
	Checks string
}

// Watch watches what the hub's Kueue does with TrainJobs. Its methods are safe for concurrent use.
type Watch struct {
	Options

	mu sync.Mutex
	// phase is what is known of Kueue. fault is why no more is known, empty if it only takes time.
	phase phase
	fault string
	// caches are Kueue's objects while its API exists.
	caches *caches
	// subscribers are called after changes.
	subscribers []func(types.NamespacedName)
}

// phase is what is known of Kueue.
type phase int

const (
	// The zero value means that nothing is known yet.
	_ phase = iota
	// absent: Kueue is not installed.
	absent
	// reading: Kueue is installed, and the caches read its objects for the first time.
	reading
	// present: Kueue is installed, and the caches have its objects.
	present
)

// New returns a Watch, which the caller adds to a manager.
func New(options Options) *Watch {
	options.Logger = options.Logger.WithName("kueue")
	return &Watch{Options: options}
}

// Subscribe lets the Watch call changed with the key of a TrainJob whenever the answer of Of may have changed, and with
// an empty key if any answer may have changed. changed must not block. Call Subscribe before Start.
func (w *Watch) Subscribe(changed func(types.NamespacedName)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.subscribers = append(w.subscribers, changed)
}

// NeedLeaderElection implements manager.LeaderElectionRunnable. So a replica that takes over already knows Kueue's
// jobs.
func (w *Watch) NeedLeaderElection() bool { return false }

// Known is true once Of can answer for each job, or once it is known why it cannot.
func (w *Watch) Known() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.phase == absent || w.phase == present || w.fault != ""
}

// Of answers for a hub TrainJob, from the caches.
func (w *Watch) Of(job *unstructured.Unstructured) Answer {
	w.mu.Lock()
	phase, fault, caches := w.phase, w.fault, w.caches
	w.mu.Unlock()
	switch {
	case phase == present:
		return answerOf(job, caches.of(job), checks{controllerOf: caches.controllerOf, decided: w.Checks, flavor: caches.flavor})
	case phase == absent, !isMarked(job):
		return Answer{Standing: Free}
	case fault != "":
		return Answer{
			Standing: Held, Message: "the job may be Kueue's, and whether MultiKueue dispatches it cannot be told: " + fault,
		}
	}
	return Answer{Standing: Unknown}
}

// Start implements manager.Runnable. It returns when ctx ends.
func (w *Watch) Start(ctx context.Context) error {
	poked := make(chan struct{}, 1)
	definition, err := w.watchDefinition(ctx, poked)
	if err != nil {
		return err
	}
	client, err := discovery.NewDiscoveryClientForConfigAndClient(w.Config, w.HTTPClient)
	if err != nil {
		return fmt.Errorf("make client for discovery of Kueue: %w", err)
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), definition.HasSynced) {
		return nil
	}
	follow := follower{watch: w}
	defer follow.stop()
	for delay := minRetry; ctx.Err() == nil; {
		var retry <-chan time.Time
		version, err := versionOf(ctx, client, definition)
		if err == nil {
			err = follow.follow(ctx, version)
		}
		if err != nil {
			w.fail(err)
			timer := time.NewTimer(delay)
			retry, delay = timer.C, min(2*delay, maxRetry)
		} else {
			delay = minRetry
		}
		select {
		case <-ctx.Done():
		case <-poked:
		case <-retry:
		}
	}
	return nil
}

// versionOf returns the version of Kueue's API to read, empty if Kueue is not installed.
func versionOf(
	ctx context.Context, client discovery.DiscoveryInterface, definition toolscache.SharedIndexInformer,
) (string, error) {
	if _, exists, err := definition.GetStore().GetByKey(crdName); err != nil || !exists {
		return "", err
	}
	served := &metav1.APIGroup{}
	err := client.RESTClient().Get().AbsPath("/apis/" + kueues.Group).Do(ctx).Into(served)
	switch {
	case apierrors.IsNotFound(err):
		return "", errors.New("the CustomResourceDefinition " + crdName + " is there, and its API is not served")
	case err != nil:
		return "", fmt.Errorf("get versions of %s: %w", kueues.Group, err)
	}
	for _, version := range served.Versions {
		if version.Version == kueues.Version {
			return kueues.Version, nil
		}
	}
	return served.PreferredVersion.Version, nil
}

// fail notes why Kueue's objects are not known. Caches that are complete still send changes.
func (w *Watch) fail(err error) {
	w.mu.Lock()
	news := w.phase != present && w.fault != err.Error()
	if news {
		w.fault = err.Error()
	}
	w.mu.Unlock()
	if news {
		w.Logger.Info("Jobs in a queue of Kueue are not placed until its Workloads can be read", "reason", err.Error())
		w.tell(types.NamespacedName{})
	}
}

// enter notes the new phase and its caches.
func (w *Watch) enter(phase phase, caches *caches) {
	w.mu.Lock()
	w.phase, w.fault, w.caches = phase, "", caches
	w.mu.Unlock()
	w.Logger.V(1).Info("Looked for Kueue", "installed", phase != absent, "read", phase == present)
	w.tell(types.NamespacedName{})
}

// tellJob is tell for a change of one TrainJob in the caches. It waits until the caches are complete: then all jobs are
// told.
func (w *Watch) tellJob(key types.NamespacedName) {
	w.mu.Lock()
	present := w.phase == present
	w.mu.Unlock()
	if present {
		w.tell(key)
	}
}

// tell calls the subscribers: the answer of Of may have changed for one TrainJob, or for any.
func (w *Watch) tell(key types.NamespacedName) {
	w.mu.Lock()
	subscribers := w.subscribers
	w.mu.Unlock()
	for _, changed := range subscribers {
		changed(key)
	}
}
