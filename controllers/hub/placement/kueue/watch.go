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
)

const (
	group = "kueue.x-k8s.io"
	// preferredVersion is the version whose fields this package was written for. Those that it reads are the same in
	// v1beta1.
	preferredVersion = "v1beta2"
	// crdName is the CustomResourceDefinition that says whether Kueue is installed.
	crdName = "workloads." + group
	// minRetry and maxRetry are how soon the API server is asked again for an API that is being installed, or that it
	// cannot tell of.
	minRetry, maxRetry = 200 * time.Millisecond, 30 * time.Second
)

// Options are all required.
type Options struct {
	// Config and HTTPClient reach the hub.
	Config     *rest.Config
	HTTPClient *http.Client
	Logger     logr.Logger
}

// Watch watches what Kueue on the hub does with TrainJobs. Its methods may be called from several goroutines.
type Watch struct {
	Options

	mu sync.Mutex
	// phase is what is known of Kueue, and fault why no more is, empty if it only takes its time.
	phase phase
	fault string
	// caches are those of the API while it is there.
	caches *caches
	// subscribers are told what has changed.
	subscribers []func(types.NamespacedName)
}

// phase is what is known of Kueue.
type phase int

const (
	// Zero: nothing is known yet.
	_ phase = iota
	// absent: Kueue is not installed.
	absent
	// reading: Kueue is installed, and its objects are being read for the first time.
	reading
	// present: Kueue is installed, and the caches have its objects.
	present
)

// New returns a Watch, which is to be added to a manager.
func New(options Options) *Watch {
	options.Logger = options.Logger.WithName("kueue")
	return &Watch{Options: options}
}

// Subscribe has changed called with the key of a TrainJob whenever Of may answer something else for it, and with an
// empty key if that may be any. changed must not block. It is called before the Watch is started.
func (w *Watch) Subscribe(changed func(types.NamespacedName)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.subscribers = append(w.subscribers, changed)
}

// NeedLeaderElection implements manager.LeaderElectionRunnable. A replica that takes over knows what Kueue has.
func (w *Watch) NeedLeaderElection() bool { return false }

// Known is true once Of can answer for any job, or it is known why it cannot.
func (w *Watch) Known() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.phase == absent || w.phase == present || w.fault != ""
}

// Of answers for a hub TrainJob from the caches.
func (w *Watch) Of(job *unstructured.Unstructured) Answer {
	w.mu.Lock()
	phase, fault, caches := w.phase, w.fault, w.caches
	w.mu.Unlock()
	switch {
	case phase == present:
		return judge(job, caches.of(job), caches.controllerOf)
	case phase == absent, !isMarked(job):
		return Answer{Standing: Free}
	case fault != "":
		return Answer{Held, "the job may be Kueue's, and whether MultiKueue dispatches it cannot be told: " + fault}
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

// versionOf is the version in which Kueue's API is to be read, empty if Kueue is not installed.
func versionOf(
	ctx context.Context, client discovery.DiscoveryInterface, definition toolscache.SharedIndexInformer,
) (string, error) {
	if _, exists, err := definition.GetStore().GetByKey(crdName); err != nil || !exists {
		return "", err
	}
	served := &metav1.APIGroup{}
	err := client.RESTClient().Get().AbsPath("/apis/" + group).Do(ctx).Into(served)
	switch {
	case apierrors.IsNotFound(err):
		return "", errors.New("the CustomResourceDefinition " + crdName + " is there, and its API is not served")
	case err != nil:
		return "", fmt.Errorf("get versions of %s: %w", group, err)
	}
	for _, version := range served.Versions {
		if version.Version == preferredVersion {
			return preferredVersion, nil
		}
	}
	return served.PreferredVersion.Version, nil
}

// fail notes why it is not known what Kueue has. While the caches have its objects they go on telling.
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

// enter notes what is known from now on.
func (w *Watch) enter(phase phase, caches *caches) {
	w.mu.Lock()
	w.phase, w.fault, w.caches = phase, "", caches
	w.mu.Unlock()
	w.Logger.V(1).Info("Looked for Kueue", "installed", phase != absent, "read", phase == present)
	w.tell(types.NamespacedName{})
}

// tellJob is tell for what the caches show of one TrainJob. Until they have all, nothing is told: all are told of then.
func (w *Watch) tellJob(key types.NamespacedName) {
	w.mu.Lock()
	present := w.phase == present
	w.mu.Unlock()
	if present {
		w.tell(key)
	}
}

// tell says that Of may answer something else for a TrainJob, or for any.
func (w *Watch) tell(key types.NamespacedName) {
	w.mu.Lock()
	subscribers := w.subscribers
	w.mu.Unlock()
	for _, changed := range subscribers {
		changed(key)
	}
}
