// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/copies"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/internal/requeue"
)

const (
	// labelPodSecurity is the prefix of the labels by which a namespace says what its pods may do.
	labelPodSecurity    = "pod-security.kubernetes.io/"
	labelEnforce        = labelPodSecurity + "enforce"
	labelEnforceVersion = labelPodSecurity + "enforce-version"
	latestVersion       = "latest"
)

// namespace makes sure that the worker has the job's namespace, and that pods may do no more in it than on the hub. A
// new namespace gets the labels that say so. An existing namespace is left as it is.
func (p *propagation) namespace(ctx context.Context) error {
	name := p.job.GetNamespace()
	onHub, err := p.hubNamespace(ctx, name)
	if err != nil {
		return err
	}
	onWorker := metadataOf(corev1.SchemeGroupVersion.String(), "Namespace")
	err = p.worker.Get(ctx, types.NamespacedName{Name: name}, onWorker)
	switch {
	case err == nil:
		return p.checkPodSecurity(onHub, onWorker)
	case !apierrors.IsNotFound(err):
		return err
	case !*p.policy.Rules().Propagate.Namespaces:
		return p.forbidden("namespace", name)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: p.namespaceLabels(onHub.Labels)}}
	namespace.Labels[v1alpha1.LabelPropagatedBy] = p.hubID
	if err := p.worker.Create(ctx, namespace, records.FieldOwner); !apierrors.IsAlreadyExists(err) {
		return err
	}
	// Somebody else has made it, and the cache does not show its labels yet.
	reader, err := p.connection.APIReader()
	if err != nil {
		return err
	}
	if err := reader.Get(ctx, types.NamespacedName{Name: name}, onWorker); err != nil {
		return err
	}
	return p.checkPodSecurity(onHub, onWorker)
}

// hubNamespace is the namespace's metadata on the hub. A cache that does not show the namespace yet is a conflict.
func (p *propagation) hubNamespace(ctx context.Context, name string) (*metav1.PartialObjectMetadata, error) {
	onHub := metadataOf(corev1.SchemeGroupVersion.String(), "Namespace")
	err := p.hub.Get(ctx, types.NamespacedName{Name: name}, onHub)
	if apierrors.IsNotFound(err) {
		return nil, requeue.Outdated(err.Error())
	}
	if err != nil {
		//nolint:errorlint // The hub's answer must not be taken for the worker's.
		return nil, fmt.Errorf("get Namespace %q: %v", name, err)
	}
	return onHub, nil
}

// namespaceLabels are the labels of the hub's namespace that a new namespace on the worker gets: those of Pod Security,
// and those that an admin names and that could come with a copy too.
func (p *propagation) namespaceLabels(labels map[string]string) map[string]string {
	kept := map[string]string{}
	for key, value := range copies.Carried(labels, p.unsent) {
		if p.namespaceLabel != nil && p.namespaceLabel(key) {
			kept[key] = value
		}
	}
	for key, value := range labels {
		if strings.HasPrefix(key, labelPodSecurity) {
			kept[key] = value
		}
	}
	return kept
}

// checkPodSecurity refuses a namespace of the worker in which pods may do what they may not on the hub.
func (p *propagation) checkPodSecurity(onHub, onWorker *metav1.PartialObjectMetadata) error {
	difference := laxerThan(onHub.Labels, onWorker.Labels)
	if difference == "" || p.policy.Rules().Propagate.PodSecurity == v1alpha1.PodSecurityIgnore {
		return nil
	}
	allow := "a DispatchPolicy for the job"
	if p.policy != nil {
		allow = fmt.Sprintf("DispatchPolicy %q", p.policy.Name)
	}
	return refusal(fmt.Sprintf("namespace %q on worker %q lets pods do more than on the hub: %s; "+
		"or set spec.propagate.podSecurity: %s in %s", onHub.Name, p.cluster, difference, v1alpha1.PodSecurityIgnore, allow))
}

// laxerThan says how the labels of a worker's namespace let pods do more than the labels of the hub's, and what would
// be right. It is empty if they do not. If the hub's namespace enforces no level above privileged, no namespace of a
// worker is laxer. If only the hub's namespace has an enforce label, the worker's namespace is laxer: there the
// configuration of the API server decides, and the hub cannot read it.
func laxerThan(hub, worker map[string]string) string {
	claimed, ok := hub[labelEnforce]
	if !ok || strictness(claimed) == 0 {
		return ""
	}
	given, ok := worker[labelEnforce]
	switch {
	case !ok:
		return fmt.Sprintf("it has no label %s, which is %q on the hub; set it to %q there", labelEnforce, claimed, claimed)
	case strictness(given) < strictness(claimed):
		return fmt.Sprintf("its label %s is %q, and on the hub %q; set it to %q there", labelEnforce, given, claimed, claimed)
	case strictness(given) > strictness(claimed) || !isOlder(worker[labelEnforceVersion], hub[labelEnforceVersion]):
		return ""
	}
	wanted := hub[labelEnforceVersion]
	if wanted == "" {
		wanted = latestVersion
	}
	return fmt.Sprintf("its label %s is %q, and on the hub it is %q; set it to %q there",
		labelEnforceVersion, worker[labelEnforceVersion], wanted, wanted)
}

// strictness orders the levels. API servers treat an unknown level as restricted.
func strictness(level string) int {
	switch level {
	case "privileged":
		return 0
	case "baseline":
		return 1
	default:
		return 2
	}
}

// isOlder compares two versions of the levels, which get stricter with each release. An invalid version is the latest.
func isOlder(a, b string) bool {
	older, err := version.ParseMajorMinor(a)
	if err != nil {
		return false
	}
	newer, err := version.ParseMajorMinor(b)
	return err != nil || older.LessThan(newer)
}
