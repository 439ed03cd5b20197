// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// parallel is how many questions a cluster is asked at a time.
const parallel = 8

// Right is a verb on a kind of object, in a namespace or in all.
type Right authorizationv1.ResourceAttributes

// what names the objects of the right.
func (r Right) what() string {
	text := r.Resource
	if r.Group != "" {
		text += "." + r.Group
	}
	if r.Subresource != "" {
		text += "/" + r.Subresource
	}
	if r.Namespace != "" {
		text += " in namespace " + r.Namespace
	}
	return text
}

// Missing returns which of some rights the caller lacks, a line for each kind of object, in the order of the rights.
func Missing(ctx context.Context, c kubernetes.Interface, rights []Right) ([]string, error) {
	denied := make([]bool, len(rights))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i, r := range rights {
		group.Go(func() error {
			question := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
				ResourceAttributes: (*authorizationv1.ResourceAttributes)(&r),
			}}
			answer, err := c.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, question, metav1.CreateOptions{})
			if err != nil {
				return fmt.Errorf("ask for the right to %s %s: %w", r.Verb, r.what(), err)
			}
			denied[i] = !answer.Status.Allowed
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var kinds []string
	verbs := map[string][]string{}
	for i, r := range rights {
		if !denied[i] {
			continue
		}
		if verbs[r.what()] == nil {
			kinds = append(kinds, r.what())
		}
		verbs[r.what()] = append(verbs[r.what()], r.Verb)
	}
	lines := make([]string, len(kinds))
	for i, kind := range kinds {
		lines[i] = kind + ": " + strings.Join(verbs[kind], ", ")
	}
	return lines, nil
}
