// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// DeviceClaims begins the names under which ResourceClaims count that may fit nowhere though there are as many devices as
// they need. A node that does not list such a name takes any number. No container can request it.
const DeviceClaims = "~claim/"

// NameOfDeviceClaim returns the name of ResourceClaims. The digest is of their requests and constraints, and the words
// say for people what they request.
func NameOfDeviceClaim(digest, words string) corev1.ResourceName {
	return corev1.ResourceName(DeviceClaims + digest + "/" + words)
}

// IsDeviceClaim says whether a name is that of ResourceClaims.
func IsDeviceClaim(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), DeviceClaims)
}

// IsClaimed says whether a name is that of devices that pods claim (ClaimedDevices), or of ResourceClaims.
func IsClaimed(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), ClaimedDevices) || IsDeviceClaim(name)
}

// WordsOfDeviceClaim returns the words in the name of ResourceClaims.
func WordsOfDeviceClaim(name corev1.ResourceName) string {
	_, words, _ := strings.Cut(strings.TrimPrefix(string(name), DeviceClaims), "/")
	return words
}
