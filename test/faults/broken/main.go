// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

func main() {
	root := flag.String("root", "../..", "Directory of the product's module. Its bin/ has the other programs.")
	run := flag.String("run", "", "Only the promises whose name matches this regular expression.")
	patience := flag.Duration("patience", 25*time.Second, "How long a test waits for a condition that will not come.")
	logs := flag.String("logs", "", "Directory for what the tests print. Default: _output/test/broken of the product's module.")
	flag.Parse()
	if err := demonstrate(*root, *run, *logs, *patience); err != nil {
		fmt.Fprintln(os.Stderr, "broken:", err)
		os.Exit(1)
	}
}

// demonstrate breaks the promises one after the other, and returns an error if a test does not notice that.
func demonstrate(root, run, logs string, patience time.Duration) error {
	only, err := regexp.Compile(run)
	if err != nil {
		return err
	}
	if root, err = filepath.Abs(root); err != nil {
		return err
	}
	if logs == "" {
		logs = filepath.Join(root, "_output", "test", "broken")
	}
	w, err := newWorkshop(root, logs, patience)
	if err != nil {
		return err
	}
	defer w.close()
	var unseen []string
	for _, p := range promises {
		if !only.MatchString(p.name) {
			continue
		}
		began := time.Now()
		results, err := w.try(p)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		for _, test := range p.seenBy {
			word := "seen"
			if results[test] != failed {
				word = "NOT SEEN (" + results[test].String() + ")"
				unseen = append(unseen, p.name+" by "+test)
			}
			fmt.Printf("%-24s %-9s by %s\n", p.name, word, test)
		}
		fmt.Printf("%-24s           %s [%v]\n", "", p.words, time.Since(began).Round(time.Second))
	}
	if len(unseen) > 0 {
		return errors.New("not seen: " + strings.Join(unseen, ", "))
	}
	return nil
}
