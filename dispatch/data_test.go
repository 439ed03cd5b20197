// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// near is spec.data: prefixes with their costs, such as "s3://corpora/ 20".
func near(rows ...string) []v1alpha1.WorkerData {
	data := make([]v1alpha1.WorkerData, len(rows))
	for i, row := range rows {
		if _, err := fmt.Sscan(row, &data[i].Prefix, &data[i].Cost); err != nil {
			panic(fmt.Sprintf("%q: %v", row, err))
		}
	}
	return data
}

func listing(rows ...string) func(*Worker) { return func(w *Worker) { w.Data = near(rows...) } }

// The longest prefix counts, and a prefix counts for whole segments unless it ends with *.
func TestCostOf(t *testing.T) {
	const none = int32(-1)
	for name, test := range map[string]struct {
		reason, uri string
		data        []v1alpha1.WorkerData
		want        int32
	}{
		"Same":              {reason: "a URI has itself as prefix", uri: "s3://b/a", data: near("s3://b/a 7"), want: 7},
		"Below":             {reason: "what is in a folder is near it", uri: "s3://b/a/x/y", data: near("s3://b/a 7"), want: 7},
		"Slash":             {reason: "a slash at the end makes no difference", uri: "s3://b/a/x", data: near("s3://b/a/ 7"), want: 7},
		"SlashOfPrefix":     {reason: "the folder is named without it", uri: "s3://b/a", data: near("s3://b/a/ 7"), want: 7},
		"SlashOfURI":        {reason: "the folder is named with it", uri: "s3://b/a/", data: near("s3://b/a 7"), want: 7},
		"Segment":           {reason: "ab is another folder than a", uri: "s3://b/ab", data: near("s3://b/a 7", "s3://b/a/ 7"), want: none},
		"Bucket":            {reason: "b2 is another bucket than b", uri: "s3://b2/a", data: near("s3://b 7"), want: none},
		"Star":              {reason: "it is written so", uri: "s3://b/ab/c", data: near("s3://b/a* 7"), want: 7},
		"StarOfBuckets":     {reason: "buckets share the beginning of their names", uri: "s3://corp-eu-1/x", data: near("s3://corp-eu-* 7"), want: 7},
		"StarAfterSlash":    {reason: "it says the same as the slash", uri: "s3://b/a", data: near("s3://b/a/* 7"), want: 7},
		"Scheme":            {reason: "every bucket of the store", uri: "s3://b/a", data: near("s3:// 7"), want: 7},
		"OtherScheme":       {reason: "another store", uri: "gs://b/a", data: near("s3:// 7", "s:// 8"), want: none},
		"Longest":           {reason: "the longest counts, also if it is dearer", uri: "s3://b/a/x", data: near("s3:// 90", "s3://b 1", "s3://b/a 40", "s3://b/a/xy 0"), want: 40},
		"LongestInAnyOrder": {reason: "wherever it stands", uri: "s3://b/a/x", data: near("s3://b/a 40", "s3://b 1", "s3:// 90"), want: 40},
		"SegmentBeforeStar": {reason: "what is exact comes before what is not", uri: "s3://b/a/x", data: near("s3://b/a* 1", "s3://b/a 40"), want: 40},
		"StarBesideSegment": {reason: "it is not below the segment", uri: "s3://b/ab", data: near("s3://b/a* 1", "s3://b/a 40"), want: 1},
		"Twice":             {reason: "of two ways to write it the cheaper one counts", uri: "s3://b/x", data: near("s3://b/ 9", "s3://b 5"), want: 5},
		"Case":              {reason: "letters are compared", uri: "s3://B/x", data: near("s3://b 5"), want: none},
		"Nothing":           {reason: "nothing is listed", uri: "s3://b/x", want: none},
		"TooDear":           {reason: "a file of a simulation may have any number", uri: "s3://b", data: near("s3://b 500"), want: 100},
		"TooCheap":          {reason: "a file of a simulation may have any number", uri: "s3://b", data: near("s3://b -5"), want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, listed := costOf(test.data, test.uri)
			want := test.want
			if want == none {
				want = farCost
			}
			check.Equal(t, want, got, "cost: %s", test.reason)
			check.Equal(t, test.want != none, listed, "listed: %s", test.reason)
		})
	}
}

// uris and prefixes are such that many have a prefix of many others.
func (r random) uri() string {
	uri := []string{"s3", "gs"}[r.IntN(2)] + "://" + []string{"a", "ab", "b"}[r.IntN(3)]
	for range r.IntN(4) {
		uri += "/" + []string{"a", "ab", "abc"}[r.IntN(3)]
	}
	return uri + []string{"", "", "/"}[r.IntN(3)]
}

