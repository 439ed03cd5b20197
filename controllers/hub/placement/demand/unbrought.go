// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"fmt"
	"strings"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// mostUnbrought is how many objects Unbrought names.
const mostUnbrought = 8

// Unbrought says of objects that pods need, and that have no consent in a namespace of the hub, that nobody brings them to a
// worker. It is empty for none.
func Unbrought(missing []v1alpha1.Dependency, namespace string) string {
	if len(missing) == 0 {
		return ""
	}
	var names []string
	for _, dependency := range missing[:min(len(missing), mostUnbrought)] {
		names = append(names, fmt.Sprintf("%s %q", dependency.Kind, dependency.Name))
	}
	if more := len(missing) - mostUnbrought; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return fmt.Sprintf("the pods need %s, and namespace %q of the hub has no such object with the label %s=%s: nothing is brought "+
		"to a worker, which must have it already", strings.Join(names, ", "), namespace, v1alpha1.LabelPropagate, v1alpha1.PropagateYes)
}
