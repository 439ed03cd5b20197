// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package expressions

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/trainyard/trainyard/test/check"
)

// The explanation of a worker that an expression does not admit has the values of the worker that the expression reads.
func TestReads(t *testing.T) {
	for name, test := range map[string]struct {
		reason, text, want string
	}{
		"Field":   {reason: "its value", text: "worker.kubernetesVersion == 'v1.0.0'", want: `worker.kubernetesVersion is "v1.36.2"`},
		"Numbers": {reason: "sorted, each once", text: "worker.gpus > worker.freeGPUs && worker.gpus > 1", want: "worker.freeGPUs is 14, worker.gpus is 20"},
		"Keys": {
			reason: "however they are written", want: `worker.labels["region"] is "eu", worker.labels["rack"] is not there, worker.labels["zone"] is not there`,
			text: "worker.labels.region == 'us' && worker.labels['rack'] == 'a' && worker.labels[?'zone'].orValue('') == 'b'",
		},
		"Has":     {reason: "a question for a key is a read", text: "has(worker.labels.zone) || 'region' in worker.labels", want: `worker.labels["region"] is "eu", worker.labels["zone"] is not there`},
		"Amounts": {reason: "of resources", text: "worker.price['nvidia.com/gpu'] < 1.0", want: `worker.price["nvidia.com/gpu"] is 2.5`},
		"Lists":   {reason: "they are too long", text: "worker.nodeGroups.exists(g, g.product == 'A100')"},
		"Maps":    {reason: "as a whole they are too long", text: "worker.labels.exists(k, k == job.name)"},
		"OfJob":   {reason: "the user knows the job", text: "job.priority > 100"},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := Compile(test.text)
			check.Must(t, err)
			got, want := strings.Split(e.Reads(testWorker()), ", "), strings.Split(test.want, ", ")
			if len(got) != len(want) {
				t.Fatalf("Reads() = %q, want %q: %s", got, want, test.reason)
			}
			for _, part := range want {
				if !strings.Contains(strings.Join(got, ", "), part) {
					t.Errorf("Reads() = %q, want %q: %s", got, want, test.reason)
				}
			}
		})
	}
}

// The values that are shown have a limit, whatever a worker says of itself.
func TestReadsAreShort(t *testing.T) {
	var text strings.Builder
	text.WriteString("worker.kubernetesVersion == 'a'")
	for i := range 50 {
		fmt.Fprintf(&text, " && worker.labels['label-%d'] == 'a'", i)
	}
	e, err := Compile(text.String())
	check.Must(t, err)
	worker := testWorker()
	worker.KubernetesVersion = strings.Repeat("é", 1<<20)
	if got := e.Reads(worker); len(got) > 1024 {
		t.Errorf("Reads() has %d bytes", len(got))
	}
}

// docs/policy.md has a table of comparisons of versions, and what they say of which version.
func TestVersionsInDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/policy.md")
	check.Must(t, err)
	var versions []string
	rows := 0
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case cells[0] == "expression" && len(cells) > 2:
			versions = cells[1:]
			continue
		case len(versions) == 0 || !strings.Contains(cells[0], "semver(worker.kubernetesVersion") || len(cells) != len(versions)+1:
			continue
		}
		rows++
		e, err := Compile(strings.Split(cells[0], "`")[1])
		check.Must(t, err)
		for i, version := range versions {
			worker := testWorker()
			worker.KubernetesVersion = version
			got, err := e.For(testJob())(worker)
			if err != nil || fmt.Sprint(got) != cells[i+1] {
				t.Errorf("%s is %t for %s, %v, and the page says %s", cells[0], got, version, err, cells[i+1])
			}
		}
	}
	if rows < 5 {
		t.Errorf("the page has %d comparisons of versions, want at least 5", rows)
	}
}
