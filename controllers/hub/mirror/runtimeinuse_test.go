// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

// NewerName is for tests on clusters.
var NewerName = newerName

// TestNewerName: each version of a runtime has a name of its own, which is valid.
func TestNewerName(t *testing.T) {
	for _, name := range []string{"torch", strings.Repeat("x", 253), strings.Repeat("x", 243) + ".y" + strings.Repeat("x", 8)} {
		first, second := newerName(name, "uid.1"), newerName(name, "uid.2")
		if first == second || first == name || first != newerName(name, "uid.1") {
			t.Errorf("the names of two versions are %q and %q", first, second)
		}
		if faults := validation.IsDNS1123Subdomain(first); len(faults) > 0 {
			t.Errorf("%q: %v", first, faults)
		}
	}
}
