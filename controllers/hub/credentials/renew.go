// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/kubeconfigs"
)

// renew gets a token from the worker and tries it there. It returns the kubeconfig with it.
func (r *Reconciler) renew(ctx context.Context, secret *corev1.Secret, credentials *kubeconfigs.Credentials) ([]byte, error) {
	present, err := kubeconfigs.ParseServiceAccountToken(credentials.Config.BearerToken)
	if err != nil {
		return nil, err
	}
	fresh, err := r.request(ctx, credentials.Config, present)
	if err != nil {
		return nil, fmt.Errorf("create a token of ServiceAccount %s on the worker: %w", present.Account, inShort(err))
	}
	if err := r.try(ctx, credentials.Config, fresh); err != nil {
		return nil, fmt.Errorf("try the new token on the worker: %w", inShort(err))
	}
	return kubeconfigs.ReplaceToken(secret.Data[kubeconfigs.SecretKey], fresh)
}

// store writes a kubeconfig into a Secret, unless somebody has changed the Secret in the meantime: that is a conflict.
func (r *Reconciler) store(ctx context.Context, secret *corev1.Secret, kubeconfig []byte) error {
	updated := secret.DeepCopy()
	updated.Data[kubeconfigs.SecretKey] = kubeconfig
	patch := client.MergeFromWithOptions(secret, client.MergeFromWithOptimisticLock{})
	if err := r.Hub.Patch(ctx, updated, patch, records.FieldOwner); err != nil {
		return fmt.Errorf("patch Secret %q: %w", secret.Name, err)
	}
	return nil
}

// request asks the worker for a token like the present one.
func (r *Reconciler) request(ctx context.Context, config *rest.Config, present kubeconfigs.ServiceAccountToken) (string, error) {
	worker, err := r.clientFor(config)
	if err != nil {
		return "", err
	}
	seconds := int64(present.Expires.Sub(present.Issued) / time.Second)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	if present.SecretName != "" {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{
			Kind: "Secret", APIVersion: "v1", Name: present.SecretName, UID: present.SecretUID,
		}
	}
	answer, err := worker.CoreV1().ServiceAccounts(present.Account.Namespace).
		CreateToken(ctx, present.Account.Name, request, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return answer.Status.Token, nil
}

// try asks the worker a question that takes no right but a valid token.
func (r *Reconciler) try(ctx context.Context, config *rest.Config, token string) error {
	config = rest.CopyConfig(config)
	config.BearerToken = token
	worker, err := r.clientFor(config)
	if err != nil {
		return err
	}
	_, err = worker.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	return err
}

func (r *Reconciler) clientFor(config *rest.Config) (kubernetes.Interface, error) {
	config = rest.CopyConfig(config)
	config.Timeout = r.Timeout
	config.UserAgent = "trainyard-manager"
	config.WarningHandler = rest.NoWarnings{}
	return kubernetes.NewForConfig(config)
}

// inShort drops the addresses of an error of the network: a port of ours in it would change the message with each try.
func inShort(err error) error {
	var operation *net.OpError
	var request *url.Error
	switch {
	case errors.As(err, &operation):
		return operation.Err
	case errors.As(err, &request):
		return request.Err
	}
	return err
}