func (r random) workerData(most int) []v1alpha1.WorkerData {
	data := make([]v1alpha1.WorkerData, r.IntN(most+1))
	for i := range data {
		data[i] = v1alpha1.WorkerData{Prefix: r.uri(), Cost: int32(r.IntN(5)) * 25}
		switch r.IntN(8) {
		case 0, 1:
			data[i].Prefix += "*"
		case 2:
			data[i].Prefix = "s3://"
		}
	}
	return data
}

// TestLocate: what Locate keeps of URIs tells for each worker what the URIs cost there. So many URIs of many jobs become a
// few prefixes, and jobs are alike that read different data from one place.
func TestLocate(t *testing.T) {
	fewer := 0
	for seed := range uint64(3000) {
		r := newRandom(seed)
		workers := map[v1alpha1.ClusterName][]v1alpha1.WorkerData{}
		for i := range 1 + r.IntN(4) {
			workers[v1alpha1.ClusterName(fmt.Sprint("w", i))] = r.workerData(6)
		}
		reads := Reads{}
		for range r.IntN(6) {
			reads.Scored = append(reads.Scored, r.uri())
		}
		for range r.IntN(3) {
			reads.Required = append(reads.Required, r.uri())
		}
		located := NewDataMap(workers).Locate(reads)
		if located == nil {
			check.Equal(t, 0, len(reads.Scored)+len(reads.Required), "seed %d: URIs of which nothing counts", seed)
			continue
		}
		scored := distinct(reads.Scored)
		check.Equal(t, len(scored), len(located.Near)+located.Far, "seed %d: URIs that count", seed)
		if len(slices.Compact(slices.Clone(located.Near))) < len(located.Near) {
			fewer++
		}
		for name, data := range workers {
			var whole, kept []int32
			for _, uri := range scored {
				cost, _ := costOf(data, uri)
				whole = append(whole, cost)
			}
			for _, prefix := range located.Near {
				cost, _ := costOf(data, prefix)
				kept = append(kept, cost)
			}
			kept = append(kept, slices.Repeat([]int32{farCost}, located.Far)...)
			slices.Sort(whole)
			slices.Sort(kept)
			check.Diff(t, whole, kept, fmt.Sprintf("seed %d: costs of %v on %s, which lists %v", seed, scored, name, data))
			holds := len(unlisted(data, reads.Required)) == 0 && len(reads.Required) > 0
			check.Equal(t, holds, slices.Contains(located.Holders, name), "seed %d: %s has %v of %v", seed, name, data, reads.Required)
		}
	}
	if fewer < 100 {
		t.Errorf("only %d jobs have several URIs of one prefix", fewer)
	}
}

// reading returns the job with what counts of the data that it reads.
func (j Job) reading(workers []Worker, reads Reads) Job {
	lists := map[v1alpha1.ClusterName][]v1alpha1.WorkerData{}
	for i := range workers {
		lists[workers[i].Name] = workers[i].Data
	}
	j.Data = NewDataMap(lists).Locate(reads)
	return j
}

