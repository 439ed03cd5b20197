// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/kubeconfigs"
	"github.com/trainyard/trainyard/remote/bounded"
)

const (
	// leastLife is the shortest life of a token that is taken, from the hub's request on. API servers make tokens that live
	// for ten minutes or longer, but their clocks can differ from the hub's. So two renewals have a minute between them: 40
	// % of it.
	leastLife = 150 * time.Second
	// maxMessage is how many bytes of a worker's words are quoted.
	maxMessage = 1024
)

// renew gets a token from the worker and tries it there. It returns the kubeconfig with it, and its fingerprint.
func (r *Reconciler) renew(
	ctx context.Context, secret *corev1.Secret, credentials *kubeconfigs.Credentials,
) (kubeconfig []byte, fingerprint string, err error) {
	present, err := kubeconfigs.ParseServiceAccountToken(credentials.Config.BearerToken)
	if err != nil {
		return nil, "", err
	}
	fresh, err := r.request(ctx, credentials.Config, present)
	if err != nil {
		return nil, "", fmt.Errorf("create a token of ServiceAccount %s on the worker: %w", present.Account, inShort(err))
	}
	if err := examine(fresh, present, r.Clock.Now()); err != nil {
		return nil, "", fmt.Errorf("the worker's new token is not taken: %w", err)
	}
	kubeconfig, err = kubeconfigs.ReplaceToken(secret.Data[kubeconfigs.SecretKey], fresh)
	if err != nil {
		return nil, "", err
	}
	loaded, err := kubeconfigs.Parse(kubeconfig, r.Clock.Now())
	if err != nil {
		return nil, "", fmt.Errorf("the worker's new token is not taken: %w", err)
	}
	if err := r.try(ctx, loaded.Config); err != nil {
		return nil, "", fmt.Errorf("try the new token on the worker: %w", inShort(err))
	}
	return kubeconfig, loaded.Fingerprint, nil
}

// examine says what is wrong with a new token. The worker is not believed: a token that cannot be renewed in its turn,
// or that would be due at once, does not take the place of one that works.
func examine(fresh string, present kubeconfigs.ServiceAccountToken, now time.Time) error {
	token, err := kubeconfigs.ParseServiceAccountToken(fresh)
	switch life := endOf(token.Issued, token.Expires, now).Sub(now); {
	case err != nil:
		return err
	case token.Account != present.Account:
		return fmt.Errorf("it is of ServiceAccount %s, and must be of %s", token.Account, present.Account)
	case token.SecretName != present.SecretName || token.SecretUID != present.SecretUID:
		return fmt.Errorf("it is bound to the Secret %q, and must be bound to %q with the same UID",
			token.SecretName, present.SecretName)
	case life < leastLife:
		return fmt.Errorf("it ends at %s, and must live for at least %s from now on", token.Expires.UTC().Format(time.RFC3339), leastLife)
	}
	return nil
}

// store writes a kubeconfig into a Secret, and when its token was requested. If somebody has changed the Secret in the
// meantime, that is a conflict.
func (r *Reconciler) store(ctx context.Context, secret *corev1.Secret, kubeconfig []byte, of renewal) error {
	updated := secret.DeepCopy()
	updated.Data[kubeconfigs.SecretKey] = kubeconfig
	if updated.Annotations == nil {
		updated.Annotations = map[string]string{}
	}
	updated.Annotations[v1alpha1.AnnotationRenewed] = of.String()
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
func (r *Reconciler) try(ctx context.Context, config *rest.Config) error {
	worker, err := r.clientFor(config)
	if err != nil {
		return err
	}
	_, err = worker.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	return err
}

func (r *Reconciler) clientFor(config *rest.Config) (kubernetes.Interface, error) {
	config = rest.CopyConfig(config)
	config.UserAgent = "trainyard-manager"
	config.WarningHandler = rest.NoWarnings{}
	return bounded.Kubernetes(config, bounded.Limits{Timeout: r.Timeout, Size: bounded.MaxSmall})
}

// renewal is when the hub has requested the token of a kubeconfig, by the hub's clock.
type renewal struct {
	requested   time.Time
	fingerprint string
}

// String returns the value of v1alpha1.AnnotationRenewed.
func (r renewal) String() string { return r.requested.UTC().Format(time.RFC3339) + "/" + r.fingerprint }

// requestedAt returns when the hub has requested the token of these credentials. It returns zero if somebody else has
// made them.
func requestedAt(secret *corev1.Secret, credentials *kubeconfigs.Credentials) time.Time {
	at, fingerprint, _ := strings.Cut(secret.Annotations[v1alpha1.AnnotationRenewed], "/")
	requested, err := time.Parse(time.RFC3339, at)
	if err != nil || fingerprint != credentials.Fingerprint {
		return time.Time{}
	}
	return requested
}

// endOf returns the end of a token that the hub has requested, by the hub's clock. The worker's clock can be wrong, and
// the worker can lie. A clock that is behind makes a token end early, because the hub refuses what has expired. With a
// clock that is ahead a token ends when it has lived for as long as the worker said.
func endOf(issued, expires, requested time.Time) time.Time {
	if end := requested.Add(expires.Sub(issued)); end.Before(expires) {
		return end
	}
	return expires
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
