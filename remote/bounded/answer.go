// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package bounded

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
)

const (
	// MaxSmall is how many bytes an answer may have that is small on all clusters: metadata of one namespace, a version,
	// the resources of one group, a token.
	MaxSmall = 512 << 10
	// MaxObject is how many bytes an object or an event of a watch may have.
	MaxObject = 4 << 20
	// MaxDocument is how many bytes a document may have that describes APIs: discovery, or the OpenAPI document of a group.
	MaxDocument = 16 << 20
	// MaxPage is how many bytes a page of a list may have.
	MaxPage = 32 << 20
	// MinPageSize is how many objects always fit into a page.
	MinPageSize = MaxPage / MaxObject
)

// ErrRedirect is the error of a request that the worker redirects.
var ErrRedirect = errors.New("the worker redirects to another address, and redirects are not followed")

// TooLargeError is the error of an answer that has more bytes than it may have.
type TooLargeError struct {
	// Event says whether one event of a watch is too large, and not the whole answer.
	Event bool
	// Limit is how many bytes there may be.
	Limit int64
}

// Error says what is too large.
func (e *TooLargeError) Error() string {
	what := "the answer"
	if e.Event {
		what = "an event of the watch"
	}
	size := fmt.Sprintf("%d KiB", e.Limit>>10)
	if e.Limit >= 1<<20 {
		size = fmt.Sprintf("%d MiB", e.Limit>>20)
	}
	return fmt.Sprintf("%s has more than %s, unpacked, and no API server needs that", what, size)
}

// Answer bounds the body of an answer. If stream is true and the answer is a success, the bound is for each event.
func Answer(res *http.Response, limit int64, stream bool) {
	whole := &body{ReadCloser: res.Body, left: limit, limit: limit}
	res.Body = whole
	if !stream || res.StatusCode != http.StatusOK {
		return
	}
	// client-go takes the decoder that the answer's type names. The bound of a stream of an unknown type is for all of it.
	kind, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	switch {
	case err != nil:
	case kind == "application/json":
		res.Body = &events{ReadCloser: whole.ReadCloser, framing: &jsonFraming{}, limit: limit}
	case kind == "application/vnd.kubernetes.protobuf":
		res.Body = &events{ReadCloser: whole.ReadCloser, framing: &lengthFraming{}, limit: limit}
	}
}

// body is the body of an answer that may have limit bytes.
type body struct {
	io.ReadCloser
	left, limit int64
}

// Read reads one byte more than there may be, to see whether there are more.
func (b *body) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, &TooLargeError{Limit: b.limit}
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return n, &TooLargeError{Limit: b.limit}
	}
	return n, err
}

// events is the body of a watch whose events may have limit bytes each.
type events struct {
	io.ReadCloser
	framing
	limit int64
	// size is how many bytes of the present event were read. broken is true once an event was too large.
	size   int64
	broken bool
}

// framing finds the ends of events.
type framing interface {
	// ends takes the next byte, and says whether an event ends with it.
	ends(b byte) bool
}

// Read reads, and counts the bytes of each event.
func (e *events) Read(p []byte) (int, error) {
	if e.broken {
		return 0, &TooLargeError{Event: true, Limit: e.limit}
	}
	n, err := e.ReadCloser.Read(p)
	for _, b := range p[:n] {
		if e.size++; e.size > e.limit {
			e.broken = true
			return n, &TooLargeError{Event: true, Limit: e.limit}
		}
		if e.ends(b) {
			e.size = 0
		}
	}
	return n, err
}

// jsonFraming finds the ends of objects that follow each other. Line breaks are no ends: an object can have some.
type jsonFraming struct {
	depth             int
	quoted, backslash bool
}

func (f *jsonFraming) ends(b byte) bool {
	if f.quoted {
		switch {
		case f.backslash:
			f.backslash = false
		case b == '\\':
			f.backslash = true
		case b == '"':
			f.quoted = false
		}
		return false
	}
	switch b {
	case '"':
		f.quoted = true
	case '{', '[':
		f.depth++
	case '}', ']':
		f.depth--
		return f.depth == 0
	}
	return false
}

// lengthFraming finds the ends of frames that begin with their length, in four bytes.
type lengthFraming struct {
	// header is how many bytes of the length were read, length the length so far, and then how many bytes are left.
	header int
	length uint32
}

func (f *lengthFraming) ends(b byte) bool {
	if f.header < 4 {
		f.header++
		f.length = f.length<<8 | uint32(b)
	} else {
		f.length--
	}
	if f.header < 4 || f.length > 0 {
		return false
	}
	*f = lengthFraming{}
	return true
}
