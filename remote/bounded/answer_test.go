// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package bounded_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/trainyard/trainyard/remote/bounded"
	"github.com/trainyard/trainyard/test/check"
)

// zeros is an endless answer.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// frame returns an event in protobuf.
func frame(size int) string {
	return string(binary.BigEndian.AppendUint32(nil, uint32(size))) + strings.Repeat("x", size)
}

func TestAnswer(t *testing.T) {
	const limit = 20
	const jsonStream, protobufStream = "application/json", "application/vnd.kubernetes.protobuf;stream=watch"
	cases := map[string]struct {
		reason string
		kind   string
		body   string
		stream bool
		code   int
		// read is how much is read at most before the error. 0: there is no error.
		read int
	}{
		"Fits":          {"The bound is the last byte that may be there.", jsonStream, strings.Repeat("x", limit), false, 200, 0},
		"OneMore":       {"One byte more is too many.", jsonStream, strings.Repeat("x", limit+1), false, 200, limit + 1},
		"Events":        {"A watch is as long as it likes.", jsonStream, strings.Repeat("{\"a\": [{}]}\n", 50), true, 200, 0},
		"LargeEvent":    {"An event is bounded.", jsonStream, "{\"a\": 1}\n{\"a\": \"" + strings.Repeat("x", 50), true, 200, 30},
		"Lines":         {"A line break ends no event.", jsonStream, "{\"a\":" + strings.Repeat("\n", 50), true, 200, limit + 1},
		"Brackets":      {"Brackets in a text end no event.", jsonStream, "{\"a\": \"" + strings.Repeat("}{", 50), true, 200, limit + 1},
		"Quotes":        {"A quote in a text ends no text.", jsonStream, "{\"a\": \"" + strings.Repeat(`\"}{`, 50), true, 200, limit + 1},
		"Number":        {"A number ends no event.", jsonStream, strings.Repeat("1", 50), true, 200, limit + 1},
		"Blanks":        {"Blanks between events count for the next event.", jsonStream, "{}" + strings.Repeat(" ", 50), true, 200, 30},
		"Frames":        {"So are frames.", protobufStream, strings.Repeat(frame(10), 50) + frame(0) + frame(16), true, 200, 0},
		"LargeFrame":    {"A frame is bounded.", protobufStream, frame(3) + frame(17), true, 200, 40},
		"UnknownStream": {"A stream without known events is bounded as a whole.", "text/plain", strings.Repeat("{}", 50), true, 200, limit + 1},
		"Refused":       {"The answer that refuses a watch is no stream.", jsonStream, strings.Repeat("{}", 50), true, 403, limit + 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			res := &http.Response{StatusCode: tc.code, Header: http.Header{"Content-Type": {tc.kind}}}
			for _, one := range []bool{false, true} {
				var from io.Reader = strings.NewReader(tc.body)
				if one {
					from = io.MultiReader(from, zeros{}) // Nothing is read beyond the bound.
					if tc.read == 0 {
						continue
					}
				}
				res.Body = io.NopCloser(from)
				bounded.Answer(res, limit, tc.stream)
				data, err := io.ReadAll(res.Body)
				excess := (*bounded.TooLargeError)(nil)
				if tooLarge := errors.As(err, &excess); tooLarge != (tc.read > 0) || (err != nil && !tooLarge) {
					t.Fatalf("%s\nread %d bytes: %v", tc.reason, len(data), err)
				}
				if tc.read == 0 && string(data) != tc.body {
					t.Errorf("%s\nread %q", tc.reason, data)
				}
				if !one && tc.read > 0 && len(data) > len(tc.body) {
					t.Errorf("%s\nread %d bytes", tc.reason, len(data))
				}
				if tc.read > 0 {
					if n, err := res.Body.Read(make([]byte, 10)); n != 0 || !errors.As(err, &excess) {
						t.Errorf("%s\nafter the bound, %d bytes are read: %v", tc.reason, n, err)
					}
				}
			}
		})
	}
}

// TestConfig checks the clients of a config: they unpack no more than the bound, follow no redirect, and do not wait for
// ever.
func TestConfig(t *testing.T) {
	elsewhere := 0
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere++ }))
	t.Cleanup(target.Close)
	packed := &bytes.Buffer{}
	writer := gzip.NewWriter(packed)
	if _, err := io.CopyN(writer, zeros{}, 100<<20); err != nil {
		t.Fatal(err)
	}
	check.Must(t, writer.Close())
	end := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch req.URL.Path {
		case "/redirect":
			http.Redirect(w, req, target.URL, http.StatusTemporaryRedirect)
		case "/gzip":
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(packed.Bytes())
		case "/slow":
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			<-end
		case "/log":
			fmt.Fprint(w, strings.Repeat("x", bounded.MaxSmall+1))
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(end) })
	config := bounded.Config(&rest.Config{Host: server.URL}, bounded.Limits{Timeout: time.Second, Size: bounded.MaxSmall})
	client, err := rest.HTTPClientFor(config)
	check.Must(t, err)
	get := func(path string) (int, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
		check.Must(t, err)
		res, err := client.Do(req)
		if err != nil {
			return 0, err
		}
		defer res.Body.Close()
		data, err := io.ReadAll(res.Body)
		return len(data), err
	}
	if _, err := get("/redirect"); !errors.Is(err, bounded.ErrRedirect) || elsewhere > 0 {
		t.Errorf("a redirect: %v, and %d requests elsewhere", err, elsewhere)
	}
	excess := (*bounded.TooLargeError)(nil)
	if n, err := get("/gzip"); !errors.As(err, &excess) || n > bounded.MaxSmall+1 {
		t.Errorf("read %d bytes of %d packed ones: %v", n, packed.Len(), err)
	}
	if _, err := get("/slow"); err == nil {
		t.Error("an answer that does not end has ended")
	}
	if n, err := get("/log"); n != bounded.MaxSmall+1 || err != nil {
		t.Errorf("read %d bytes of a log: %v", n, err)
	}
}
