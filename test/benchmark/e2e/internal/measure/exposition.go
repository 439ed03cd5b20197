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
	"strconv"
	"strings"
)

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
