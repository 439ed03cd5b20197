// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package printing

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/utils/clock"
)

// Status shows what a command waits for. On a terminal it is a line that changes, with the time for which it has said the
// same, and that is erased when anything else is printed. Elsewhere each new text is a line of its own.
type Status struct {
	to    io.Writer
	live  bool
	clock clock.WithTicker

	mu sync.Mutex
	// The fields below are under mu. text is what is shown, empty for nothing, and since is since when.
	text  string
	since time.Time
	// drawn is true while the terminal has the line.
	drawn bool
	// stop ends the goroutine that draws the time, nil while there is none.
	stop chan struct{}
}

// NewStatus returns a status that is written to an output, which is a terminal or not. Nothing is shown yet.
func NewStatus(to io.Writer) *Status {
	// Consoles of Windows take the sequences below only if a program asks for it.
	live := printers.IsTerminal(to) && os.Getenv("TERM") != "dumb" && runtime.GOOS != "windows"
	return newStatus(to, live, clock.RealClock{})
}

func newStatus(to io.Writer, live bool, clock clock.WithTicker) *Status {
	return &Status{to: to, live: live, clock: clock}
}

// Control sequences of all terminals of the last decades. Without the wrap a line that is too long ends at the edge.
const (
	eraseLine = "\r\x1b[K"
	wrapOff   = "\x1b[?7l"
	wrapOn    = "\x1b[?7h"
)

// Show says what the command waits for. Elsewhere than on a terminal the text is printed if it differs from the last
// one, after "note: ".
func (s *Status) Show(text string) error { return s.show(text, !s.live) }

// Draw is Show on a terminal, and does nothing elsewhere. It is for what other lines say, too.
func (s *Status) Draw(text string) error {
	if !s.live {
		return nil
	}
	return s.show(text, false)
}

func (s *Status) show(text string, print bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if text == s.text {
		return nil
	}
	s.text, s.since = text, s.clock.Now()
	if print {
		_, err := fmt.Fprintln(Escaped(s.to), "note:", text)
		return err
	}
	if s.stop == nil {
		s.stop = make(chan struct{})
		go s.tick(s.stop)
	}
	return s.draw()
}

// tick draws the time that passes.
func (s *Status) tick(stop <-chan struct{}) {
	ticker := s.clock.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ticker.C():
		}
		s.mu.Lock()
		if s.stop == stop { // Done was not called meanwhile.
			_ = s.draw() // The next line that is printed has the same error.
		}
		s.mu.Unlock()
	}
}

// draw writes the line. It needs mu.
func (s *Status) draw() error {
	var line strings.Builder
	fmt.Fprint(Escaped(&line), strings.Join(strings.Fields(s.text), " "))
	if passed := s.clock.Since(s.since).Truncate(time.Second); passed > 0 {
		fmt.Fprintf(&line, " (%s)", passed)
	}
	s.drawn = true
	_, err := io.WriteString(s.to, eraseLine+wrapOff+line.String()+wrapOn)
	return err
}

// Done says that the command does not wait any more. Show begins anew.
func (s *Status) Done() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text = ""
	if s.stop != nil {
		close(s.stop)
		s.stop = nil
	}
	return s.erase()
}

// erase needs mu.
func (s *Status) erase() error {
	if !s.drawn {
		return nil
	}
	s.drawn = false
	_, err := io.WriteString(s.to, eraseLine)
	return err
}

// Over returns a writer to the same terminal. It erases the status before it writes; the status is drawn again when it
// changes, or after a second.
func (s *Status) Over(to io.Writer) io.Writer {
	if !s.live {
		return to
	}
	return over{s, to}
}

type over struct {
	status *Status
	to     io.Writer
}

// Write implements io.Writer.
func (o over) Write(p []byte) (int, error) {
	o.status.mu.Lock()
	defer o.status.mu.Unlock()
	if err := o.status.erase(); err != nil {
		return 0, err
	}
	return o.to.Write(p)
}
