// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package multikueue

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	manifests "github.com/trainyard/trainyard/config"
	"github.com/trainyard/trainyard/remote/bounded"
)

const (
	// timeout is for one request to a worker.
	timeout = 10 * time.Second
	// parallel is how many questions a worker is asked at a time.
	parallel = 8
	// roleName is the name of the ClusterRole of config/worker.
	roleName = "trainyard-hub"
	// serviceAccount begins the user names of service accounts.
	serviceAccount = "system:serviceaccount:"
)

// right is what a ClusterRole grants for one resource, in all namespaces.
type right struct {
	schema.GroupResource
	verbs []string
}

// rightsOf returns the rights of a ClusterRole.
func rightsOf(role *rbacv1.ClusterRole) []right {
	var rights []right
	for _, rule := range role.Rules {
		for _, resource := range rule.Resources {
			rights = append(rights, right{schema.GroupResource{Group: rule.APIGroups[0], Resource: resource}, rule.Verbs})
		}
	}
	return rights
}

// Lack is what credentials may not do on a worker.
type Lack struct {
	// User is the worker's name for the owner of the credentials, or empty if the worker does not tell it.
	User string
	// Rights are the missing ones, a line for each resource.
	Rights []string
}

// lackOf asks a worker which rights of config/worker the credentials lack. It writes nothing there.
func lackOf(ctx context.Context, credentials *rest.Config) (*Lack, error) {
	config := rest.CopyConfig(credentials)
	config.QPS, config.Burst = -1, 0 // parallel limits the questions.
	config.UserAgent = "kubectl-trainyard"
	config.WarningHandler = rest.NoWarnings{}
	worker, err := bounded.Kubernetes(config, bounded.Limits{Timeout: timeout, Size: bounded.MaxSmall})
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	lack := &Lack{}
	review, err := worker.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	switch {
	case err == nil:
		lack.User = review.Status.UserInfo.Username
	case !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err): // Kubernetes before v1.28 has no such question.
		return nil, fmt.Errorf("ask who the user is: %w", err)
	}
	role, err := manifests.HubRole()
	if err != nil {
		return nil, err
	}
	lack.Rights, err = missing(ctx, worker, rightsOf(role))
	return lack, err
}

// missing asks for every verb, some at a time.
func missing(ctx context.Context, worker kubernetes.Interface, rights []right) ([]string, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	denied := make([][]bool, len(rights))
	var wait sync.WaitGroup
	tokens := make(chan struct{}, parallel)
	for i := range rights {
		denied[i] = make([]bool, len(rights[i].verbs))
		for j, verb := range rights[i].verbs {
			wait.Go(func() {
				tokens <- struct{}{}
				defer func() { <-tokens }()
				allowed, err := may(ctx, worker, rights[i], verb)
				if err != nil {
					cancel(err)
				}
				denied[i][j] = !allowed
			})
		}
	}
	wait.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	var lines []string
	for i, r := range rights {
		var verbs []string
		for j, verb := range r.verbs {
			if denied[i][j] {
				verbs = append(verbs, verb)
			}
		}
		if len(verbs) > 0 {
			lines = append(lines, r.String()+": "+strings.Join(verbs, ", "))
		}
	}
	return lines, nil
}

func may(ctx context.Context, worker kubernetes.Interface, r right, verb string) (bool, error) {
	question := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Group: r.Group, Resource: r.Resource, Verb: verb},
	}}
	answer, err := worker.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, question, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("ask for the right to %s %s: %w", verb, r.String(), err)
	}
	return answer.Status.Allowed, nil
}

// Grants returns the commands with which an admin of a worker grants the rights of config/worker to the user. They
// assume that the context has the worker's name.
func (l *Lack) Grants(worker string) []string {
	kubectl := "kubectl --context " + worker
	subject := "--user=" + l.User
	if account, ok := strings.CutPrefix(l.User, serviceAccount); ok {
		subject = "--serviceaccount=" + account
	} else if l.User == "" {
		subject = "--user=USER"
	}
	return []string{
		kubectl + " apply --server-side -k config/worker",
		fmt.Sprintf("%s create clusterrolebinding %s-import --clusterrole=%s %s", kubectl, roleName, roleName, subject),
	}
}
