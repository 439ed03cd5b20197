// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
)

// Data is what counts of the data that a job reads. DataMap.Locate makes it.
type Data struct {
	// Required are the URIs of data that the worker must list, sorted. Holders are the workers that list all of it, sorted.
	Required []string
	Holders  []v1alpha1.ClusterName
	// Near and Far are for the score DataLocality. Near has, for each URI of the job that any worker lists, the longest
	// prefix of any worker that has it, sorted: it costs each worker what the URI costs, and many URIs have one prefix. Far
	// counts the URIs that no worker lists.
	Near []string
	Far  int
}

// Reads are the URIs of the data that a job reads, as far as they count.
type Reads struct {
	// Required must be near the worker.
	Required []string
	// Scored count for the score DataLocality. Nil: the policy does not score by it.
	Scored []string
}

// dataPrefix is a prefix in spec.data of a WorkerCluster.
type dataPrefix struct {
	// text begins each URI that has the prefix.
	text string
	// open: what follows the text need not begin a segment.
	open bool
}

// newDataPrefix reads a prefix. A slash at its end makes no difference, and a scheme alone has all of its URIs.
func newDataPrefix(prefix string) dataPrefix {
	text, open := strings.CutSuffix(prefix, "*")
	if open && !strings.HasSuffix(text, "/") {
		return dataPrefix{text, true}
	}
	if strings.HasSuffix(text, "://") {
		return dataPrefix{text, true}
	}
	return dataPrefix{text: strings.TrimSuffix(text, "/")}
}

// String is a prefix that means the same. Used as a URI, it costs each worker of a DataMap what the URIs cost for which it
// is the longest prefix of the map.
func (p dataPrefix) String() string {
	if p.open {
		return p.text + "*"
	}
	return p.text
}

// has says whether a URI has the prefix.
func (p dataPrefix) has(uri string) bool {
	rest, is := strings.CutPrefix(uri, p.text)
	return is && (p.open || rest == "" || rest[0] == '/')
}

// compare puts the longer prefix first. Of two prefixes of one text, the open one has more.
func (p dataPrefix) compare(other dataPrefix) int {
	return cmp.Or(cmp.Compare(len(other.text), len(p.text)), cmp.Compare(p.text, other.text), compareBools(p.open, other.open))
}

func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// farCost is the cost of data that a worker does not list.
const farCost = 100

// costOf returns what it costs a worker to read a URI, by the longest prefix that has it. listed is false if there is none.
func costOf(data []v1alpha1.WorkerData, uri string) (cost int32, listed bool) {
	var longest dataPrefix
	for i := range data {
		prefix := newDataPrefix(data[i].Prefix)
		if !prefix.has(uri) {
			continue
		}
		order := -1
		if listed {
			order = prefix.compare(longest)
		}
		if order < 0 || order == 0 && data[i].Cost < cost { // Two ways to write one prefix.
			longest, cost, listed = prefix, data[i].Cost, true
		}
	}
	if !listed {
		return farCost, false
	}
	return min(max(cost, 0), farCost), true
}

// unlisted returns those of the URIs that a worker does not list.
func unlisted(data []v1alpha1.WorkerData, uris []string) (missing []string) {
	for _, uri := range uris {
		if _, listed := costOf(data, uri); !listed {
			missing = append(missing, uri)
		}
	}
	return missing
}

// DataMap says which data is near which workers. It does not change.
type DataMap struct {
	// prefixes are those of all workers, the longest first.
	prefixes []dataPrefix
	workers  map[v1alpha1.ClusterName][]v1alpha1.WorkerData
}

// NewDataMap returns the DataMap of workers by their spec.data, which must not change.
func NewDataMap(workers map[v1alpha1.ClusterName][]v1alpha1.WorkerData) *DataMap {
	m := &DataMap{workers: workers}
	for _, data := range workers {
		for i := range data {
			m.prefixes = append(m.prefixes, newDataPrefix(data[i].Prefix))
		}
	}
	slices.SortFunc(m.prefixes, dataPrefix.compare)
	m.prefixes = slices.Compact(m.prefixes)
	return m
}

