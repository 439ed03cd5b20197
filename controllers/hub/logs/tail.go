// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package logs

import "bytes"

// tail keeps the end of what is written to it.
type tail struct {
	limit int
	// kept is full when it has limit bytes. Then the oldest byte is at next.
	kept []byte
	next int
	// total is how many bytes were written, and lines how many ends of lines.
	total int64
	lines int
}

// Write keeps the end of p. It never fails.
func (t *tail) Write(p []byte) (int, error) {
	written := len(p)
	t.total += int64(written)
	t.lines += bytes.Count(p, []byte{'\n'})
	if len(p) > t.limit {
		p = p[len(p)-t.limit:]
	}
	if room := t.limit - len(t.kept); room > 0 {
		n := min(room, len(p))
		t.kept = append(t.kept, p[:n]...)
		p = p[n:]
	}
	for len(p) > 0 {
		n := copy(t.kept[t.next:], p)
		t.next = (t.next + n) % t.limit
		p = p[n:]
	}
	return written, nil
}

// end returns what is kept. If something is not, it begins with the start of a line.
func (t *tail) end() []byte {
	end := append(bytes.Clone(t.kept[t.next:]), t.kept[:t.next]...)
	if t.dropped() {
		if at := bytes.IndexByte(end, '\n'); at >= 0 && at+1 < len(end) {
			end = end[at+1:]
		}
	}
	return end
}

func (t *tail) dropped() bool { return t.total > int64(len(t.kept)) }
