// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// parsed returns the files of a package of the repository without its tests, with comments, in the order of their
// names.
func parsed(directory string) ([]*ast.File, error) {
	paths, err := filepath.Glob(filepath.Join(os.Args[1], directory, "*.go"))
	if err != nil {
		return nil, err
	}
	var files []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}

// subject is what a comment begins with: "Name: ..." or "Name says: ...".
var subject = regexp.MustCompile(`^\w+(?: says)?:\s+`)

// comments returns what the comments of the constants of a package say, by the names of the constants, without the
// subject and the last full stop.
func comments(directory string) (map[string]string, error) {
	files, err := parsed(directory)
	words := map[string]string{}
	for _, file := range files {
		ast.Inspect(file, func(node ast.Node) bool {
			if constant, ok := node.(*ast.ValueSpec); ok && constant.Doc != nil {
				text := strings.Join(strings.Fields(constant.Doc.Text()), " ")
				words[constant.Names[0].Name] = strings.TrimSuffix(subject.ReplaceAllString(text, ""), ".")
			}
			return true
		})
	}
	return words, err
}

// goDirectories calls do for each directory of the product that has Go files.
func goDirectories(do func(directory string) error) error {
	return filepath.WalkDir(os.Args[1], func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		directory, err := filepath.Rel(os.Args[1], path)
		if err != nil {
			return err
		}
		switch name := entry.Name(); {
		case directory == ".":
			return nil
		case name[0] == '.', name[0] == '_', directory == "bin", directory == "hack", directory == "test":
			return filepath.SkipDir
		}
		return do(filepath.ToSlash(directory))
	})
}

// text is the value of a string that is written in one piece, or in several with "+" between them.
func text(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		return constant.StringVal(constant.MakeFromLiteral(e.Value, e.Kind, 0))
	case *ast.BinaryExpr:
		return text(e.X) + text(e.Y)
	}
	return ""
}

// fieldsIn returns the fields of a composite literal by name.
func fieldsIn(literal *ast.CompositeLit) map[string]ast.Expr {
	fields := map[string]ast.Expr{}
	for _, element := range literal.Elts {
		if pair, ok := element.(*ast.KeyValueExpr); ok {
			if name, ok := pair.Key.(*ast.Ident); ok {
				fields[name.Name] = pair.Value
			}
		}
	}
	return fields
}

// texts are the strings of a slice.
func texts(e ast.Expr) []string {
	literal, ok := e.(*ast.CompositeLit)
	if !ok {
		return nil
	}
	var all []string
	for _, element := range literal.Elts {
		all = append(all, text(element))
	}
	return all
}

// selected returns the name behind the package in "package.Name", empty for anything else.
func selected(e ast.Expr, of string) string {
	selector, ok := e.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	if name, ok := selector.X.(*ast.Ident); !ok || name.Name != of {
		return ""
	}
	return selector.Sel.Name
}
