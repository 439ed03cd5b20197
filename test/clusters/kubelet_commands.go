// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"archive/tar"
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// exitNotFound is a shell's exit code for a command that is not there.
const exitNotFound = 127

// process is a command in a container. No program of this machine runs: the methods are all that a command does, and
// doc.go says what that is.
type process struct {
	container *container
	in        io.Reader
	out, err  io.Writer
	resized   <-chan remotecommand.TerminalSize // nil: there is no terminal
}

// newProcess takes the streams that the client has asked for, and nil for the others.
func newProcess(
	c *container, in io.Reader, out, err io.WriteCloser, resized <-chan remotecommand.TerminalSize,
) process {
	p := process{container: c, in: strings.NewReader(""), out: io.Discard, err: io.Discard, resized: resized}
	if in != nil {
		p.in = in
	}
	if out != nil {
		p.out = out
	}
	switch {
	case err != nil:
		p.err = err
	case resized != nil:
		p.err = p.out // A terminal shows both.
	}
	return p
}

// run runs a command and returns its exit code.
func (p process) run(ctx context.Context, command []string) int {
	if len(command) == 0 {
		return exitNotFound
	}
	var err error
	name, args := path.Base(command[0]), command[1:]
	switch name {
	case "true":
	case "false", "test": // kubectl cp tests for directories: there are none.
		return 1
	case "exit":
		return exitCode(args, 0)
	case "echo":
		_, err = fmt.Fprintln(p.out, strings.Join(args, " "))
	case "env":
		_, err = fmt.Fprintf(p.out, "HOSTNAME=%s\nNAMESPACE=%s\nCONTAINER=%s\n",
			p.container.pod.Name, p.container.pod.Namespace, p.container.run.container)
	case "cat":
		err = p.cat(args)
	case "sleep":
		err = sleep(ctx, args)
	case "resize":
		err = p.showSizes(ctx)
	case "sh", "bash":
		return p.shell(ctx, args)
	case "tar":
		err = p.tar(args)
	default:
		_, _ = fmt.Fprintf(p.err, "%s: command not found\n", command[0])
		return exitNotFound
	}
	if err != nil {
		_, _ = fmt.Fprintf(p.err, "%s: %v\n", name, err)
		return 1
	}
	return 0
}

// exitCode is what the argument of exit says, or else the code of the command before.
func exitCode(args []string, last int) int {
	if len(args) == 0 {
		return last
	}
	code, err := strconv.ParseUint(args[0], 10, 8)
	if err != nil {
		return 2
	}
	return int(code)
}

func (p process) cat(args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s: no such file or directory", args[0])
	}
	_, err := io.Copy(p.out, p.in)
	return err
}

// sleep takes seconds, as a decimal number, or "infinity".
func sleep(ctx context.Context, args []string) error {
	var over <-chan time.Time
	switch {
	case len(args) != 1:
		return errors.New("want one argument")
	case args[0] != "infinity":
		seconds, err := strconv.ParseFloat(args[0], 64)
		if err != nil {
			return fmt.Errorf("invalid time interval %q", args[0])
		}
		over = time.After(time.Duration(seconds * float64(time.Second)))
	}
	select {
	case <-over:
	case <-ctx.Done():
	}
	return nil
}

// showSizes prints the size of the terminal, and each new one until stdin ends.
func (p process) showSizes(ctx context.Context) error {
	if p.resized == nil {
		return errors.New("there is no terminal")
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, p.in)
	}()
	for {
		select {
		case size, ok := <-p.resized:
			if !ok {
				return nil
			}
			if _, err := fmt.Fprintf(p.out, "%dx%d\n", size.Width, size.Height); err != nil {
				return err
			}
		case <-ended:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// shell runs the commands of a script, or of stdin, and returns the exit code of the last one. A command ends with its
// line or with ";". Words are separated by blanks, and there are no quotes. ">&2" at the end sends stdout to stderr.
func (p process) shell(ctx context.Context, args []string) (code int) {
	input := bufio.NewReader(p.in)
	p.in = input // A command reads on behind its own line.
	if len(args) > 1 && args[0] == "-c" {
		input = bufio.NewReader(strings.NewReader(args[1]))
	}
	for {
		line, err := input.ReadString('\n')
		for command := range strings.SplitSeq(line, ";") {
			words := strings.Fields(command)
			if len(words) == 0 {
				continue
			}
			if words[0] == "exit" {
				return exitCode(words[1:], code)
			}
			q := p
			if last := len(words) - 1; last > 0 && words[last] == ">&2" {
				q.out, words = p.err, words[:last]
			}
			code = q.run(ctx, words)
		}
		if err != nil || ctx.Err() != nil {
			return code
		}
	}
}

// tar serves kubectl cp. A container has no files: what is read from it is its log, under any name, and what is written
// to it is listed with its size and SHA-256.
func (p process) tar(args []string) error {
	for i, arg := range args {
		switch {
		case strings.HasPrefix(arg, "--"):
		case strings.Contains(arg, "x"):
			return p.extract()
		case strings.Contains(arg, "c") && len(args) > i+2:
			return p.archive(args[i+2])
		}
	}
	return errors.New("want -xf - or cf - FILE")
}

func (p process) extract() error {
	archive := tar.NewReader(p.in)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			_, err = io.Copy(io.Discard, p.in) // The padding.
			return err
		}
		if err != nil {
			return err
		}
		hash := sha256.New()
		size, err := io.Copy(hash, archive)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(p.out, "%s %d %x\n", header.Name, size, hash.Sum(nil)); err != nil {
			return err
		}
	}
}

func (p process) archive(name string) error {
	log, err := p.container.run.log(p.container.pod)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(p.out)
	err = archive.WriteHeader(&tar.Header{
		Name: strings.TrimPrefix(path.Clean(name), "/"), Mode: 0o644, Size: log.bytes(), ModTime: p.container.run.started,
	})
	if err != nil {
		return err
	}
	return errors.Join(log.writeTo(archive), archive.Close())
}
