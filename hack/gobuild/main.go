// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Gobuild runs go build, and says how many packages have been compiled, of how many, and about how long the rest takes:
//
//	gobuild WHAT [-C DIRECTORY] [arguments of go build]
//
// WHAT is a name for the lines that it prints. It prints nothing if there is nothing to compile. It imports only the
// standard library, so that it is there at once where nothing has been compiled yet.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

func main() { os.Exit(run()) }

// run returns the exit code.
func run() int {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: gobuild WHAT [-C DIRECTORY] [arguments of go build]")
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := build(ctx, os.Args[1], parse(os.Args[2:]), newScreen(os.Stdout))
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return max(exit.ExitCode(), 1) // go build has said why.
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gobuild:", err)
		return 1
	}
	return 0
}

// arguments are the arguments of go build.
type arguments struct {
	dir    string
	output []string // -o and its value: go list has no such flag
	shared []string // flags and packages that go list takes, too
}

func parse(args []string) arguments {
	var a arguments
	for i := 0; i < len(args); i++ {
		switch {
		case args[i] == "-C" && i+1 < len(args):
			i++
			a.dir = args[i]
		case args[i] == "-o" && i+1 < len(args):
			a.output = args[i : i+2]
			i++
		default:
			a.shared = append(a.shared, args[i])
		}
	}
	return a
}

// build runs go build, and shows its progress. It asks for the total when the first package is compiled: a build that
// has nothing to compile takes no longer than without this program.
func build(ctx context.Context, what string, a arguments, s *screen) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // Ends go list.
	command := goCommand(ctx, a.dir, append(append([]string{"build", "-v"}, a.output...), a.shared...)...)
	command.Stdout = os.Stdout
	stderr, err := command.StderrPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return err
	}
	p := newProgress(what, time.Now(), runtime.NumCPU())
	lines, totals := make(chan string), make(chan *total, 1)
	go scan(stderr, lines)
	ticker := time.NewTicker(s.interval)
	defer ticker.Stop()
	for open, asked := true, false; open; {
		var line string
		select {
		case line, open = <-lines:
			if !p.read(line, time.Now()) && open {
				s.pass(line)
			}
			if len(p.named) > 0 && !asked {
				asked = true
				go func() { totals <- stale(ctx, a) }()
			}
		case t := <-totals:
			p.expect(t)
		case now := <-ticker.C:
			s.show(p.line(now))
		}
	}
	s.clear()
	return command.Wait()
}

func goCommand(ctx context.Context, dir string, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = dir
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = 10 * time.Second
	return command
}

func scan(r io.Reader, lines chan<- string) {
	defer close(lines)
	reader := bufio.NewReader(r)
	for {
		line, err := reader.ReadString('\n')
		if line != "" {
			lines <- strings.TrimSuffix(line, "\n")
		}
		if err != nil {
			return
		}
	}
}

// staleFormat prints a line for each package that Go's build cache lacks. go list calls a program stale, too, if it
// only has to be linked again.
const staleFormat = `{{if and .Stale (ne .StaleReason "not installed but available in build cache")}}` +
	`{{.ImportPath}}{{"\t"}}{{.Name}}{{"\t"}}{{.Dir}}{{"\t"}}{{join .GoFiles "\t"}}{{"\t"}}{{join .CgoFiles "\t"}}{{end}}`

// total is what a build has to compile.
type total struct {
	sources  map[string]int64 // bytes of source by package
	programs map[string]bool  // packages main
}

// stale returns what is to be compiled. It returns nil if go list fails: go build says why, or has ended.
func stale(ctx context.Context, a arguments) *total {
	args := append([]string{"list", "-deps", "-f", staleFormat}, a.shared...)
	output, err := goCommand(ctx, a.dir, args...).Output()
	if err != nil {
		return nil
	}
	t := &total{sources: map[string]int64{}, programs: map[string]bool{}}
	for line := range strings.Lines(string(output)) {
		words := strings.Split(strings.TrimSpace(line), "\t")
		switch {
		case len(words) < 3:
		case words[1] == "main":
			t.programs[words[0]] = true
		default:
			t.sources[words[0]] = size(words[2], words[3:])
		}
	}
	return t
}

// size returns the bytes of files in a directory.
func size(dir string, files []string) int64 {
	var sum int64
	for _, file := range files {
		if info, err := os.Stat(filepath.Join(dir, file)); err == nil && file != "" {
			sum += info.Size()
		}
	}
	return sum
}
