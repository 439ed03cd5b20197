// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"fmt"
	"strings"
	"testing"

	"github.com/trainyard/trainyard/test/check"
)

// An initializer has the nodes for itself only if the other jobs wait for its end.
func TestConcurrentInitializers(t *testing.T) {
	d := newTestDeriver(t)
	const dataset, model = "dataset-initializer", "model-initializer"
	type job struct{ name, dependsOn string }
	for name, test := range map[string]struct {
		reason string
		jobs   []job
		want   []string // want has the concurrent initializers.
	}{
		"InOrder": {
			reason: "each waits for the one before it", jobs: []job{{dataset, ""}, {model, dataset + "=Complete"}, {"node", model + "=Complete"}},
		},
		"SideBySide": {
			reason: "the initializers run at the same time, and before the trainer",
			jobs:   []job{{dataset, ""}, {model, ""}, {"node", dataset + "=Complete," + model + "=Complete"}},
		},
		"Nobody": {reason: "nothing waits for it", jobs: []job{{dataset, ""}, {"node", ""}}, want: []string{dataset}},
		"Ready": {
			reason: "the trainer starts when it is ready, while it runs", jobs: []job{{dataset, ""}, {"node", dataset + "=Ready"}}, want: []string{dataset},
		},
		"OneOfTwo": {
			reason: "the trainer waits for one of two", jobs: []job{{dataset, ""}, {model, ""}, {"node", dataset + "=Complete"}},
			// The model initializer does not wait for the dataset initializer: they run at the same time.
			want: []string{dataset, model},
		},
		"LateInitializer": {
			reason: "an initializer that waits for the other one, and for which nobody waits",
			jobs:   []job{{dataset, ""}, {model, dataset + "=Complete"}, {"node", dataset + "=Complete"}}, want: []string{model},
		},
		"Indirectly": {
			reason: "the launcher waits for the trainer, which has waited",
			jobs:   []job{{dataset, ""}, {"node", dataset + "=Complete"}, {"launcher", "node=Ready"}},
		},
		"Evaluator": {
			reason: "some of the others do not wait", jobs: []job{{dataset, ""}, {"node", dataset + "=Complete"}, {"evaluator", ""}}, want: []string{dataset},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var runtime strings.Builder
			runtime.WriteString("mlPolicy: {numNodes: 1}\ntemplate:\n  spec:\n    replicatedJobs:\n")
			for _, j := range test.jobs {
				fmt.Fprintf(&runtime, "    - name: %s\n", j.name)
				if j.dependsOn != "" {
					runtime.WriteString("      dependsOn:\n")
					for dependency := range strings.SplitSeq(j.dependsOn, ",") {
						name, status, _ := strings.Cut(dependency, "=")
						fmt.Fprintf(&runtime, "      - {name: %s, status: %s}\n", name, status)
					}
				}
				fmt.Fprintf(&runtime, "      template: {metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: %s}}, "+
					"spec: {template: {spec: {containers: [{name: c, image: i}]}}}}\n", strings.Replace(j.name, "node", "trainer", 1))
			}
			trainJob, spec := jobOf(t, runtime.String(), nil)
			demand, err := d.derive(trainJob, spec)
			check.Must(t, err)
			var got []string
			for _, podSet := range demand.PodSets {
				if podSet.Concurrent {
					got = append(got, podSet.Name)
				}
			}
			check.Diff(t, test.want, got, fmt.Sprintf("concurrent initializers: %s", test.reason))
		})
	}
}
