// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeconfigs

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
)

// maxToken is how many bytes a token of a service account may have. API servers make tokens of one or two KiB.
const maxToken = 16 << 10

// ServiceAccountToken is what a token of a service account says about itself. Only its cluster can check that.
type ServiceAccountToken struct {
	// Account is the service account.
	Account types.NamespacedName
	// SecretName and SecretUID are the Secret to which the token is bound, if it is. It ends with that Secret.
	SecretName string
	SecretUID  types.UID
	// Issued and Expires begin and end its life.
	Issued, Expires time.Time
}

// claims are the parts of a JWT that this package reads.
type claims struct {
	Exp        float64 `json:"exp"`
	Iat        float64 `json:"iat"`
	Kubernetes struct {
		Namespace      string `json:"namespace"`
		ServiceAccount struct {
			Name string `json:"name"`
		} `json:"serviceaccount"`
		Secret struct {
			Name string    `json:"name"`
			UID  types.UID `json:"uid"`
		} `json:"secret"`
	} `json:"kubernetes.io"`
}

// claimsOf returns false if a token is no JWT.
func claimsOf(token string) (of claims, ok bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return of, false
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return of, false
	}
	return of, json.Unmarshal(payload, &of) == nil
}

// timeOf returns zero if a claim is no time.
func timeOf(seconds float64) time.Time {
	const year9999 = 253402300799
	if seconds < 1 || seconds > year9999 {
		return time.Time{}
	}
	return time.Unix(int64(seconds), 0)
}

// ParseServiceAccountToken reads a token that a TokenRequest has made. Other tokens cannot be renewed, and are an error
// that quotes nothing of them.
func ParseServiceAccountToken(token string) (ServiceAccountToken, error) {
	if len(token) > maxToken {
		return ServiceAccountToken{}, fmt.Errorf("the token has %d bytes, and may have %d", len(token), maxToken)
	}
	of, ok := claimsOf(token)
	if !ok {
		return ServiceAccountToken{}, errors.New("the token is no JWT")
	}
	parsed := ServiceAccountToken{
		Account:    types.NamespacedName{Namespace: of.Kubernetes.Namespace, Name: of.Kubernetes.ServiceAccount.Name},
		SecretName: of.Kubernetes.Secret.Name, SecretUID: of.Kubernetes.Secret.UID,
		Issued: timeOf(of.Iat), Expires: timeOf(of.Exp),
	}
	switch {
	case parsed.Account.Namespace == "" || parsed.Account.Name == "":
		return ServiceAccountToken{}, errors.New("the token is not that of a service account")
	case parsed.Expires.IsZero() || !parsed.Issued.Before(parsed.Expires):
		return ServiceAccountToken{}, errors.New("the token does not say when it expires")
	}
	return parsed, nil
}

// ReplaceToken returns a kubeconfig with another token for the user of its only context. The kubeconfig is one that
// Parse accepts.
func ReplaceToken(data []byte, token string) ([]byte, error) {
	config, err := clientcmd.Load(data)
	if err != nil {
		return nil, errors.New("the kubeconfig cannot be decoded") // The decoder's own error can quote the input.
	}
	var users []string
	for _, c := range config.Contexts {
		if config.AuthInfos[c.AuthInfo] != nil && config.Clusters[c.Cluster] != nil {
			users = append(users, c.AuthInfo)
		}
	}
	if len(users) != 1 {
		return nil, fmt.Errorf("the kubeconfig has %d usable contexts, and must have one", len(users))
	}
	config.AuthInfos[users[0]].Token = token
	return clientcmd.Write(*config)
}
