// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/api"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/fleet"
)

// Requests are the requests to the API servers that the benchmark has not sent: the difference of their metric
// apiserver_request_total, minus what the benchmark's own clients have counted. Watches are left out, because the
// metric counts them when they end.
type Requests struct {
	Hub, Workers api.Counts
}

// ReadRequests reads the counts so far.
func ReadRequests(ctx context.Context, f *fleet.Fleet) (Requests, error) {
	r := Requests{Workers: api.Counts{}}
	var err error
	if r.Hub, err = others(ctx, f.Hub); err != nil {
		return r, err
	}
	for _, worker := range f.Workers {
		counts, err := others(ctx, worker)
		if err != nil {
			return r, err
		}
		for request, count := range counts {
			r.Workers[request] += count
		}
	}
	return r, nil
}

// Minus is what has been asked since.
func (r Requests) Minus(earlier Requests) Requests {
	return Requests{Hub: r.Hub.Minus(earlier.Hub), Workers: r.Workers.Minus(earlier.Workers)}
}

// others are the requests to a cluster that are not the benchmark's.
func others(ctx context.Context, cluster *fleet.Cluster) (api.Counts, error) {
	own := cluster.API.Requests.Counts()
	metrics, err := cluster.API.Do(ctx, "GET", "/metrics", "", nil)
	if err != nil {
		return nil, err
	}
	all, err := parse(metrics)
	if err != nil {
		return nil, fmt.Errorf("read metrics of cluster %q: %w", cluster.Name, err)
	}
	return all.Minus(own), nil
}

var label = regexp.MustCompile(`(\w+)="([^"]*)"`)

// parse reads apiserver_request_total.
func parse(metrics []byte) (api.Counts, error) {
	counts := api.Counts{}
	scanner := bufio.NewScanner(bytes.NewReader(metrics))
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		line, found := strings.CutPrefix(scanner.Text(), "apiserver_request_total{")
		if !found {
			continue
		}
		labels, value, _ := strings.Cut(line, "} ")
		count, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return nil, err
		}
		var request api.Request
		for _, pair := range label.FindAllStringSubmatch(labels, -1) {
			switch pair[1] {
			case "verb":
				request.Verb = pair[2]
			case "resource":
				request.Resource = pair[2]
			case "subresource":
				request.Subresource = pair[2]
			case "dry_run":
				request.DryRun = pair[2] != ""
			}
		}
		if request.Resource != "" && request.Verb != "WATCH" {
			counts[request] += int(count)
		}
	}
	return counts, scanner.Err()
}

// Sums of requests.
type Sums struct {
	Reads, Writes int
	// Background are the requests that do not depend on the number of jobs: leases of processes and hubs, the probes of
	// workers, what agents report of nodes, and requests of API servers to themselves.
	Background int
}

// background are the requests that Sums.Background counts.
func background(request api.Request) bool {
	switch request.Resource {
	case "leases", "executionleases", "capacityreports":
		return true
	case "namespaces":
		return request.Verb == "GET"
	case "services": // An API server looks every half minute which addresses are taken.
		return request.Verb == "LIST"
	}
	return false
}

// Sum adds up counts.
func Sum(counts api.Counts) Sums {
	var s Sums
	for request, count := range counts {
		switch {
		case background(request):
			s.Background += count
		case request.Writes():
			s.Writes += count
		default:
			s.Reads += count
		}
	}
	return s
}

// Exposition is what a process says of itself in the text format of Prometheus.
type Exposition struct {
	// Series is how many time series there are.
	Series int
	sums   map[string]float64
}

// ReadExposition reads the metrics of a process that serves them as plain HTTP.
func ReadExposition(ctx context.Context, address string) (Exposition, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", http.NoBody)
	if err != nil {
		return Exposition{}, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return Exposition{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return Exposition{}, err
	}
	return ParseExposition(text)
}

// ParseExposition reads metrics.
func ParseExposition(text []byte) (Exposition, error) {
	e := Exposition{sums: map[string]float64{}}
	scanner := bufio.NewScanner(bytes.NewReader(text))
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		line := scanner.Text()
		if line == "" || line[0] == '#' {
			continue
		}
		// A label's value may have spaces, a metric's name and its value have none.
		name, rest := line, ""
		if i := strings.IndexAny(line, "{ "); i >= 0 {
			name, rest = line[:i], line[i:]
		}
		if i := strings.LastIndexByte(rest, '}'); i >= 0 {
			rest = rest[i+1:]
		}
		fields := strings.Fields(rest)
		if len(fields) == 0 {
			return e, fmt.Errorf("the metric %q has no value", line)
		}
		value, err := strconv.ParseFloat(fields[0], 64)
		if err != nil {
			return e, fmt.Errorf("read metric %q: %w", line, err)
		}
		e.Series++
		e.sums[name] += value
	}
	return e, scanner.Err()
}

// Sum is the sum of a metric's series. It is an error if there are none.
func (e Exposition) Sum(name string) (float64, error) {
	sum, ok := e.sums[name]
	if !ok {
		return 0, fmt.Errorf("there is no metric %s", name)
	}
	return sum, nil
}
