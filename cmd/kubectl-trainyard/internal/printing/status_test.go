// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package printing

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onsi/gomega"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/trainyard/trainyard/test/check"
)

// terminal is what was written to a terminal.
type terminal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *terminal) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

// lines returns what a user sees: a return begins the line anew, and the cursor's line is the last.
func (s *terminal) lines() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var seen []string
	for line := range strings.SplitSeq(s.text.String(), "\n") {
		line = line[strings.LastIndex(line, eraseLine)+1:]
		seen = append(seen, strings.NewReplacer(eraseLine[1:], "", wrapOff, "", wrapOn, "").Replace(line))
	}
	return strings.Join(seen, "\n")
}

func expect(t *testing.T, s *terminal, want string) {
	t.Helper()
	check.Within(time.Minute, time.Millisecond)(t, fmt.Sprintf("the terminal to show %q", want), func(g gomega.Gomega) {
		g.Expect(s.lines()).To(gomega.Equal(want))
	})
}

// TestStatusOnTerminal checks that there is one line, that it changes, and that it is gone when something else is printed.
func TestStatusOnTerminal(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Unix(0, 0))
	seen := &terminal{}
	s := newStatus(seen, true, clock)
	out := Escaped(s.Over(seen))
	check.Must(t, s.Show("worker is not Ready yet: Connecting"))
	check.Must(t, s.Show("worker is not Ready yet: Connecting"))
	expect(t, seen, "worker is not Ready yet: Connecting")

	step := func(by time.Duration) {
		t.Helper()
		check.Within(time.Minute, time.Millisecond)(t, "the ticker", func(g gomega.Gomega) { g.Expect(clock.HasWaiters()).To(gomega.BeTrue()) })
		clock.Step(by)
	}
	step(time.Second)
	expect(t, seen, "worker is not Ready yet: Connecting (1s)")
	check.Must(t, s.Draw("3 jobs\nto \x1b[2Jleave"))
	expect(t, seen, `3 jobs to \u001b[2Jleave`)
	_, err := io.WriteString(out, "trainjob a moved\n")
	check.Must(t, err)
	expect(t, seen, "trainjob a moved\n")
	step(75 * time.Second)
	expect(t, seen, "trainjob a moved\n"+`3 jobs to \u001b[2Jleave (1m15s)`)

	check.Must(t, s.Done())
	expect(t, seen, "trainjob a moved\n")
	clock.Step(time.Second)
	check.Must(t, s.Done())
	check.Must(t, s.Show("again"))
	expect(t, seen, "trainjob a moved\nagain")
	check.Must(t, s.Done())
}

// TestStatusElsewhere checks that a file gets a line for each change, without control characters.
func TestStatusElsewhere(t *testing.T) {
	seen := &terminal{}
	s := NewStatus(seen)
	for _, text := range []string{"waits for a", "waits for a", "waits\x1b[2J for b", "waits for a"} {
		check.Must(t, s.Show(text))
	}
	check.Must(t, s.Draw("other lines say that"))
	_, err := io.WriteString(s.Over(seen), "done\n")
	check.Must(t, err)
	check.Must(t, s.Done())
	check.Equal(t, "note: waits for a\nnote: waits"+`\u001b[2J`+" for b\nnote: waits for a\ndone\n", seen.lines(), "output")
}

// TestTerminals checks what counts as a terminal, with a real one.
func TestTerminals(t *testing.T) {
	tty, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("there are no pseudo-terminals: ", err)
	}
	defer tty.Close()
	file, err := os.Create(t.TempDir() + "/file")
	check.Must(t, err)
	defer file.Close()
	t.Setenv("TERM", "xterm")
	check.Equal(t, true, NewStatus(tty).live, "a terminal")
	check.Equal(t, false, NewStatus(file).live, "a file")
	t.Setenv("TERM", "dumb")
	check.Equal(t, false, NewStatus(tty).live, "a terminal without control sequences")
}
