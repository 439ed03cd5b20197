// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// subject is what a comment begins with: "Name: ..." or "Name says: ...".
var subject = regexp.MustCompile(`^\w+(?: says)?:\s+`)

// comments returns what the comments of the constants of a package say, by the names of the constants, without the
// subject and the last full stop. dir is the path from the root of the repository.
func comments(dir string) (map[string]string, error) {
	paths, err := filepath.Glob(filepath.Join(os.Args[1], dir, "*.go"))
	if err != nil {
		return nil, err
	}
	words := map[string]string{}
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		ast.Inspect(file, func(node ast.Node) bool {
			if constant, ok := node.(*ast.ValueSpec); ok && constant.Doc != nil {
				text := strings.Join(strings.Fields(constant.Doc.Text()), " ")
				words[constant.Names[0].Name] = strings.TrimSuffix(subject.ReplaceAllString(text, ""), ".")
			}
			return true
		})
	}
	return words, nil
}