func TestDataLocality(t *testing.T) {
	east := worker("east", 2, 8, listing("s3://corpora 0", "hf:// 60"))
	north := worker("north", 2, 8, listing("s3:// 40"))
	west := worker("west", 2, 8)
	for name, test := range map[string]struct {
		reason string
		reads  []string
		want   map[v1alpha1.ClusterName]string
		winner v1alpha1.ClusterName
	}{
		"Near": {
			reason: "where the data is", reads: []string{"s3://corpora/en"}, winner: "east",
			want: map[v1alpha1.ClusterName]string{
				"east":  "score 100: DataLocality 100 (s3://corpora costs 0)",
				"north": "score 60: DataLocality 60 (s3://corpora costs 40)",
				"west":  "score 0: DataLocality 0 (s3://corpora is not listed)",
			},
		},
		"Average": {
			reason: "all that the job reads", reads: []string{"s3://corpora/en", "s3://models/llm", "hf://org/set", "gs://else"}, winner: "east",
			want: map[v1alpha1.ClusterName]string{
				"east":  "score 35: DataLocality 35 (hf://* costs 60, s3://* is not listed, s3://corpora costs 0 and 1 more)",
				"north": "score 30: DataLocality 30 (hf://* is not listed, s3://* costs 40, s3://corpora costs 40 and 1 more)",
				"west":  "score 0: DataLocality 0 (hf://* is not listed, s3://* is not listed, s3://corpora is not listed and 1 more)",
			},
		},
		"Elsewhere": {
			reason: "a worker that lists the store, and not what is near", reads: []string{"s3://models/llm", "gs://else"}, winner: "north",
			want: map[v1alpha1.ClusterName]string{
				"east":  "score 0: DataLocality 0 (s3://* is not listed, 1 not listed by any worker)",
				"north": "score 30: DataLocality 30 (s3://* costs 40, 1 not listed by any worker)",
				"west":  "score 0: DataLocality 0 (s3://* is not listed, 1 not listed by any worker)",
			},
		},
		"Nothing": {
			reason: "no worker is nearer than another",
			want: map[v1alpha1.ClusterName]string{
				"east": "score 100: DataLocality 100 (no data)", "north": "score 100: DataLocality 100 (no data)", "west": "score 100: DataLocality 100 (no data)",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			workers, policies := []Worker{west, north, east}, []Policy{policy("p", 0, scoring(score(v1alpha1.ScoreDataLocality, 1)))}
			job := Job{UID: "1", PodSets: []v1alpha1.PodSet{podSet(1, 1)}}.reading(workers, Reads{Scored: test.reads})
			for _, line := range Explain(job, policies, workers) {
				check.Equal(t, test.want[line.Cluster], line.Message, "%s: %s", line.Cluster, test.reason)
			}
			if d := Decide(job, policies, workers); test.winner != "" && d.Cluster != test.winner {
				t.Errorf("the job goes to %q (%s), want %q: %s", d.Cluster, d.Message, test.winner, test.reason)
			}
		})
	}
}

// A job that requires data comes to no worker that does not list it. The explanation names the data and who has it, and
// the reason says if nobody has.
func TestRequiredData(t *testing.T) {
	const lacks = "needs a node with 8 nvidia.com/gpu free; the most on one node is 0 nvidia.com/gpu, 1 node in all"
	both := []string{"s3://corpora/en", "s3://models/llm"}
	for name, test := range map[string]struct {
		reason   string
		workers  []Worker
		required []string
		want     []v1alpha1.ClusterExplanation // Without scores.
		decision v1alpha1.ClusterExplanation
	}{
		"Listed": {
			reason:  "one worker lists all of it",
			workers: []Worker{worker("east", 1, 8, listing("s3://corpora 90", "s3://models 100")), worker("north", 1, 8, listing("s3://corpora 0")), worker("west", 1, 8)},
			want: []v1alpha1.ClusterExplanation{
				explained("east", v1alpha1.ReasonFits, "score 100: MostAllocated 100"),
				explained("north", v1alpha1.ReasonDataElsewhere, "spec.data of the worker has no prefix of s3://models/llm, which the job requires; east lists all that it requires"),
				explained("west", v1alpha1.ReasonDataElsewhere, "spec.data of the worker has no prefix of s3://corpora/en, s3://models/llm, which the job requires; east lists all that it requires"),
			},
			decision: explained("east", v1alpha1.ReasonPlaced, "score 100: MostAllocated 100; the only worker on which the job fits"),
		},
		"Full": {
			reason:  "the job waits for room where the data is",
			workers: []Worker{worker("east", 1, 0, listing("s3:// 0")), worker("north", 1, 0, listing("s3:// 0")), worker("west", 1, 8)},
			want: []v1alpha1.ClusterExplanation{
				explained("east", v1alpha1.ReasonInsufficientResources, lacks),
				explained("north", v1alpha1.ReasonInsufficientResources, lacks),
				explained("west", v1alpha1.ReasonDataElsewhere, "spec.data of the worker has no prefix of s3://corpora/en, s3://models/llm, which the job requires; east, north list all that it requires"),
			},
			decision: explained("", v1alpha1.ReasonNoFit, "east: "+lacks+"; north: "+lacks+"; west: spec.data of the worker has no prefix of s3://corpora/en, "+
				"s3://models/llm, which the job requires; east, north list all that it requires"),
		},
		"Nowhere": {
			reason:  "no single worker lists all of it",
			workers: []Worker{worker("east", 1, 8, listing("s3://corpora 0")), worker("west", 1, 8, listing("s3://models 0"))},
			want: []v1alpha1.ClusterExplanation{
				explained("east", v1alpha1.ReasonDataElsewhere, "spec.data of the worker has no prefix of s3://models/llm, which the job requires"),
				explained("west", v1alpha1.ReasonDataElsewhere, "spec.data of the worker has no prefix of s3://corpora/en, which the job requires"),
			},
			decision: explained("", v1alpha1.ReasonDataNotFound,
				"no worker lists in spec.data all that the job requires by its annotation trainyard.dev/data: s3://corpora/en, s3://models/llm"),
		},
		"Away": {
			reason:  "the worker that has it may return",
			workers: []Worker{worker("east", 1, 8, listing("s3:// 0"), isNotReady)},
			want:    []v1alpha1.ClusterExplanation{explained("east", v1alpha1.ReasonNotReady, "Unreachable: dial tcp: timeout")},
			decision: explained("", v1alpha1.ReasonNoWorkers,
				"no worker is Ready: east: Unreachable: dial tcp: timeout"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			job := Job{UID: "1", PodSets: []v1alpha1.PodSet{podSet(1, 8)}}.reading(test.workers, Reads{Required: both})
			lines := Explain(job, nil, test.workers)
			for i := range lines {
				lines[i].Score = nil
			}
			check.Diff(t, test.want, lines, test.reason)
			d := Decide(job, nil, test.workers)
			check.Diff(t, test.decision, explained(d.Cluster, d.Reason, d.Message), test.reason)
		})
	}
	check.Equal(t, ChangedWorker, RemedyOf(v1alpha1.ReasonDataElsewhere), "what helps")
}

