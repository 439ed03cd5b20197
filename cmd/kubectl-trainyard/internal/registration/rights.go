// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// parallel is how many questions a cluster is asked at a time.
const parallel = 8

// right is a verb on a kind of object, in a namespace or in all.
type right struct {
	group, resource, subresource, namespace, verb string
}

// what names the objects of the right.
func (r right) what() string {
	text := r.resource
	if r.group != "" {
		text += "." + r.group
	}
	if r.subresource != "" {
		text += "/" + r.subresource
	}
	if r.namespace != "" {
		text += " in namespace " + r.namespace
	}
	return text
}

// rightsFor are the rights to use some verbs on objects, each once.
func rightsFor(objects []*unstructured.Unstructured, verbs ...string) []right {
	var all []right
	for _, object := range objects {
		resource := resourceOf(object.GroupVersionKind())
		for _, verb := range verbs {
			r := right{group: resource.Group, resource: resource.Resource, namespace: object.GetNamespace(), verb: verb}
			if !slices.Contains(all, r) {
				all = append(all, r)
			}
		}
	}
	return all
}

// missing returns the rights that the caller lacks, a line for each kind of object, sorted.
func (c *Cluster) missing(ctx context.Context, rights []right) ([]string, error) {
	var (
		wait   sync.WaitGroup
		mu     sync.Mutex
		denied = map[string][]string{}
		failed error
		tokens = make(chan struct{}, parallel)
	)
	for _, r := range rights {
		wait.Go(func() {
			tokens <- struct{}{}
			defer func() { <-tokens }()
			allowed, err := c.may(ctx, r)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				failed = err
			case !allowed:
				denied[r.what()] = append(denied[r.what()], r.verb)
			}
		})
	}
	wait.Wait()
	var texts []string
	for _, what := range sorted(denied) {
		slices.Sort(denied[what])
		texts = append(texts, what+": "+strings.Join(denied[what], ", "))
	}
	return texts, failed
}

func (c *Cluster) may(ctx context.Context, r right) (bool, error) {
	question := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Group: r.group, Resource: r.resource, Subresource: r.subresource, Namespace: r.namespace, Verb: r.verb,
		},
	}}
	answer, err := c.kubernetes.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, question, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("ask the %s for the right to %s %s: %w", c.Side, r.verb, r.what(), err)
	}
	return answer.Status.Allowed, nil
}
