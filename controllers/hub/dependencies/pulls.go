// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dependencies

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// A ServiceAccount names Secrets to pull images with, which pods need not name. They come with the account, if they have the
// consent of their owner too: who may write an account need not be allowed to read a Secret. Neither the Dispatch nor the copy
// names them, so what names the account counts as naming them.

// kindAccount and kindSecret are kinds of contents.
const kindAccount, kindSecret = "ServiceAccount", "Secret"

// pullsOf are the names of the Secrets that an account pulls images with, and of those with which it did so before: pods that are
// there name what it named when they were created. It is not nil for an account.
func pullsOf(sent *full, before []string) []string {
	if sent.GetKind() != kindAccount {
		return nil
	}
	names := append([]string{}, before...)
	references, _ := sent.Object["imagePullSecrets"].([]any)
	for _, reference := range references {
		fields, _ := reference.(map[string]any)
		if name, _ := fields["name"].(string); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Pulls says whether an account that was brought to the worker pulls images with a Secret.
func (k *Reconciler) Pulls(namespace string, secret v1alpha1.Dependency) bool {
	return secret.Kind == kindSecret && k.known.pull(object{Namespace: namespace, Dependency: secret})
}

// pulled are the Secrets that the accounts among these objects pull images with. unknown are the accounts that this process has
// not written.
func (m *memory) pulled(named sets.Set[object]) (secrets, unknown sets.Set[object]) {
	secrets, unknown = sets.Set[object]{}, sets.Set[object]{}
	for o := range named {
		if o.Kind != kindAccount {
			continue
		}
		known := m.of(o)
		if known.pulls == nil {
			unknown.Insert(o)
		}
		for _, name := range known.pulls {
			secrets.Insert(object{Namespace: o.Namespace, Dependency: dependency{Kind: kindSecret, Name: name}})
		}
	}
	return secrets, unknown
}

// pulledBy are the Secrets that the accounts among the wanted objects pull images with, without those that are wanted anyway.
func (m *memory) pulledBy(all []wanted) (more []dependency) {
	named := sets.Set[object]{}
	for _, w := range all {
		named.Insert(w.object)
	}
	secrets, _ := m.pulled(named)
	for o := range secrets.Difference(named) {
		more = append(more, o.Dependency)
	}
	slices.SortFunc(more, func(a, b dependency) int { return strings.Compare(a.Name, b.Name) })
	return more
}
