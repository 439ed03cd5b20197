// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package joblogs

import (
	"bytes"
	"io"
	"slices"
	"time"
)

// longestStamp is longer than the time of a line and the space after it.
const longestStamp = 64

// place is a position in a log: after so many lines of a time, and bytes of the next line. A time may have many lines.
type place struct {
	time  time.Time
	lines int
	bytes int // of passed only
}

// stamper passes on a log whose lines begin with their time, as the API server sends them on request. After again, it
// skips what it has passed on. The repeated log begins at the start, or at a time that is not after reached().
type stamper struct {
	to io.Writer
	// keep says to keep the times.
	keep bool

	passed     place  // the end of what was passed on
	at         place  // the position of the next byte
	catchingUp bool   // at is not after passed yet
	head       []byte // the part of the time that was read
	kept       []byte // the time of a line of which nothing was passed on yet, if times are kept
	inLine     bool   // the time of the line was read
	counts     bool   // the line has a time
	skip       int    // how many bytes of the line to skip; -1: all
}

// again is called before the log is read again.
func (s *stamper) again() {
	s.at, s.catchingUp, s.head, s.kept, s.inLine = place{}, true, nil, nil, false
}

// reached returns the time of the last line that has begun, or zero.
func (s *stamper) reached() time.Time { return s.passed.time }

// Write accepts any part of the log, not only whole lines.
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

// writePart processes bytes up to the end of the time or of the line, and returns their number.
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

// beginLine reads the time of a line. A line without a time is a message about the container, passed on as it is.
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
		s.kept = head // It is written with the first byte of the line, so that a line begins only once.
	}
	return nil
}

// known returns how many bytes of the new line were passed on before. -1: all.
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

// pass passes on a part of a line, at most up to its end.
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
