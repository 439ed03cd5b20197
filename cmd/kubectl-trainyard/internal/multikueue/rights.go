// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package multikueue

import (
	"context"
	"fmt"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	manifests "github.com/trainyard/trainyard/config"
	"github.com/trainyard/trainyard/internal/cluster"
	"github.com/trainyard/trainyard/remote/bounded"
)

const (
	// timeout is for one request to a worker.
	timeout = 10 * time.Second
	// roleName is the name of the ClusterRole of config/worker.
	roleName = "trainyard-hub"
	// serviceAccount begins the user names of service accounts.
	serviceAccount = "system:serviceaccount:"
)

// rightsOf returns the rights of a ClusterRole, in its order.
func rightsOf(role *rbacv1.ClusterRole) []cluster.Right {
	var rights []cluster.Right
	for _, rule := range role.Rules {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				rights = append(rights, cluster.Right{Group: rule.APIGroups[0], Resource: resource, Verb: verb})
			}
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
	config.QPS, config.Burst = -1, 0 // cluster.Missing asks some questions at a time.
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
	lack.Rights, err = cluster.Missing(ctx, worker, rightsOf(role))
	return lack, err
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
