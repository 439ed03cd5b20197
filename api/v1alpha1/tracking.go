// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"slices"
	"strings"
)

// TrackingNames returns the labels and annotations by which other tools know what they have applied to a cluster, and
// what they may delete there. A name that ends in * stands for all names that begin so. They are about the hub's object
// and never come to a worker: the same tool may manage the worker, and would delete what is not in its sources.
//
// docs/install.md has the list with the tools. A name belongs here if a tool deletes, or takes over, an object because of
// the name.
func TrackingNames() []string {
	return []string{
		// By convention of several tools: Argo CD with label tracking, Helm, Config Sync.
		"app.kubernetes.io/instance",
		"app.kubernetes.io/managed-by",
		// kubectl apply --prune: of an ApplySet by its label, else by its annotation.
		"applyset.kubernetes.io/*",
		"kubectl.kubernetes.io/last-applied-configuration",
		// Argo CD.
		"argocd.argoproj.io/*",
		// kpt and others with the library cli-utils.
		"config.k8s.io/owning-inventory",
		// Config Sync.
		"configmanagement.gke.io/*",
		"configsync.gke.io/*",
		// Flux, version 1 and 2.
		"fluxcd.io/*",
		"helm.toolkit.fluxcd.io/*",
		"kustomize.toolkit.fluxcd.io/*",
		// kapp.
		"kapp.k14s.io/*",
		// Kluctl.
		"kluctl.io/*",
		// Helm.
		"meta.helm.sh/*",
		// Rancher, K3s and Fleet.
		"objectset.rio.cattle.io/*",
		// Tanka.
		"tanka.dev/*",
	}
}

// IsTrackingName says whether a label or an annotation is one of TrackingNames.
func IsTrackingName(key string) bool {
	return slices.ContainsFunc(TrackingNames(), func(pattern string) bool {
		beginning, isPrefix := strings.CutSuffix(pattern, "*")
		return key == pattern || isPrefix && strings.HasPrefix(key, beginning)
	})
}
