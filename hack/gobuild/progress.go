// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"
)

// overhead is what a package takes beside its source, in bytes of source: a compiler starts, and reads what the package
// imports. For 441 packages below client-go the estimate was then off by 11 % of the whole time at most. An estimate by
// the number of packages was off by 24 %.
const overhead = 20 << 10

// enough is the part of a build after which the rest can be estimated.
const enough = 0.02

// progress is how far a build has come.
type progress struct {
	what    string
	started time.Time
	// compiling is when the first package was named.
	compiling time.Time
	downloads int
	// parallel is how many packages are compiled at a time. go build names a package when it begins to compile it, so the
	// estimate takes the packages that were named last as not compiled.
	parallel int
	// named has the packages that go build has named, and how many it had named before.
	named map[string]int
	// sources are the sizes in bytes of the source of the packages that were to be compiled, without programs: to compile
	// those is nothing, and to link them is what go build does not name. Nil: not known.
	sources map[string]int64
	// done is how many of sources are named.
	done int
}

func newProgress(what string, now time.Time, parallel int) *progress {
	return &progress{what: what, started: now, parallel: parallel, named: map[string]int{}}
}

// packageName is a line of go build -v that names a package.
var packageName = regexp.MustCompile(`^[a-zA-Z0-9._~/+-]+$`)

// read takes a line of go build -v, and returns whether it was about progress.
func (p *progress) read(line string, now time.Time) bool {
	switch {
	case strings.HasPrefix(line, "go: downloading "):
		p.downloads++
	case packageName.MatchString(line):
		if len(p.named) == 0 {
			p.compiling = now
		}
		p.name(line)
	default:
		return false
	}
	return true
}

// name notes that a package is being compiled.
func (p *progress) name(name string) {
	if _, ok := p.named[name]; ok {
		return
	}
	p.named[name] = len(p.named)
	if _, ok := p.sources[name]; ok {
		p.done++
	}
}

// expect takes what was still to be compiled a moment ago. go build may have compiled other packages before.
func (p *progress) expect(t *total) {
	if t == nil {
		return
	}
	p.sources = t.sources
	for name := range p.named {
		if _, ok := p.sources[name]; !ok && !t.programs[name] {
			p.sources[name] = 0
		}
		if _, ok := p.sources[name]; ok {
			p.done++
		}
	}
}

// line describes the progress.
func (p *progress) line(now time.Time) string {
	passed := clock(now.Sub(p.started)) + " passed"
	switch {
	case len(p.named) == 0 && p.downloads > 0:
		return fmt.Sprintf("%s: %d Go modules downloaded, %s", p.what, p.downloads, passed)
	case len(p.named) == 0:
		return fmt.Sprintf("%s: looking for what to compile, %s", p.what, passed)
	case p.sources == nil:
		return fmt.Sprintf("%s: package %d, %s", p.what, len(p.named), passed)
	case len(p.sources) == 0:
		return fmt.Sprintf("%s: linking, %s", p.what, passed)
	case p.done == len(p.sources):
		return fmt.Sprintf("%s: %d of %d packages, linking, %s", p.what, p.done, len(p.sources), passed)
	}
	line := fmt.Sprintf("%s: %d of %d packages, %s", p.what, p.done, len(p.sources), passed)
	if left, ok := p.left(now); ok {
		line += ", about " + clock(round(left)) + " left"
	}
	return line
}

// left estimates how long the rest takes, from the size of the source: large packages come late.
func (p *progress) left(now time.Time) (time.Duration, bool) {
	var done, all float64
	for name, source := range p.sources {
		weight := float64(source + overhead)
		all += weight
		if before, ok := p.named[name]; ok && before < len(p.named)-p.parallel {
			done += weight
		}
	}
	if done < enough*all {
		return 0, false
	}
	return time.Duration(float64(now.Sub(p.compiling)) * (all - done) / done), true
}

// round makes an estimate no more exact than it is.
func round(d time.Duration) time.Duration {
	switch {
	case d < time.Minute:
		return max(d.Round(10*time.Second), 10*time.Second)
	case d < 5*time.Minute:
		return d.Round(30 * time.Second)
	default:
		return d.Round(time.Minute)
	}
}

// clock writes 190 s as 3:10.
func clock(d time.Duration) string {
	seconds := int(d.Seconds())
	return fmt.Sprintf("%d:%02d", seconds/60, seconds%60)
}

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
