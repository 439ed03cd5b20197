// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workercluster

import (
	"encoding/json"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/trainyard/trainyard/api/hostports"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/capacity"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/remote"
)

// These limits are for what a worker reports. A real API server reports no more. A worker that reports more must not
// make the hub's API server refuse the status: then nobody would see anything of that worker any more.
const (
	// versionLimit, fieldsLimit, fieldLimit, pathLimit and productLimit are limits of the CRD.
	versionLimit = 63
	fieldsLimit  = 64
	fieldLimit   = 63
	pathLimit    = 253
	productLimit = 253
	// qualifiedLimit is Kubernetes' limit for keys of labels and taints and names of resources, valueLimit for values.
	qualifiedLimit = 253 + 1 + 63
	valueLimit     = 63
	// resourcesLimit is how many resources of a node are shown. Nodes have about ten.
	resourcesLimit = 64
	// groupsSize is how many bytes of JSON all node groups may have. etcd takes 1.5 MiB for an object.
	groupsSize = 512 << 10
)

func setVersions(status *v1alpha1.WorkerClusterStatus, connection remote.Status) {
	status.KubernetesVersion = record.Cut(connection.KubernetesVersion, versionLimit)
	trainer := &connection.Trainer
	status.Trainer = &v1alpha1.TrainerAPI{
		Version: record.Cut(trainer.Version, versionLimit), Release: trainer.Release,
		Fields: withoutLong(trainer.Fields, fieldLimit), Missing: withoutLong(trainer.Missing, pathLimit),
		Untranslatable:    withoutLong(trainer.Untranslatable, pathLimit),
		MissingOfRuntimes: withoutLong(trainer.MissingOfRuntimes, pathLimit),
	}
}

// withoutLong returns the fields that fit into the status. A job that uses one of the others is refused by the worker.
func withoutLong(fields []string, limit int) []string {
	isLong := func(field string) bool { return len(field) > limit }
	if len(fields) > fieldsLimit || slices.ContainsFunc(fields, isLong) {
		fields = slices.DeleteFunc(slices.Clone(fields), isLong)
		fields = fields[:min(len(fields), fieldsLimit)]
	}
	return fields
}

// canShow is true for taints that fit into the status.
func canShow(taints []corev1.Taint) bool {
	return len(taints) <= taintLimit && !slices.ContainsFunc(taints, func(taint corev1.Taint) bool {
		return len(taint.Key) > qualifiedLimit || len(taint.Value) > valueLimit
	})
}

// shownOf returns the resources that the status shows. A node with more resources seems to have less.
func shownOf(resources capacity.Resources) capacity.Resources {
	isLong := func(name corev1.ResourceName) bool { return len(name) > qualifiedLimit }
	names := slices.Collect(maps.Keys(resources))
	if len(names) <= resourcesLimit && !slices.ContainsFunc(names, isLong) {
		return resources
	}
	names = slices.DeleteFunc(names, isLong)
	// "cpu", "memory" and others without a domain come first. A GPU may be missing: then nothing fits.
	slices.Sort(names)
	shown := make(capacity.Resources, resourcesLimit)
	kept := names[:min(len(names), resourcesLimit)]
	// A host port that is left out would seem to be free.
	if slices.ContainsFunc(names[len(kept):], hostports.Is) {
		kept = kept[:len(kept)-1]
		shown[hostports.Others] = 0
	}
	for _, name := range kept {
		shown[name] = resources[name]
	}
	return shown
}

// withinLimit drops groups from the end, where the smallest are, as long as all groups together are too large.
func withinLimit(groups []v1alpha1.NodeGroup) []v1alpha1.NodeGroup {
	for len(groups) > 0 {
		data, err := json.Marshal(groups)
		if err == nil && len(data) <= groupsSize {
			break
		}
		groups = groups[:len(groups)/2]
	}
	return groups
}
