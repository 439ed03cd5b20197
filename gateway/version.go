// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"maps"
	"slices"
	"strings"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

const (
	// versionPrefix begins the resource versions that this gateway makes. No API server makes such ones.
	versionPrefix = "trainyard"
	// ofHub is the name of the hub in a versions. No worker can have it.
	ofHub v1alpha1.ClusterName = ""
	// unknown is the version of a cluster of which a client has had a part only. No watch can go on there.
	unknown = "0"
	// maxVersion bounds what a caller can make the gateway parse.
	maxVersion = 64 << 10
)

// versions are the resource versions of several clusters. Their text is the resource version of merged lists, of the
// bookmarks of merged watches, and of pods of workers: a watch that begins with it goes on everywhere. Objects of the
// hub keep the hub's resource version, so that they can be written.
//
// The text is "trainyard/CLUSTER:VERSION/CLUSTER:VERSION", sorted, and the hub has no name.
type versions map[v1alpha1.ClusterName]string

// String returns the text.
func (v versions) String() string {
	var text strings.Builder
	text.WriteString(versionPrefix)
	for _, name := range slices.Sorted(maps.Keys(v)) {
		text.WriteString("/" + string(name) + ":" + v[name])
	}
	return text.String()
}

// torn says whether no watch can go on at these versions.
func (v versions) torn() bool {
	for _, version := range v {
		if version == unknown {
			return true
		}
	}
	return false
}

// parseVersions reads a resource version. ok is false if no gateway has made it.
func parseVersions(text string) (v versions, ok bool) {
	parts := strings.Split(text, "/")
	if parts[0] != versionPrefix || len(text) > maxVersion {
		return nil, false
	}
	v = versions{}
	for _, part := range parts[1:] {
		name, version, found := strings.Cut(part, ":")
		if !found || !isNumber(version) {
			return nil, false
		}
		v[v1alpha1.ClusterName(name)] = version
	}
	return v, true
}

func isNumber(text string) bool {
	return text != "" && len(text) <= 20 && strings.Trim(text, "0123456789") == ""
}
