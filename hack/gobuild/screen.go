// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"time"
)

// screen shows the latest line: on a terminal always in the same place, elsewhere now and then.
type screen struct {
	out      io.Writer
	terminal bool
	interval time.Duration
	shown    bool
}

func newScreen(out *os.File) *screen {
	info, err := out.Stat()
	if err == nil && info.Mode()&os.ModeCharDevice != 0 {
		return &screen{out: out, terminal: true, interval: time.Second}
	}
	return &screen{out: out, interval: 20 * time.Second}
}

func (s *screen) show(line string) {
	if s.terminal {
		fmt.Fprintf(s.out, "\r\x1b[K  %s", line)
		s.shown = true
		return
	}
	fmt.Fprintf(s.out, "  %s\n", line)
}

// clear makes room for other lines.
func (s *screen) clear() {
	if s.shown {
		fmt.Fprint(s.out, "\r\x1b[K")
		s.shown = false
	}
}

// pass shows a line of go build that is not about progress, such as an error.
func (s *screen) pass(line string) {
	s.clear()
	fmt.Fprintln(os.Stderr, line)
}
