// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation_test

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/trainyard/trainyard/test/check"
)

// near is a worker with room for two nodes that lists data.
func near(name, data string) string {
	return strings.Replace(worker(name, 2), "{kubeconfigPath: /kubeconfig}", "{kubeconfigPath: /kubeconfig}, data: ["+data+"]", 1)
}

// A simulation says where a job would run because of its data, and what would help a job whose data is nowhere.
func TestData(t *testing.T) {
	const (
		corpora = "{prefix: s3://corpora/, cost: 10}"
		scores  = "scoring: [{name: DataLocality}]"
	)
	reads := func(annotation string) string { return `annotations: {trainyard.dev/data: "` + annotation + `"}` }
	for name, test := range map[string]struct {
		reason    string
		documents []string
		want      string
	}{
		"Near": {
			reason:    "the policy has the score",
			documents: []string{near("east", corpora), worker("west", 2), job("a", 1, reads("preferred=s3://corpora/en")), policy("p", scores)},
			want: `
TrainJob research/a would run on worker east
  Why:       score 90: DataLocality 90 (s3://corpora costs 10); the highest of 2 workers on which the job fits
  Needs:     1x8 nvidia.com/gpu
  Data:      prefers s3://corpora/en
  Policy:    p
  Priority:  0
WORKER   RESULT          SCORE   MESSAGE
east     Fits (chosen)   90      DataLocality 90 (s3://corpora costs 10)
west     Fits            0       DataLocality 0 (s3://corpora is not listed)
`,
		},
		"Initializer": {
			reason: "a job need not say again what it reads",
			documents: []string{near("east", corpora), worker("west", 2), policy("p", scores),
				job("a", 1, "", "initializer: {dataset: {storageUri: s3://corpora/en}}")},
			want: `
TrainJob research/a would run on worker east
  Why:       score 90: DataLocality 90 (s3://corpora costs 10); the highest of 2 workers on which the job fits
  Needs:     1x8 nvidia.com/gpu
  Data:      prefers s3://corpora/en (spec.initializer.dataset.storageUri)
  Policy:    p
  Priority:  0
WORKER   RESULT          SCORE   MESSAGE
east     Fits (chosen)   90      DataLocality 90 (s3://corpora costs 10)
west     Fits            0       DataLocality 0 (s3://corpora is not listed)
`,
		},
		"Required": {
			reason:    "without a policy too",
			documents: []string{near("east", corpora), worker("west", 2), job("a", 1, reads("required=s3://corpora/en,preferred=s3://models"))},
			want: `
TrainJob research/a would run on worker east
  Why:       score 88: MostAllocated 88; the only worker on which the job fits
  Needs:     1x8 nvidia.com/gpu
  Data:      requires s3://corpora/en; what it prefers has no effect, because no DispatchPolicy with the score DataLocality applies to the job
  Policy:    <none>
  Priority:  0
WORKER   RESULT          SCORE   MESSAGE
east     Fits (chosen)   88      MostAllocated 88
west     DataElsewhere   -       spec.data of the worker has no prefix of s3://corpora/en, which the job requires; east lists all that it requires
`,
		},
		"Nowhere": {
			reason:    "nobody lists it",
			documents: []string{near("east", corpora), job("a", 1, reads("required=s3://corpora2/en"))},
			want: `
TrainJob research/a would wait (DataNotFound)
  Why:       no worker lists in spec.data all that the job requires by its annotation trainyard.dev/data: s3://corpora2/en
  Needs:     1x8 nvidia.com/gpu
  Data:      requires s3://corpora2/en
  Policy:    <none>
  Priority:  0
WORKER   RESULT          SCORE   MESSAGE
east     DataElsewhere   -       spec.data of the worker has no prefix of s3://corpora2/en, which the job requires
`,
		},
		"Invalid": {
			reason:    "it means nothing",
			documents: []string{near("east", corpora), job("a", 1, reads("s3://corpora/en"))},
			want: `
TrainJob research/a would wait (InvalidData)
  Why:       annotation trainyard.dev/data: must be required=URI or preferred=URI, or several of them separated by commas, such as preferred=s3://bucket/imagenet; it is "s3://corpora/en"
  Needs:     1x8 nvidia.com/gpu
  Policy:    <none>
  Priority:  0
`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			outcome, err := run(t, append(test.documents, torch)...)
			check.Must(t, err)
			var out bytes.Buffer
			table := func(out io.Writer, table *metav1.Table) error {
				return printers.NewTablePrinter(printers.PrintOptions{}).PrintObj(table, out)
			}
			check.Must(t, outcome.Print(&out, table, time.Now()))
			var got strings.Builder
			got.WriteString("\n")
			for line := range strings.Lines(out.String()) {
				got.WriteString(strings.TrimRight(line, " \n") + "\n")
			}
			check.Diff(t, test.want, got.String(), test.reason)
		})
	}
}