// Locate returns what counts of the data that a job reads. Nil: nothing.
func (m *DataMap) Locate(reads Reads) *Data {
	if len(reads.Required) == 0 && len(reads.Scored) == 0 {
		return nil
	}
	data := &Data{Required: distinct(reads.Required)}
	for name, near := range m.workers {
		if len(data.Required) > 0 && len(unlisted(near, data.Required)) == 0 {
			data.Holders = append(data.Holders, name)
		}
	}
	slices.Sort(data.Holders)
	for _, uri := range distinct(reads.Scored) {
		at := slices.IndexFunc(m.prefixes, func(prefix dataPrefix) bool { return prefix.has(uri) })
		if at < 0 {
			data.Far++
		} else {
			data.Near = append(data.Near, m.prefixes[at].String())
		}
	}
	slices.Sort(data.Near)
	return data
}

func distinct(uris []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(uris)))
}

// required are the URIs that the worker must list. d may be nil.
func (d *Data) required() []string {
	if d == nil {
		return nil
	}
	return d.Required
}

// locality is the score DataLocality: 100 less the cost of a URI, on average. It is 100 for a job that reads nothing.
func locality(s *scores, _ *v1alpha1.Score, w *Worker) points {
	data := s.job.Data
	if data == nil || len(data.Near)+data.Far == 0 {
		return 100 * point
	}
	near := 0
	for _, prefix := range data.Near {
		cost, _ := costOf(w.Data, prefix)
		near += farCost - int(cost)
	}
	return percent(float64(near) / float64(farCost*(len(data.Near)+data.Far)))
}

// costs says what the score DataLocality counts.
func costs(s *scores, w *Worker) string {
	data := s.job.Data
	if data == nil || len(data.Near)+data.Far == 0 {
		return "no data"
	}
	var parts []string
	for i, prefix := range data.Near {
		if i > 0 && prefix == data.Near[i-1] {
			continue
		}
		cost, listed := costOf(w.Data, prefix)
		if !listed {
			parts = append(parts, shortURI(prefix)+" is not listed")
			continue
		}
		parts = append(parts, fmt.Sprintf("%s costs %d", shortURI(prefix), cost))
	}
	if data.Far > 0 {
		parts = append(parts, fmt.Sprintf("%d not listed by any worker", data.Far))
	}
	return list(parts, ", ")
}

// dataElsewhere says what the worker does not list, and who does.
func (f *filters) dataElsewhere(w *Worker) string {
	message := "spec.data of the worker has no prefix of " + shortURIs(unlisted(w.Data, f.job.Data.required())) + ", which the job requires"
	if holders := f.job.Data.Holders; len(holders) > 0 {
		message += "; " + names(holders) + " " + verb("list", len(holders)) + " all that it requires"
	}
	return message
}

// dataNotFound says what no worker lists, empty if some worker lists all that the job requires.
func (f *filters) dataNotFound() string {
	if len(f.job.Data.required()) == 0 || len(f.job.Data.Holders) > 0 {
		return ""
	}
	return fmt.Sprintf("no worker lists in spec.data all that the job requires by its annotation %s: %s",
		v1alpha1.AnnotationData, shortURIs(f.job.Data.Required))
}

// maxShownURI is how much of a URI a message shows, in bytes.
const maxShownURI = 128

func shortURI(uri string) string { return record.Cut(uri, maxShownURI) }

func shortURIs(uris []string) string {
	short := make([]string, len(uris))
	for i := range uris {
		short[i] = shortURI(uris[i])
	}
	return list(short, ", ")
}

func names(workers []v1alpha1.ClusterName) string {
	all := make([]string, len(workers))
	for i := range workers {
		all[i] = string(workers[i])
	}
	return list(all, ", ")
}

// verb is a verb of the third person for a number of subjects.
func verb(word string, subjects int) string {
	if subjects == 1 {
		return word + "s"
	}
	return word
}
