// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"bufio"
	"errors"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// serveLog answers as a kubelet does. If there is nothing to read, it answers with the errors of a kubelet.
func (k *kubelet) serveLog(w http.ResponseWriter, r *http.Request) {
	options, err := parseLogOptions(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	pod, err := k.pod(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	run, err := findRun(pod, r.PathValue("container"), options.previous)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	log, err := run.log(pod)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	reader := newLogReader(w, run, options)
	reader.flush = http.NewResponseController(w).Flush
	reader.skip(log)
	if err := reader.print(pod); err != nil || !options.follow || options.previous {
		return
	}
	// After an error there is nobody to tell: the client has gone, or the API server.
	_ = k.follow(r.Context(), pod, run.endedIn, reader.print)
}

// logOptions are the options of a request for a log.
type logOptions struct {
	follow, previous, timestamps bool
	tail                         int   // -1: all
	limit                        int64 // in bytes
	since                        time.Duration
	sinceTime                    time.Time
}

func parseLogOptions(query url.Values) (o logOptions, err error) {
	o.tail, o.limit = -1, math.MaxInt64
	var errs []error
	parse := func(name string, set func(string) error) {
		if value := query.Get(name); value != "" {
			errs = append(errs, set(value))
		}
	}
	flag := func(to *bool) func(string) error {
		return func(value string) (err error) { *to, err = strconv.ParseBool(value); return err }
	}
	parse("follow", flag(&o.follow))
	parse("previous", flag(&o.previous))
	parse("timestamps", flag(&o.timestamps))
	parse("tailLines", func(value string) (err error) { o.tail, err = strconv.Atoi(value); return err })
	parse("limitBytes", func(value string) (err error) { o.limit, err = strconv.ParseInt(value, 10, 64); return err })
	parse("sinceSeconds", func(value string) error {
		seconds, err := strconv.Atoi(value)
		o.since = time.Duration(seconds) * time.Second
		return err
	})
	parse("sinceTime", func(value string) (err error) { o.sinceTime, err = time.Parse(time.RFC3339, value); return err })
	return o, errors.Join(errs...)
}

// errLogLimit ends the printing of a log when as many bytes are printed as the request has asked for.
var errLogLimit = errors.New("all bytes of the limit are printed")

// logReader prints the log of one run of a container.
type logReader struct {
	out     *bufio.Writer
	flush   func() error // brings to the client what out has written
	options logOptions
	run     containerRun
	now     time.Time
	printed int    // lines that are not to be printed again
	line    []byte // the last one, to be overwritten
}

// logBuffer is so large that a log of 100 MB costs few writes.
const logBuffer = 64 << 10

func newLogReader(out io.Writer, run containerRun, options logOptions) *logReader {
	return &logReader{
		out:     bufio.NewWriterSize(out, logBuffer),
		flush:   func() error { return nil },
		options: options,
		run:     run,
		now:     time.Now(),
	}
}

// skip leaves out what --tail leaves out.
func (r *logReader) skip(log runLog) {
	if r.options.tail >= 0 {
		r.printed = max(0, log.count()-r.options.tail)
	}
}

// print prints what the pod has printed since the last call.
func (r *logReader) print(pod *corev1.Pod) error {
	log, err := r.run.log(pod)
	if err != nil {
		return err
	}
	for count := log.count(); r.printed < count && err == nil; r.printed++ {
		err = r.printLine(log)
	}
	return errors.Join(err, r.out.Flush(), r.flush())
}

// printLine prints the next line, unless it is too old.
func (r *logReader) printLine(log runLog) error {
	stamp := r.run.started.Add(time.Duration(r.printed) * time.Millisecond)
	if stamp.Before(r.options.sinceTime) || r.options.since > 0 && stamp.Before(r.now.Add(-r.options.since)) {
		return nil
	}
	r.line = r.line[:0]
	if r.options.timestamps {
		r.line = append(stamp.UTC().AppendFormat(r.line, time.RFC3339Nano), ' ')
	}
	r.line = log.appendLine(r.line, r.printed)
	if int64(len(r.line)) > r.options.limit {
		r.line = r.line[:r.options.limit]
	}
	r.options.limit -= int64(len(r.line))
	if _, err := r.out.Write(r.line); err != nil {
		return err
	}
	if r.options.limit <= 0 {
		return errLogLimit
	}
	return nil
}
