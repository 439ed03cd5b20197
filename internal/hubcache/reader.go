// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package hubcache

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// unreadDelay is how long after an Unread error the caller comes again.
const unreadDelay = time.Second

// unread says that the cache has not read all objects of a kind, and does not have this one.
type unread struct {
	what string
	over <-chan struct{}
}

// Error implements error.
func (u *unread) Error() string {
	return u.what + " may exist: the cache has not read all finished jobs yet"
}

// RetryAfter says when to try again, see package requeue.
func (u *unread) RetryAfter() time.Duration { return unreadDelay }

// NewUnread returns the error of a patient read of an object that a cache does not have. over is closed when the cache
// has read all, nil: nobody can wait for that.
func NewUnread(what string, over <-chan struct{}) error { return &unread{what, over} }

// IsUnread is true for the error of a patient read.
func IsUnread(err error) bool {
	var u *unread
	return errors.As(err, &u)
}

// Await waits, after the error of a patient read, until the same read has an answer. It returns false, at once, after any
// other error, and when ctx ends.
func Await(ctx context.Context, err error) bool {
	var u *unread
	if !errors.As(err, &u) || u.over == nil {
		return false
	}
	select {
	case <-u.over:
		return true
	case <-ctx.Done():
		return false
	}
}

type patience struct{}

// Patiently makes reads of Dispatches and TrainJobs that the cache does not have yet fail (IsUnread). It is for work that
// can wait, and comes for many finished jobs at once. Without it the API server is asked for each.
func Patiently(ctx context.Context) context.Context {
	return context.WithValue(ctx, patience{}, true)
}

// IsPatient is true for the context of Patiently.
func IsPatient(ctx context.Context) bool { return ctx.Value(patience{}) != nil }

// NewClient is the NewClient of a manager's options, for a client that reads from the Hub's informers. An object that is
// absent from them may exist as long as they have not read all. So the client asks the API server then.
func (h *Hub) NewClient(config *rest.Config, options client.Options) (client.Client, error) {
	stored, err := client.New(config, client.Options{HTTPClient: options.HTTPClient, Scheme: options.Scheme, Mapper: options.Mapper})
	if err != nil {
		return nil, fmt.Errorf("make a client of the hub's API server: %w", err)
	}
	caches := *options.Cache
	caches.Reader = &reader{Reader: caches.Reader, hub: h, stored: stored}
	options.Cache = &caches
	return client.New(config, options)
}

// reader reads from caches.
type reader struct {
	client.Reader
	hub *Hub
	// stored reads from the API server.
	stored client.Reader
}

// Get implements client.Reader.
func (r *reader) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	from := r.hub.sourceOf(into)
	certain := from == nil || from.isOver() // Before the read: the object may come in between.
	err := r.Reader.Get(ctx, key, into, options...)
	switch {
	case certain, !apierrors.IsNotFound(err):
		return err
	case IsPatient(ctx):
		return NewUnread(fmt.Sprintf("%T %s", into, key), from.over)
	}
	return r.stored.Get(ctx, key, into)
}
