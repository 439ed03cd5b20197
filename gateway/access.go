// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

const (
	// How long an answer of the hub about a caller holds. It is as long as an API server itself keeps such answers of a
	// webhook, or shorter.
	allowedFor, deniedFor, knownFor = 10 * time.Second, 2 * time.Second, time.Minute
	// maxAnswers bounds how many answers are kept.
	maxAnswers = 10_000
	// reviewTimeout is how long the hub may take for an answer.
	reviewTimeout = 10 * time.Second
)

// access asks the hub, as the caller, what the caller may do and who the caller is.
type access struct {
	config    *rest.Config
	transport http.RoundTripper
	answers   *cache.LRUExpireCache
}

type accessKey struct {
	caller     [sha256.Size]byte
	attributes authorizationv1.ResourceAttributes
}

type nameKey [sha256.Size]byte

func newAccess(config *rest.Config, transport http.RoundTripper, clock clock.Clock) *access {
	return &access{config: config, transport: transport, answers: cache.NewLRUExpireCacheWithClock(maxAnswers, clock)}
}

func (a *access) client(c *caller) *http.Client {
	return &http.Client{Transport: asCaller{caller: c, next: a.transport}, Timeout: reviewTimeout, CheckRedirect: noRedirect}
}

// allows says whether the hub lets the caller do something with pods. An error means that the hub does not say.
func (a *access) allows(ctx context.Context, c *caller, attributes authorizationv1.ResourceAttributes) (bool, error) {
	key := accessKey{caller: c.key(), attributes: attributes}
	if answer, known := a.answers.Get(key); known {
		return answer.(bool), nil
	}
	client, err := authorizationclient.NewForConfigAndClient(a.config, a.client(c))
	if err != nil {
		return false, fmt.Errorf("make client for access reviews: %w", err)
	}
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &attributes}}
	answer, err := client.SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("ask the hub whether the caller may %s %s/%s: %w", attributes.Verb, attributes.Resource, attributes.Subresource, err)
	}
	allowed, ttl := answer.Status.Allowed, deniedFor
	if allowed {
		ttl = allowedFor
	}
	a.answers.Add(key, allowed, ttl)
	return allowed, nil
}

// user returns the name that the caller has on the hub.
func (a *access) user(ctx context.Context, c *caller) (string, error) {
	key := nameKey(c.key())
	if name, known := a.answers.Get(key); known {
		return name.(string), nil
	}
	client, err := authenticationclient.NewForConfigAndClient(a.config, a.client(c))
	if err != nil {
		return "", fmt.Errorf("make client for reviews: %w", err)
	}
	answer, err := client.SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("ask the hub who the caller is: %w", err)
	}
	a.answers.Add(key, answer.Status.UserInfo.Username, knownFor)
	return answer.Status.UserInfo.Username, nil
}

// noRedirect refuses redirects: the request would take the token with it.
func noRedirect(*http.Request, []*http.Request) error { return errRedirect }
