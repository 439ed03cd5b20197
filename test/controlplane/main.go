// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	name, args := choose(os.Args)
	part, ok := parts[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "usage: controlplane PART [flags], where PART is one of: %s\n", strings.Join(partNames(), ", "))
		os.Exit(2)
	}
	if os.Getenv(endWithStdin) != "" && name != "run" {
		go exitWithStdin()
	}
	// The parts' own flag parsers read os.Args: they see themselves as the command.
	os.Args = append([]string{name}, args...)
	os.Exit(part())
}

// choose returns the part that argv asks for, by the name of the binary or
// else by the first argument, and the arguments that are left.
func choose(argv []string) (string, []string) {
	if name := filepath.Base(argv[0]); parts[name] != nil {
		return name, argv[1:]
	}
	if len(argv) < 2 {
		return "", nil
	}
	return argv[1], argv[2:]
}

func partNames() []string {
	names := make([]string, 0, len(parts))
	for name := range parts {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
