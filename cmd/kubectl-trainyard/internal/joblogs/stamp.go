// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package joblogs

import (
	"bytes"
	"io"
	"slices"
	"time"
)

// longestStamp is more than the time of a line and the space behind it can have.
const longestStamp = 64

// place is one in a log: behind so many lines of a time, and bytes of the line after them. A log may have many lines of one time.
type place struct {
	time  time.Time
	lines int
	bytes int // of passed only
}

// stamper passes on a log whose lines have their time in front, as the API server sends it if asked to, and knows how far it is.
// After again, what it has passed on already is left out: it may get the log from the start, or from a time at or before
// reached().
type stamper struct {
	to io.Writer
	// keep the times.
	keep bool

	passed     place  // how far the log was passed on
	at         place  // where in the log the next byte is
	catchingUp bool   // at is not beyond passed yet
	head       []byte // of the time, as far as it was read
	kept       []byte // the time of a line of which nothing was passed on yet, if times are kept
	inLine     bool   // the time of the line was read
	counts     bool   // the line has a time
	skip       int    // bytes of the line that are not to be passed on; -1: all
}

// again is called before the log is read again.
func (s *stamper) again() {
	s.at, s.catchingUp, s.head, s.kept, s.inLine = place{}, true, nil, nil, false
}

// reached is the time of the last line that was begun, zero if there is none.
func (s *stamper) reached() time.Time { return s.passed.time }

// Write takes any part of the log, not only whole lines.
func (s *stamper) Write(p []byte) (int, error) {
	all := len(p)
	for len(p) > 0 {
		n, err := s.writePart(p)
		if err != nil {
			return all - len(p), err
		}
		p = p[n:]
	}
	return all, nil
}

// writePart takes bytes up to the end of the time, or of the line, and returns how many.
func (s *stamper) writePart(p []byte) (int, error) {
	if s.inLine {
		n := len(p)
		if end := bytes.IndexByte(p, '\n'); end >= 0 {
			n = end + 1
		}
		return n, s.pass(p[:n])
	}
	end := bytes.IndexAny(p, " \n")
	if end < 0 && len(s.head)+len(p) <= longestStamp {
		s.head = append(s.head, p...)
		return len(p), nil
	}
	n := end + 1
	if end < 0 {
		n = len(p)
	}
	s.head = append(s.head, p[:n]...)
	return n, s.beginLine()
}

// beginLine looks at the time of a line. One without a time is not of the container but about it, and passed on as it is.
func (s *stamper) beginLine() error {
	head := s.head
	s.head, s.inLine, s.skip = nil, true, 0
	stamp, err := time.Parse(time.RFC3339Nano, string(bytes.TrimSuffix(head, []byte(" "))))
	s.counts = err == nil
	if !s.counts {
		return s.pass(head)
	}
	if !stamp.Equal(s.at.time) {
		s.at = place{time: stamp}
	}
	if s.catchingUp {
		s.skip = s.known()
	}
	if s.skip != 0 {
		return nil
	}
	s.catchingUp = false
	if !stamp.Equal(s.passed.time) {
		s.passed = place{time: stamp}
	}
	if s.keep {
		s.kept = head // It goes with the first byte of the line, so that a line is begun only once.
	}
	return nil
}

// known is how much of the line that begins was passed on before: -1 is all of it.
func (s *stamper) known() int {
	switch order := s.at.time.Compare(s.passed.time); {
	case order < 0 || order == 0 && s.at.lines < s.passed.lines:
		return -1
	case order == 0 && s.at.lines == s.passed.lines:
		return s.passed.bytes
	default:
		return 0
	}
}

// pass passes on a part of a line, up to its end at most.
func (s *stamper) pass(p []byte) error {
	ends := p[len(p)-1] == '\n'
	if ends {
		s.inLine = false
		s.at.lines++
	}
	if s.skip < 0 {
		return nil
	}
	rest := p[min(s.skip, len(p)):]
	s.skip -= len(p) - len(rest)
	if !s.counts {
		_, err := s.to.Write(rest)
		return err
	}
	s.passed.bytes += len(rest)
	if ends {
		s.passed.lines++
		s.passed.bytes, s.catchingUp = 0, false
	}
	text := slices.Concat(s.kept, rest)
	s.kept = nil
	_, err := s.to.Write(text)
	return err
}