// TestDataOfOthersChangesNothing: which prefixes the workers list that do not get a job makes no difference for it.
func TestDataOfOthersChangesNothing(t *testing.T) {
	moved := 0
	for seed := range uint64(2000) {
		s := newScene(seed)
		chosen := Decide(s.job, s.policies, s.workers).Cluster
		for i := range s.workers {
			if s.workers[i].Name == chosen {
				continue
			}
			rest := slices.Delete(slices.Clone(s.workers), i, i+1)
			got := Decide(s.job.reading(rest, s.reads), s.policies, rest)
			check.Equal(t, chosen, got.Cluster, "seed %d: the worker without %s", seed, s.workers[i].Name)
			moved++
		}
	}
	if moved < 1000 {
		t.Errorf("only %d workers have been left out", moved)
	}
}

// TestDataIsCut: messages stay short, whatever the URIs are.
func TestDataIsCut(t *testing.T) {
	long := Reads{}
	for i := range 16 {
		uri := fmt.Sprintf("s3://%d/%s", i, strings.Repeat("é", 500))
		long.Required, long.Scored = append(long.Required, uri), append(long.Scored, uri)
	}
	workers := []Worker{worker("east", 1, 8), worker("west", 1, 8, listing("s3:// 0"))}
	for i := range 40 {
		workers = append(workers, worker(v1alpha1.ClusterName(fmt.Sprintf("%02d-%s", i, strings.Repeat("w", 200))), 1, 8, listing("s3:// 0")))
	}
	job := Job{UID: "1", PodSets: []v1alpha1.PodSet{podSet(1, 8)}}.reading(workers, long)
	line := Explain(job, nil, workers[:1])[0]
	check.Equal(t, v1alpha1.ReasonDataElsewhere, line.Reason, "why not east")
	if len(line.Message) > maxMessage || !strings.Contains(line.Message, "13 more, which the job requires; ") {
		t.Errorf("the message has %d bytes: %s", len(line.Message), line.Message)
	}
}

// TestDataTellsKindsApart: a decision about a job holds for all jobs of its kind. Data that comes from one place makes no
// difference.
func TestDataTellsKindsApart(t *testing.T) {
	workers := []Worker{worker("east", 1, 8, listing("s3://corpora 0"))}
	kind := func(reads Reads) string { return Job{UID: "1"}.reading(workers, reads).Kind() }
	kinds := map[string]string{}
	for name, reads := range map[string]Reads{
		"nothing": {}, "near": {Scored: []string{"s3://corpora/en"}}, "far": {Scored: []string{"hf://set"}},
		"required": {Required: []string{"s3://corpora/en"}}, "required elsewhere": {Required: []string{"hf://set"}},
	} {
		if other, is := kinds[kind(reads)]; is {
			t.Errorf("jobs are alike that read %s and %s", name, other)
		}
		kinds[kind(reads)] = name
	}
	check.Equal(t, kind(Reads{Scored: []string{"s3://corpora/de/1"}}), kind(Reads{Scored: []string{"s3://corpora/en/2"}}),
		"kind of jobs that read from one place")
	far := Job{UID: types.UID("1")}.reading(nil, Reads{Required: []string{"s3://corpora/en"}})
	if far.Kind() == kind(Reads{Required: []string{"s3://corpora/en"}}) {
		t.Error("a job is alike before and after a worker lists what it requires")
	}
}
