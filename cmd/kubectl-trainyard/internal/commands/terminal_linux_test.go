// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package commands_test

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/onsi/gomega"
	"golang.org/x/sys/unix"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/commands"
	"github.com/trainyard/trainyard/test/check"
)

// terminal is a pseudo-terminal.
type terminal struct {
	// side is the one that a program writes to.
	side *os.File

	mu   sync.Mutex
	seen strings.Builder // what has come out of it, under mu.
}

func newTerminal(t *testing.T) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	check.Must(t, err)
	t.Cleanup(func() { _ = master.Close() })
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	check.Must(t, err)
	check.Must(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	side, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	check.Must(t, err)
	t.Cleanup(func() { _ = side.Close() })
	s := &terminal{side: side}
	go func() {
		part := make([]byte, 1024)
		for {
			n, err := master.Read(part)
			if err != nil {
				return
			}
			s.mu.Lock()
			s.seen.Write(part[:n])
			s.mu.Unlock()
		}
	}()
	return s
}

func (s *terminal) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen.String()
}

// TestWaitingIsShown checks what join, drain and leave show while they wait: on a terminal a line that is erased in the
// end, and elsewhere lines that stay. There is no manager that would end the waiting.
func TestWaitingIsShown(t *testing.T) {
	t.Setenv("TERM", "xterm")
	d := newDrained(t)
	far = sharedFar.Get(t)
	if _, errOut, code := onPair(t, "join", "awaited", "--agent=none", "--wait=false"); code != 0 {
		t.Fatal(errOut)
	}
	defer leave(t, "awaited")
	for name, tc := range map[string]struct {
		args []string
		// live is shown on a terminal, and plain elsewhere, each once. plain may be empty: other lines say it.
		live, plain string
		code        int
	}{
		"Join": {
			args: pairFlags("join", "awaited", "--agent=none", "--timeout=2s"), code: 1,
			live: `waiting until the manager has connected to worker "awaited"`,
		},
		"Leave": {
			args: pairFlags("leave", "awaited", "--timeout=2s"), code: 1,
			live:  `waiting until the manager has seen that worker "awaited" is cordoned`,
			plain: "note: waiting until the manager has seen that worker \"awaited\" is cordoned\n",
		},
		"Drain": {
			args: []string{"drain", d.east, "--wait", "--timeout=2s"}, code: 1,
			live: `draining worker "` + d.east + `": 2 jobs still to leave, 0 stay`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := start(t, tc.args...)
			check.Equal(t, tc.code, c.wait(t), "exit code without a terminal; stderr:\n%s", &c.err)
			if strings.ContainsAny(c.err.String(), "\r\x1b") {
				t.Errorf("there are control characters in %q", c.err.String())
			}
			if tc.plain == "" && strings.Contains(c.err.String(), tc.live) || strings.Count(c.err.String(), tc.plain) != 1 && tc.plain != "" {
				t.Errorf("want %q once, and nothing else about it, in:\n%s", tc.plain, &c.err)
			}

			seen := newTerminal(t)
			streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: seen.side, ErrOut: seen.side}
			args := append([]string{"--kubeconfig", world.cluster.KubeconfigPath}, tc.args...)
			check.Equal(t, tc.code, commands.Main(t.Context(), streams, "kubectl-trainyard", args), "exit code on a terminal; it shows:\n%s", seen)
			eventually(t, "what is shown", func(g gomega.Gomega) {
				text := seen.String()
				g.Expect(text).To(gomega.ContainSubstring("\r\x1b[K\x1b[?7l" + tc.live + "\x1b[?7h"))
				g.Expect(text).To(gomega.ContainSubstring(tc.live+" (1s)"), "the time that passes")
				g.Expect(text).To(gomega.MatchRegexp(`\r\x1b\[Kerror: [^\r]+\r\n$`), "the line is erased before the last words")
			})
		})
	}
}
