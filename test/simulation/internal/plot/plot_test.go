// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package plot

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/simulation/internal/report"
	"github.com/trainyard/trainyard/test/simulation/internal/stream"
	"github.com/trainyard/trainyard/test/simulation/internal/world"
)

// run has jobs of one size that waited for so many seconds.
func run(system string, seed uint64, waits ...int) report.Summary {
	job := &stream.Job{Pods: []stream.Pods{{Count: 1, GPUs: 4}}, Duration: time.Second}
	r := world.Result{Series: []float64{0.5, 0.9, 0.7}, Step: time.Hour}
	for _, wait := range waits {
		r.Records = append(r.Records, world.Record{Job: job, Done: true, Ended: time.Duration(wait+1) * time.Second, Ran: time.Second})
	}
	return report.Summarize(report.Run{System: system, Seed: seed, Window: world.Span{To: time.Hour}, Result: r})
}

// TestWellFormed: what is written is XML, whatever systems are called, with a line for each of them. Systems without
// jobs and waits of zero have no numbers that are none.
func TestWellFormed(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "new")
	plots := Plots{
		Subtitle: "a & b", Window: world.Span{From: time.Hour, To: 2 * time.Hour},
		Totals: report.Combine([]report.Summary{
			run("<one> & \"two\"", 1, 0, 0, 30, 4000), run("<one> & \"two\"", 2, 0, 7), run("zero", 1, 0, 0), run("empty", 1),
		}),
	}
	check.Must(t, plots.Write(folder))
	for _, name := range []string{"wait-by-size.svg", "wait-cdf.svg", "utilisation.svg"} {
		data, err := os.ReadFile(filepath.Join(folder, name))
		check.Must(t, err)
		texts := textsOf(t, name, string(data))
		for _, want := range []string{"<one> & \"two\"", "zero"} {
			if !strings.Contains(texts, want) {
				t.Errorf("%s does not name %s", name, want)
			}
		}
		for _, bad := range []string{"NaN", "Inf", "%!"} {
			if strings.Contains(string(data), bad) {
				t.Errorf("%s has %s in it", name, bad)
			}
		}
	}
}

// textsOf reads a document to its end, and returns all of its text.
func textsOf(t *testing.T, name, document string) string {
	t.Helper()
	var texts strings.Builder
	d := xml.NewDecoder(strings.NewReader(document))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return texts.String()
		}
		if err != nil {
			t.Fatalf("%s is no XML: %v", name, err)
		}
		if text, is := token.(xml.CharData); is {
			texts.Write(text)
		}
	}
}
