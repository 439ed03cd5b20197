// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workercluster

import (
	"encoding/json"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/capacity"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/remote"
)

// What a worker may say. An API server that is what it should be says no more, but a worker that says more must not
// make the hub's API server refuse the status: then nothing would be said of the worker any more.
const (
	// versionLimit, fieldsLimit, fieldLimit and productLimit are those of the CRD.
	versionLimit = 63
	fieldsLimit  = 64
	fieldLimit   = 63
	productLimit = 253
	// qualifiedLimit and valueLimit are those that Kubernetes has for keys of labels, names of resources and keys of
	// taints, and for values.
	qualifiedLimit = 253 + 1 + 63
	valueLimit     = 63
	// resourcesLimit is how many resources are shown of a node. Nodes have about ten.
	resourcesLimit = 64
	// groupsSize is how many bytes of JSON all node groups may have. etcd takes 1.5 MiB for an object.
	groupsSize = 512 << 10
)

// setVersions shows what the worker's API server and its TrainJob API are.
func setVersions(status *v1alpha1.WorkerClusterStatus, connection remote.Status) {
	status.KubernetesVersion = record.Cut(connection.KubernetesVersion, versionLimit)
	fields := connection.Trainer.Fields
	if len(fields) > fieldsLimit || slices.ContainsFunc(fields, isLong) {
		fields = slices.DeleteFunc(slices.Clone(fields), isLong)
		fields = fields[:min(len(fields), fieldsLimit)]
	}
	status.Trainer = &v1alpha1.TrainerAPI{Version: record.Cut(connection.Trainer.Version, versionLimit), Fields: fields}
}

func isLong(field string) bool { return len(field) > fieldLimit }

// canShow is true for taints that the status takes.
func canShow(taints []corev1.Taint) bool {
	return len(taints) <= taintLimit && !slices.ContainsFunc(taints, func(taint corev1.Taint) bool {
		return len(taint.Key) > qualifiedLimit || len(taint.Value) > valueLimit
	})
}

// shownOf are the resources that the status shows. A node that has more seems to have less.
func shownOf(resources capacity.Resources) capacity.Resources {
	isLong := func(name corev1.ResourceName) bool { return len(name) > qualifiedLimit }
	names := slices.Collect(maps.Keys(resources))
	if len(names) <= resourcesLimit && !slices.ContainsFunc(names, isLong) {
		return resources
	}
	names = slices.DeleteFunc(names, isLong)
	slices.Sort(names) // "cpu", "memory" and their like have no domain; what they miss is GPUs, and then nothing fits.
	shown := make(capacity.Resources, resourcesLimit)
	for _, name := range names[:min(len(names), resourcesLimit)] {
		shown[name] = resources[name]
	}
	return shown
}

// withinLimit leaves out the smallest groups, which are the last, as long as all of them together are too large.
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
