// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
)

const (
	labelEnforce        = labelPodSecurity + "enforce"
	labelEnforceVersion = labelPodSecurity + "enforce-version"
	latestVersion       = "latest"
)

// laxerThan says how the labels of a worker's namespace let pods do more than those of the hub's, and what would be
// right; it is empty if they do not. A hub that enforces nothing by label claims nothing. A worker that enforces
// nothing by label does what its API server was configured for, which nobody can see: it is laxer than any claim.
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

// strictness orders the levels. API servers take one that they do not know for restricted.
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

// isOlder compares two versions of the levels, which get stricter with each release. No version, and one that is none,
// is the latest.
func isOlder(a, b string) bool {
	older, err := version.ParseMajorMinor(a)
	if err != nil {
		return false
	}
	newer, err := version.ParseMajorMinor(b)
	return err != nil || older.LessThan(newer)
}
